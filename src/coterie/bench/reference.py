"""Section `reference`: PCL end to end, data included, against the step as people write it today."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from ..data.rng import order
from ..training.distributed import World
from ..training.meters import LossMeter
from . import usual
from .noise import Noise
from .processes import in_subprocess
from .size import Size
from .subjects import EPOCH, device, made, optimiser_step
from .timing import Run, in_turns


def measure(size: Size) -> dict[str, Any]:
    """Both in processes of their own, as the allocator is set for a whole process; they never run together."""
    images = size.steps * size.batch
    with ExitStack() as stack:
        theirs = stack.enter_context(in_subprocess(partial(usual.turns, size)))
        ours = stack.enter_context(in_subprocess(partial(turns, size)))
        step = in_turns(theirs, {"ours": ours}, size.rounds)["ours"]
    with ExitStack() as stack:
        theirs = stack.enter_context(in_subprocess(partial(usual_views, size)))
        ours = stack.enter_context(in_subprocess(partial(views, size)))
        data = in_turns(theirs, {"ours": ours}, size.rounds)["ours"]
    return {
        "images": "random, in CIFAR's shape",
        "workers": usual.WORKERS,
        "steps_of_a_turn": size.steps,
        "training": _speed(step.plain(), images),
        "data": _speed(data.plain(), images),
    }


def _speed(times: dict[str, Any], images: int) -> dict[str, Any]:
    """Images per second of both, and how many times as fast ours is."""
    ours = images / times["seconds"]
    low, high = times["quartiles"]
    return {
        "speed_up": 1 / times["ratio"],
        "quartiles": [1 / high, 1 / low],
        "images_per_second": ours,
        "reference_images_per_second": ours * times["ratio"],
        "turns": times["turns"],
    }


def turns(size: Size) -> Run:
    """A turn of our training as the engine does it: the steps of one short epoch."""
    images, where = size.steps * size.batch, device()
    data, method = Noise(images), made("PCL", size)
    data.load()
    optimise, world, watch = optimiser_step(method), World(where), LossMeter(where)

    def turn() -> None:
        mixed = order(0, EPOCH, images)
        batches = [mixed[start : start + size.batch] for start in range(0, images, size.batch)]
        pieces = [piece for batch in batches for piece in world.pieces(batch)]
        stream = data.stream([piece.images for piece in pieces], size.peers, 0, EPOCH, where)
        for step, piece in enumerate(pieces):
            world.seed(0, step)
            seen, labels = next(stream)
            watch.add(optimise(seen, labels, EPOCH), piece, step, 0.1)

    return turn


def views(size: Size) -> Run:
    """A turn of our data alone."""
    images = size.steps * size.batch
    data = Noise(images)
    data.load()
    batches = list(np.arange(images).reshape(-1, size.batch))
    return lambda: sum(len(labels) for _, labels in data.stream(batches, size.peers, 0, 0))


def usual_views(size: Size) -> Run:
    """The same by the usual way."""
    loader = usual.loader(size, size.steps * size.batch)
    return lambda: sum(len(labels) for _, labels in loader)

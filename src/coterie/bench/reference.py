"""Section `reference`: PCL end to end, data included, beside the loop that is usually written by hand."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..data.sampler import epoch_order
from ..report.table import Table, number, text
from .naive_pcl import WORKERS, build_naive_epoch
from .noise import Noise
from .subjects import EPOCH, BenchSize, build_method, build_step, default_device
from .timing import Call, in_subprocess, quartiles_cell, time_in_turns


def measure_reference(size: BenchSize) -> dict[str, Any]:
    return {
        "images": "random, in CIFAR's shape",
        "workers": WORKERS,
        "steps_of_a_turn": size.steps,
        "training": _compare_speed(size, train=True),
        "data": _compare_speed(size, train=False),
    }


def _compare_speed(size: BenchSize, train: bool) -> dict[str, Any]:
    """Time both in processes of their own, as the allocator is set for a whole process; they never overlap."""
    naive, ours = partial(build_naive_epoch, size, train), partial(build_epoch, size, train)
    with in_subprocess(naive) as naive_epoch, in_subprocess(ours) as epoch:
        times = time_in_turns(naive_epoch, {"ours": epoch}, size.rounds)["ours"]
    images_per_second = size.steps * size.batch / times["seconds"]
    low, high = times["quartiles"]
    return {
        "speed_up": 1 / times["ratio"],
        "quartiles": [1 / high, 1 / low],
        "images_per_second": images_per_second,
        "reference_images_per_second": images_per_second * times["ratio"],
        "turns": times["turns"],
    }


def build_epoch(size: BenchSize, train: bool) -> Call:
    """Build a call that loads the views of one short epoch, and trains on them if asked."""
    images, device = size.steps * size.batch, default_device()
    data = Noise(images)
    data.load()
    step = build_step(build_method("PCL", size)) if train else None

    def epoch() -> None:
        batches = list(epoch_order(0, EPOCH, images).reshape(-1, size.batch))
        for views, labels in data.stream(batches, size.peers, 0, EPOCH, device):
            if step is not None:
                step(views, labels, EPOCH)

    return epoch


def reference_tables(section: dict[str, Any]) -> list[Table]:
    rows = [
        [
            text(name),
            number(section[key]["speed_up"], "{:.2f}"),
            quartiles_cell(*section[key]["quartiles"]),
            number(section[key]["images_per_second"]),
            number(section[key]["reference_images_per_second"]),
        ]
        for name, key in (("training, data included", "training"), ("data alone", "data"))
    ]
    columns = ["", "ours / reference", "quartiles", "ours, images per second", "reference"]
    return [Table("PCL beside the loop as it is usually written", columns, rows)]

"""Checks on the simulated device, for processes of their own: `python -m tests.helpers.device_checks NAME DIR`."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coterie.data import device as devices
from coterie.data.batch import BatchRequest, SplitName
from coterie.data.digits import digits
from coterie.data.folder import folder
from coterie.errors import Stopped
from coterie.methods import Method, available
from coterie.metrics.evaluate import evaluate
from coterie.runs.evaluate_run import evaluate_run
from coterie.training.loop import train_recipe
from tests.helpers.common import picture, small_recipe
from tests.helpers.simulated_device import DEVICE, simulated_device, transfers

PIXELS = torch.uint8


def check_methods(out: Path) -> None:
    """A step and an evaluation of every method are those of the CPU."""
    train_recipe(small_recipe(method="Baseline", epochs=1, batch=50), out / "teacher")
    for name in available():
        options = {"class_path": name, "init_args": {"teacher": str(out / "teacher")}} if name == "KD" else name
        recipe = small_recipe(method=options, class_weights=[1.0, 2.0] * 5)
        on_cpu = _step_and_scores(recipe.build(), recipe, torch.device("cpu"))
        with simulated_device():
            on_device = _step_and_scores(recipe.build(), recipe, DEVICE)
        assert on_device[0] == pytest.approx(on_cpu[0], rel=1e-4), name
        for predictor, scores in on_cpu[1].items():
            assert on_device[1][predictor] == pytest.approx(scores, rel=1e-3, abs=1e-4), (name, predictor)


def _step_and_scores(method: Method, recipe: Any, device: torch.device) -> tuple[dict[str, float], Any]:
    method.prepare()
    method.to(device).train()
    optimizer = recipe.build_optimizer(method)
    views, labels = next(recipe.data.stream([np.arange(32)], method.views, 0, 0, device))
    terms = method(views, labels, 50)
    terms["loss"].backward()
    optimizer.step()
    method.after_step()
    scores = evaluate(method, recipe.data.test_batches(400, slice(0, 400), device=device), device)
    return {name: float(term.detach()) for name, term in terms.items()}, scores["predictors"]


def check_training(out: Path) -> None:
    """A training that the CPU began goes on on the device, which is sent each image once, and then numbers."""
    options: dict[str, Any] = {"method": "PCL", "epochs": 2, "ema_horizon": 0.5, "mix": "CutMix"}
    train_recipe(small_recipe(**options, device="cpu"), out / "cpu")
    original, left = Method.after_step, [6]

    def stop_within_the_second_epoch(self: Method) -> None:
        original(self)
        left[0] -= 1
        if not left[0]:
            signal.raise_signal(signal.SIGTERM)

    Method.after_step = stop_within_the_second_epoch  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        train_recipe(small_recipe(**options, device="cpu"), out / "device")
    with simulated_device():
        train_recipe(small_recipe(**options, device="sim"), out / "device")
        sent = [(shape, dtype) for direction, shape, dtype in transfers if direction == "to device"]
        assert [shape for shape, dtype in sent if dtype == PIXELS] == [(100, 1, 8, 8), (1197, 1, 8, 8)]
        steps = [shape for shape, dtype in sent[[dtype for _, dtype in sent].index(PIXELS) :] if len(shape) == 3]
        assert (3, 3, 32) in steps  # where to crop three views of a batch
        evaluation = evaluate_run(out / "device", calibrated=True)
    lines = [(out / run / "metrics.jsonl").read_text().splitlines() for run in ("cpu", "device")]
    cpu, device = (json.loads(line[-1]) for line in lines)
    assert device["terms"] == pytest.approx(cpu["terms"], rel=1e-3)
    for predictor, scores in cpu["predictors"].items():
        assert device["predictors"][predictor] == pytest.approx(scores, rel=1e-2, abs=0.2), predictor
        assert evaluation["predictors"][predictor]["nll"] == pytest.approx(scores["nll"], rel=1e-2)


def check_pixels(out: Path) -> None:
    """Views have the same pixels on both devices, before they are normalised."""
    for index in range(12):
        file = out / "photos" / ("val" if index > 8 else "train") / "ab"[index % 2] / f"{index}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        picture(index).save(file)
    whole = (out / "photos" / "train" / "a" / "0.png").read_bytes()
    (out / "photos" / "train" / "a" / "truncated.png").write_bytes(whole[: len(whole) // 2])
    streamed = folder(root=str(out / "photos"), size=16, workers=0)
    for data in (digits(), digits(augment=["crop", "erase"]), digits(val_fraction=0.5), streamed):
        data.load()
        requests: list[tuple[SplitName, int | None]] = [("train", 3), ("train", None), ("test", None)]
        for split, count in requests:
            images = np.arange(len(data.labels[split]))[::-1][:100].copy()
            on_cpu = data.load_batch(BatchRequest(split, images, count, 1, 2))
            expected = on_cpu.views_on("cpu")
            with simulated_device():
                on_device = data.load_batch(BatchRequest(split, images, count, 1, 2, DEVICE))
                pixels = on_device.views_on(DEVICE)
                assert pixels.device == DEVICE and pixels.dtype == PIXELS
                assert torch.equal(pixels.cpu(), expected)
                assert torch.equal(on_device.labels.cpu(), on_cpu.labels)
            if data is streamed and count:
                assert on_device.flips is not None and on_device.flips.any() and not on_device.flips.all()
                assert len(on_device.labels) == len(images) - 1  # one image cannot be read


if __name__ == "__main__":
    torch.set_num_threads(1)
    devices.WITHOUT_FLOAT64.add("sim")
    {"methods": check_methods, "training": check_training, "pixels": check_pixels}[sys.argv[1]](Path(sys.argv[2]))

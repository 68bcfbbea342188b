"""The training loop: terms become weights. It knows nothing about any method."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import Tensor

from .data.draws import order
from .evaluate import evaluate
from .methods import Method
from .progress import Show
from .recipe import Recipe, batches
from .run import Run
from .schedule import rate


def train(recipe: Recipe, out: Path, title: str = "training") -> Method:
    """Train what the recipe says into a run directory, or go on where that directory's run stopped."""
    method, data, run = recipe.build(), recipe.data, Run(out)
    method.prepare()
    run.open(recipe)
    device = recipe.torch_device()
    method.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = recipe.optimizer([p for p in method.parameters() if p.requires_grad])
    base_rates = [group["lr"] for group in optimizer.param_groups]
    done = run.restore(method, optimizer)
    per_epoch = recipe.steps_per_epoch
    total_steps = recipe.epochs * per_epoch
    with Show(title, recipe.epochs, done, per_epoch) as show:
        for epoch in range(done, recipe.epochs):
            started, sums = time.perf_counter(), dict[str, Tensor]()
            images = order(recipe.seed, epoch, data.train_size)
            method.train()
            for i, part in enumerate(batches(data.train_size, recipe.batch)):
                factor = rate(recipe.schedule, epoch * per_epoch + i, total_steps, recipe.warmup)
                for group, base in zip(optimizer.param_groups, base_rates, strict=True):
                    group["lr"] = base * factor
                views, labels = data.views(images[part], method.views, recipe.seed, epoch)
                views = [view.to(device, non_blocking=True) for view in views]
                labels = labels.to(device, non_blocking=True)
                terms = method(views if len(views) > 1 else views[0], labels, epoch)
                terms["loss"].backward()
                optimizer.step()
                optimizer.zero_grad()
                method.after_step()
                for name, value in terms.items():  # summed on the device: no waiting for it
                    sums[name] = sums.get(name, 0) + value.detach() * len(labels)
                show.step()
            trained = time.perf_counter()
            scores = evaluate(method, data.test_batches(1000), device)
            record = {
                "epoch": epoch,
                "step": (epoch + 1) * per_epoch,
                "lr": optimizer.param_groups[0]["lr"],
                "terms": {name: float(value) / data.train_size for name, value in sums.items()},
                **scores,
                "time": {"train": trained - started, "evaluate": time.perf_counter() - trained},
            }
            run.log(record)
            run.save(epoch + 1, method, optimizer)
            show.epoch(record)
    run.finish(method)
    return method

"""The training loop, which is the same for every method."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ..config.recipe import Recipe
from ..config.schedule import Rates
from ..data.sampler import EpochSampler
from ..data.workers import WorkerFailure
from ..errors import Failure, Stopped, note
from ..methods import Method
from ..metrics.evaluate import evaluate
from ..peers.layout import channels_last
from ..runs.directory import RunDirectory
from ..runs.evaluate_run import write_evaluation
from ..runs.selection import deployed_record, early_stop_sentence
from ..signals import Signals
from .best_weights import BestWeights
from .cautions import warn_before_training, warn_of_chance
from .distributed import join, synchronise_batch_norm
from .failures import explain_failures
from .memory import keep_freed_memory, max_memory
from .meters import LossMeter
from .precision import Precision
from .progress import ProgressReporter
from .state import TrainingState
from .step import Step
from .watchdog import Watchdog


def train_recipe(recipe: Recipe, out: Path, title: str = "training", restart: bool = False) -> Method:
    """Train a recipe into a run directory, or continue the run that the directory holds, unless `restart`."""
    keep_freed_memory()
    with (
        join(recipe.torch_device()) as world,
        closing(RunDirectory(out)) as run,
        Signals() as signals,
        Watchdog(out, signals, world.device) as watchdog,
        explain_failures(recipe),
    ):
        method, data, device = recipe.build(), recipe.data, world.device
        method.prepare()
        world.check_method(method, recipe.accumulate)
        channels_last(method.to(device), method.net.peers, data.shape)
        if recipe.sync_batch_norm:
            synchronise_batch_norm(method, device)
        optimizer = recipe.build_optimizer(method)
        per_epoch = recipe.steps_per_epoch
        sampler = EpochSampler(
            data.train_size, recipe.batch, recipe.seed, world.size, world.rank, recipe.accumulate
        )
        rates = Rates(recipe.schedule, optimizer, recipe.epochs, per_epoch, recipe.warmup)
        precision, meter = Precision(device, recipe.precision, recipe.clip_norm), LossMeter(device)
        if recipe.precision == "auto":
            recipe.resolved["precision"] = precision.format
        best = BestWeights(recipe.patience) if recipe.select == "best" else None
        state = TrainingState(method, optimizer, rates, precision, meter, best=best)
        if recipe.compile:
            method.compile(**({} if recipe.compile is True else {"mode": recipe.compile}))
        saved = world.on_rank_zero(partial(run.open, recipe, world.size, restart))
        if saved is not None:
            state.restore(saved, world)
        world.on_rank_zero(run.begin)  # every check has passed
        world.on_rank_zero(partial(warn_before_training, recipe, method, world.size))
        forward = world.parallel(method, data)
        step = Step(method, optimizer, precision, forward)

        def mixed(views: list[Tensor], labels: Tensor, step: int) -> tuple[list[Tensor], Tensor]:
            """Apply the recipe's `mix`, if it has one, to a part of the batch of this step."""
            if recipe.mix is None:
                return views, labels
            draws = (recipe.seed, step, world.rank)
            several = not method.task.one_label
            return recipe.mix(views, labels, len(data.classes), rates.progress(step), draws, several)

        def save(due: bool) -> None:
            """Save if a checkpoint is due; if any process has received a stop signal, save and stop."""
            due, stop = world.any_rank(due and world.rank == 0, signals.seen is not None)
            if due or stop:
                with watchdog.saving():
                    captured = state.capture(world)
                    world.on_rank_zero(partial(run.save, captured))
            if stop:
                raise Stopped(f"stopped by a signal after step {state.step}; the same command continues.")

        @contextmanager
        def saved_if_workers_fail(epoch: int) -> Iterator[None]:
            """Save the state, which is that after a step of this epoch, if data workers fail here."""
            try:
                yield
            except WorkerFailure as failure:
                if world.size > 1:  # the others cannot save: they wait for this process
                    raise
                state.epoch = epoch
                run.save(state.capture(world))
                saved = f"{failure} The run was saved after step {state.step}; the same command continues it."
                raise Failure(saved) from failure

        watchdog.begin()
        with ProgressReporter(title, recipe.epochs, per_epoch, state.step, quiet=world.rank > 0) as reporter:
            for epoch in range(state.epoch, recipe.epochs):
                if state.stopped:
                    break
                steps = sampler.steps(epoch, start=state.step - epoch * per_epoch)
                images = [piece.images for batch in steps for piece in batch.pieces]
                stream = data.stream(images, method.views, recipe.seed, epoch, device)
                method.train()
                for batch in steps:
                    world.seed(recipe.seed, state.step)
                    with saved_if_workers_fail(epoch):
                        first = [next(stream)]
                    lr = rates.set(state.step)
                    if recipe.compile == "reduce-overhead":
                        torch.compiler.cudagraph_mark_step_begin()  # the last outputs may be overwritten
                    labels = torch.from_numpy(data.labels["train"][batch.images])
                    with method.cross_entropy.part_of_batch(labels):
                        for piece in batch.pieces:
                            views, targets = mixed(*(first.pop() if first else next(stream)), state.step)
                            with world.maybe_no_sync(forward, sync=piece is batch.pieces[-1]):
                                terms = step.backward(views, targets, epoch, piece.weight)
                            meter.add(terms, piece, state.step, lr)
                    step.update()
                    state.step += 1
                    watchdog.progress()
                    reporter.step(meter)
                    save(due=run.checkpoints.due())
                world.share_buffers(method)
                state.epoch += 1
                if state.epoch % recipe.evaluate_every == 0 or state.epoch == recipe.epochs:
                    trained, epochs = meter.seconds, epoch % recipe.evaluate_every + 1
                    eval_batches = data.test_batches(1000, world.share(data.eval_size), data.eval_split, device)
                    with saved_if_workers_fail(epoch):
                        scores = evaluate(method, watchdog.each(eval_batches), device, world.gather)
                    record = {
                        "epoch": epoch,
                        "step": state.step,
                        "lr": optimizer.param_groups[0]["lr"],
                        "terms": meter.means(world),
                        "split": data.eval_split,
                        **scores,
                        "time": {
                            "train": trained,
                            "evaluate": meter.seconds - trained,
                            "images_per_second": epochs * data.train_size / trained,
                            "memory": max_memory(device),
                        },
                    }
                    world.on_rank_zero(partial(run.log, record))
                    if best is not None:
                        best.stopped = world.on_rank_zero(partial(best.update, run, method))
                    meter.reset()
                    reporter.epoch(record)
                ended = state.epoch == recipe.epochs or state.stopped
                save(due=run.checkpoints.due(epoch_ended=True) or ended)
        watchdog.finish()
        if state.epoch < recipe.epochs:
            note(early_stop_sentence(state.epoch, recipe.epochs, recipe.patience))
        # The first process alone has the best weights, and writes.
        epochs = recipe.epochs if best is None else world.on_rank_zero(partial(best.load_into, method))
        world.on_rank_zero(partial(run.finish, method, epochs))
        world.on_rank_zero(lambda: warn_of_chance(data, deployed_record(run.metrics(), recipe.select)))
        world.on_rank_zero(partial(write_evaluation, out, recipe, method, epochs))
    return method

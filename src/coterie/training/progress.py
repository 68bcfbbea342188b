"""Show the progress of a training: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .meters import LossMeter


class ProgressReporter:
    """Show the steps of a training with its loss terms, speed, memory and remaining time.

    Args:
        title: the name that each line begins with.
        epochs: the epochs of the training.
        per_epoch: the steps of an epoch.
        done: the steps that are finished already.
        quiet: print nothing.
        console: where to print; by default standard error.
    """

    def __init__(
        self,
        title: str,
        epochs: int,
        per_epoch: int,
        done: int = 0,
        quiet: bool = False,
        console: Console | None = None,
    ) -> None:
        self.title, self.epochs, self.per_epoch = title, epochs, per_epoch
        self.console = console or Console(stderr=True, quiet=quiet)
        self.live = self.console.is_terminal and not quiet
        self.done = self.first = done
        self.started = self.updated = time.monotonic()
        self.printed = 0.0
        self.bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(compact=True),
            console=self.console,
            disable=not self.live,
            transient=True,
        )
        self.task = self.bar.add_task(title, total=epochs * per_epoch, completed=done, note="")

    def __enter__(self) -> ProgressReporter:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def step(self, meter: LossMeter) -> None:
        """Count a finished step. The meter is read, which synchronises the device, once a second or a minute."""
        self.done += 1
        self.bar.advance(self.task)
        if time.monotonic() - self.updated < (1 if self.live else 60):
            return
        self.updated = time.monotonic()
        note = f"{_terms(meter.means())}  {meter.images / meter.seconds:.0f} images/s"
        self.bar.update(self.task, note=note)
        self._print(f"step {self.done % self.per_epoch}/{self.per_epoch}  {note}")

    def epoch(self, record: dict[str, Any]) -> None:
        """Show the record of a finished epoch; as a plain line at most every two seconds."""
        self.updated = time.monotonic()
        scores, spent = record["predictors"][record["deployed"]], record["time"]
        error = f"error {scores['error']:.2f} %"
        if abs(scores["balanced_error"] - scores["error"]) >= 0.005:  # classes of different size
            error += f"  balanced {scores['balanced_error']:.2f} %"
        note = f"{error}  {_terms(record['terms'])}  {spent['images_per_second']:.0f} images/s"
        self.bar.update(self.task, note=note)
        if self.done == self.epochs * self.per_epoch or self.updated - self.printed > 2:
            self.printed = self.updated
            self._print(f"{note}  {spent['memory'] / 2**30:.2f} GB")

    def _print(self, note: str) -> None:
        if self.live:
            return
        left = (time.monotonic() - self.started) / max(1, self.done - self.first)
        left *= self.epochs * self.per_epoch - self.done
        epoch = -(-self.done // self.per_epoch)
        self.console.print(
            f"{self.title}  epoch {epoch}/{self.epochs}  {note}  {f'{_clock(left)} left' if left else 'done'}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )


def _terms(means: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.3f}" for name, value in means.items())


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

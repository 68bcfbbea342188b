"""What a person sees while a run goes: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Show:
    """Progress over the epochs of a run, with its loss terms and the time left."""

    def __init__(self, title: str, epochs: int, done: int, steps: int, console: Console | None = None) -> None:
        self.title, self.epochs, self.steps = title, epochs, steps
        self.console = console or Console(stderr=True)
        self.live = self.console.is_terminal
        self.done, self.first, self.started, self.said = done, done, time.monotonic(), 0.0
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
        self.task = self.bar.add_task(title, total=epochs * steps, completed=done * steps, note="")

    def __enter__(self) -> Show:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def step(self) -> None:
        self.bar.advance(self.task)

    def epoch(self, record: dict[str, Any]) -> None:
        """An epoch has ended: show what it came to. Plain lines come at most every two seconds."""
        self.done += 1
        score = record["predictors"][record["deployed"]]["error"]
        terms = "  ".join(f"{name} {value:.3f}" for name, value in record["terms"].items())
        self.bar.update(self.task, note=f"error {score:.2f} %  {terms}")
        now = time.monotonic()
        last = self.done == self.epochs
        if not self.live and (last or now - self.said > 2):
            self.said = now
            left = (now - self.started) / (self.done - self.first) * (self.epochs - self.done)
            left_text = "done" if last else f"{_clock(left)} left"
            self.console.print(
                f"{self.title}  epoch {self.done}/{self.epochs}  error {score:.2f} %  {terms}  {left_text}",
                highlight=False,
                soft_wrap=True,
            )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

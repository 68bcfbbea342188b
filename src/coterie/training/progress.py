"""Show the progress of a training: a line with a bar on a terminal, a line per tenth of it in a file."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from .meters import LossMeter

BAR_WIDTH = 24


class ProgressReporter:
    """Show the steps of a training with its error, remaining time, loss terms, speed and memory.

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
        self.total = epochs * per_epoch
        self.console = console or Console(stderr=True, quiet=quiet)
        self.done = self.first = done
        self.started = self.updated = time.monotonic()
        self.error, self.details = "", list[str]()
        self.tenth = self._tenths()
        self.recorded, self.interval = done - done % per_epoch, per_epoch
        """The step of the last record, and the steps between two of them as far as that is known."""
        live = self.console.is_terminal and not quiet
        self.live = Live(self, console=self.console) if live else None

    def __enter__(self) -> ProgressReporter:
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.stop()

    def step(self, meter: LossMeter) -> None:
        """Count a finished step. The meter is read, which synchronises the device, once a second or a tenth."""
        self.done += 1
        now = time.monotonic()
        if self.live is None and (self.tenth == self._tenths() or self._record_is_near()):
            return
        if self.live is not None and now - self.updated < 1:
            return
        self.updated = now
        self.details = _details(meter.means(), meter.images / meter.seconds)
        self._print()

    def epoch(self, record: dict[str, Any]) -> None:
        """Show the record of the epochs since the last one."""
        self.updated = time.monotonic()
        self.interval = max(1, self.done - self.recorded)
        self.recorded = self.done
        scores, spent = record["predictors"][record["deployed"]], record["time"]
        self.error = f"mAP {scores['map']:.2f} %" if "map" in scores else f"error {scores['error']:.2f} %"
        self.details = _details(record["terms"], spent["images_per_second"])
        balanced = scores.get("balanced_error", scores["error"])
        if abs(balanced - scores["error"]) >= 0.005:  # classes of different size
            self.details.insert(0, f"balanced {balanced:.2f} %")
        self.details.append(f"{spent['memory'] / 2**30:.2f} GB")
        if self.tenth != self._tenths():
            self._print()

    def _tenths(self) -> int:
        return 10 * self.done // self.total

    def _record_is_near(self) -> bool:
        """Tell whether a record, which has an error to show, comes within this tenth of the training."""
        following = self.recorded + self.interval
        return self.done in (following, self.total) or (self.done < following and 10 * self.interval <= self.total)

    def _print(self) -> None:
        self.tenth = self._tenths()
        if self.live is None:
            self.console.print("  ".join([*self._essentials(), *self.details]), highlight=False, soft_wrap=True)

    def _essentials(self) -> list[str]:
        """Return what comes first: name and epoch, error, time."""
        steps = max(1, self.done - self.first)
        left = (time.monotonic() - self.started) / steps * (self.total - self.done)
        clock = "done" if self.recorded >= self.total else f"{_clock(left)} left" if self.done > self.first else ""
        epoch = min(self.epochs, -(-self.done // self.per_epoch))
        return [part for part in (f"{self.title}  epoch {epoch}/{self.epochs}", self.error, clock) if part]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield one line that fits: with a bar, then as many details as there is room for."""
        epoch, *others = self._essentials()
        room = options.max_width - len(epoch) - sum(2 + len(part) for part in others)
        width = min(BAR_WIDTH, room - 2)
        line = Text(epoch, style="bold", no_wrap=True, overflow="ellipsis", end="")
        if width > 0:
            full, sign = width * self.done // self.total, "-" if options.ascii_only else "━"
            line.append("  ").append(sign * full, "bar.complete").append(sign * (width - full), "bar.back")
            room -= 2 + width
        shown = [*others]
        for detail in self.details:
            room -= 2 + len(detail)
            if room < 0:
                break
            shown.append(detail)
        yield line.append("".join(f"  {part}" for part in shown), "not bold")


def _details(terms: dict[str, float], images_per_second: float) -> list[str]:
    return [*(f"{name} {value:.3f}" for name, value in terms.items()), f"{images_per_second:.0f} images/s"]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

"""Lines of progress: what fits into a terminal's width, and how many a file gets."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from coterie.training.progress import ProgressReporter

TERMS = {"loss": 1.25, "ce_peers": 0.75, "distil_ensemble": 0.25, "distil_mean": 0.125}


class Meter:
    """The means of the same terms at every step."""

    images, seconds = 100, 1.0

    def means(self) -> dict[str, float]:
        return TERMS


def record(error: float) -> dict[str, Any]:
    return {
        "predictors": {"mean1": {"error": error, "balanced_error": error}},
        "deployed": "mean1",
        "terms": TERMS,
        "time": {"images_per_second": 594.2, "memory": 2**29},
    }


def train(
    epochs: int, per_epoch: int, every: int = 1, width: int = 80, terminal: bool = False, done: int = 0
) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=terminal, color_system=None)
    with ProgressReporter("PCL", epochs, per_epoch, done, console=console) as reporter:
        for epoch in range(done // per_epoch, epochs):
            for _ in range(per_epoch):
                reporter.step(Meter())  # type: ignore[arg-type]
            if (epoch + 1) % every == 0 or epoch + 1 == epochs:
                reporter.epoch(record(100 - epoch))
    return file.getvalue()


@pytest.mark.parametrize(
    ("epochs", "per_epoch", "every"),
    [(300, 5, 1), (15, 4, 1), (3, 40, 1), (1, 1000, 1), (300, 2, 7), (20, 10, 20)],
)
def test_a_file_gets_a_line_per_tenth(epochs: int, per_epoch: int, every: int) -> None:
    lines = train(epochs, per_epoch, every).splitlines()
    assert len(lines) == 10, lines
    epochs_shown = [int(line.split("epoch ")[1].split("/")[0]) for line in lines]
    expected = [epochs * tenth / 10 for tenth in range(1, 11)]
    for epoch, tenth in zip(epochs_shown, expected, strict=True):
        assert tenth <= epoch <= tenth + max(every, 1) + 1  # the first record, or step, after each tenth
    assert lines[-1].startswith(f"PCL  epoch {epochs}/{epochs}  error {101 - epochs:.2f} %  done  loss 1.250  ")
    assert lines[-1].endswith("594 images/s  0.50 GB")


def test_records_rather_than_steps_are_printed_where_a_tenth_has_one() -> None:
    lines = train(300, 5).splitlines()
    assert [line.split("  ")[1:3] for line in lines] == [
        [f"epoch {epoch}/300", f"error {101 - epoch:.2f} %"] for epoch in range(30, 301, 30)
    ]


def test_a_training_that_is_continued_prints_the_tenths_that_are_left() -> None:
    lines = train(300, 5, done=150 * 5).splitlines()
    assert [line.split("  ")[1] for line in lines] == [f"epoch {epoch}/300" for epoch in range(180, 301, 30)]


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (200, "PCL  epoch 2/2  BAR  error 99.00 %  done  loss 1.250  ce_peers 0.750  distil_ensemble 0.250  "
              "distil_mean 0.125  594 images/s  0.50 GB"),
        (80, "PCL  epoch 2/2  BAR  error 99.00 %  done  loss 1.250"),
        (50, "PCL  epoch 2/2  ━━━━━━━━━━━━━  error 99.00 %  done"),
        (30, "PCL  epoch 2/2  error 99.00 %…"),
    ],
)  # fmt: skip
def test_a_terminal_shows_error_and_time_first_and_drops_terms_without_room(width: int, line: str) -> None:
    output = train(2, 5, width=width, terminal=True)
    frames = [
        frame for frame in output.replace("\x1b[2K", "\n").replace("\r", "\n").splitlines() if "PCL" in frame
    ]
    last = frames[-1].replace("\x1b[?25l", "").replace("\x1b[?25h", "")
    assert last == line.replace("BAR", "━" * 24) and len(last) <= width

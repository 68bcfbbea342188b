"""The curves of a report as CSV, for other programs to draw."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from ..errors import printable
from ..runs.reader import Record
from .groups import Group

KEYS = ("run", "setting", "method", "seed", "epoch", "predictor")
PARTS = ("terms", "diversity", "agreement", "time")
"""What a record has besides scores and the learning rate: one number for all predictors."""


def curves_csv(groups: Sequence[Group]) -> str:
    """Return a line for each run, epoch and predictor: the predictor's scores, then what the epoch has besides.

    Columns that a record does not have are empty. Numbers are complete.
    """
    lines = [line for g in groups for line in _lines(g)]
    scores = dict.fromkeys(name for line in lines for name in line if "." not in name and name not in KEYS)
    others = dict.fromkeys(name for line in lines for name in line if "." in name)
    file = io.StringIO()
    writer = csv.DictWriter(file, [*KEYS, *scores, *others], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return printable(file.getvalue(), lines=True)


def _lines(g: Group) -> Iterator[dict[str, object]]:
    for run in g.runs:
        for record in run.records:
            epoch = _of_the_epoch(record)
            for name, scores in record["predictors"].items():
                keys = (run.path, g.setting, g.label, run.seed, record["epoch"] + 1, name)
                yield dict(zip(KEYS, keys, strict=True)) | scores | epoch


def _of_the_epoch(record: Record) -> dict[str, object]:
    """Return `terms.loss`, `diversity.peer` and the like, and the learning rate."""
    values = {f"{part}.{name}": value for part in PARTS for name, value in record[part].items()}
    return {"schedule.lr": record["lr"], **values}

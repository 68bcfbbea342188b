"""Selection by held-out images: which record of a run is the best, and for how long none was better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

Record = dict[str, Any]
SelectName = Literal["last", "best"]
SELECTED = "selected on held-out images"
"""The mark of every result that `select` best has chosen."""
NETWORKS_TO_DEPLOY = ("peer1", "mean1")
"""Raw and averaged weights of the first peer: where a record has both, the better one is selected."""


def best_record(records: Sequence[Record]) -> Record:
    """Return the record with the lowest error of a network to deploy, which its `deployed` then names.

    At equal errors the lower NLL decides, then the earlier record, then the network that the method deploys.
    """
    return _with_better_network(min(records, key=lambda record: _rank(_with_better_network(record))))


def evaluations_since_best(records: Sequence[Record]) -> int:
    """Return how many evaluations there were after the best one."""
    best = best_record(records)["epoch"]
    return sum(record["epoch"] > best for record in records)


def deployed_record(records: Sequence[Record], select: SelectName) -> Record:
    """Return the record of the weights that a run deploys: the last, or the best."""
    return best_record(records) if select == "best" else records[-1]


def patience_is_over(records: Sequence[Record], patience: int | None) -> bool:
    """Tell whether so many evaluations in a row brought no better error."""
    return patience is not None and len(records) > 0 and evaluations_since_best(records) >= patience


def early_stop_sentence(trained: int, epochs: int | None, patience: int | None) -> str:
    """Say that and why a training ended before its last epoch."""
    return (
        f"stopped after epoch {trained} of {epochs}: no better held-out error in {patience} "
        f"evaluation{'' if patience == 1 else 's'}"
    )


def errors_sentence(select: SelectName) -> str:
    """Say in a table of errors what they are errors of."""
    if select == "last":
        return "Errors are those after the last epoch."
    return (
        "Each run's weights were selected on the held-out images (`--select best`). The errors are on the same "
        "images and so a little too low; `coterie evaluate RUN` scores the test images."
    )


def _with_better_network(record: Record) -> Record:
    """Return the record with the better of the networks to deploy as `deployed`."""
    names = [record["deployed"], *(name for name in NETWORKS_TO_DEPLOY if name in record["predictors"])]
    return min(({**record, "deployed": name} for name in names), key=_rank)


def _rank(record: Record) -> tuple[float, float]:
    """Return what orders records, smallest first; scores that are no numbers come last."""
    scores = record["predictors"][record["deployed"]]
    rank = (float(scores["error"]), float(scores.get("nll", math.inf)))
    return rank if not any(map(math.isnan, rank)) else (math.inf, math.inf)

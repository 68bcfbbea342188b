"""How large an ensemble is: Table 3's other column."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from .. import models
from ..experiments.job import Job
from ..methods import available
from ..peers.cost import parameters
from ..peers.cuts import default_cut
from ..peers.net import PeerNet


def ensemble_parameters(job: Job, data: Mapping[str, Any]) -> float | None:
    """Millions, of all peers of a job with their head, for data as a run's data.json describes it."""
    if not data:
        return None
    given = {key.removeprefix("method."): v for key, v in job.options.items() if key.startswith("method.")}
    method, model = str(job.options["method"]), str(job.options["model"])
    return _counted(method, tuple(given.items()), model, job.peers, len(data["classes"]), tuple(data["shape"]))


@cache  # seeds do not differ in it, and a page that is watched is made again and again
def _counted(
    method: str,
    given: tuple[tuple[str, Any], ...],
    model: str,
    peers: int,
    classes: int,
    shape: tuple[int, int, int],
) -> float:
    channels, *size = shape
    make = models.factory(model, classes, channels, size=(size[0], size[1]), fresh=False)
    example = torch.zeros(2, *shape)
    net = PeerNet(make, peers, default_cut(make(), example), example)
    return parameters(available()[method](net, **dict(given)).predictors()["ensemble"]) / 1e6

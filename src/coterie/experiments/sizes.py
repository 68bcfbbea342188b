"""How large an ensemble is: Table 3's other column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .. import models
from ..costs import parameters
from ..cuts import default_cut
from ..methods import available
from ..peers import PeerNet
from .jobs import Job


def ensemble_parameters(job: Job, data: Mapping[str, Any]) -> float | None:
    """Millions, of all peers of a job with their head, for data as a run's data.json describes it."""
    if not data:
        return None
    channels, height, width = data["shape"]
    name = str(job.options["model"])
    make = models.factory(name, len(data["classes"]), channels, size=(height, width), fresh=False)
    example = torch.zeros(2, channels, height, width)
    net = PeerNet(make, job.peers, default_cut(make(), example), example)
    given = {key.removeprefix("method."): v for key, v in job.options.items() if key.startswith("method.")}
    return parameters(available()[job.options["method"]](net, **given).predictors()["ensemble"]) / 1e6

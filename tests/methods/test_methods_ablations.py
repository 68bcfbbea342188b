"""Each row of Table 2 and Fig. 5 is one command: the options exist and give the terms and predictors they name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from coterie.config.options import from_options

P_E = {"peer_teacher": "none"}
CE_T = {**P_E, "distil_ensemble": False}
CE_P = {**CE_T, "ensemble": "none"}
ALL = {"ce_peers", "ce_ensemble", "distil_ensemble", "distil_mean"}
# row: options of PCL, number of peers, terms that are not 0, what is deployed, how many views
ROWS: dict[str, tuple[dict[str, Any], int, set[str], str, int]] = {
    "+ L_ce^p": (CE_P, 3, {"ce_peers"}, "peer1", 3),
    "+ L_ce^t": (CE_T, 3, {"ce_peers", "ce_ensemble"}, "peer1", 3),
    "+ L_pe": (P_E, 3, ALL - {"distil_mean"}, "peer1", 3),
    "full": ({}, 3, ALL, "mean1", 3),
    "mutual distillation": ({"peer_teacher": "mutual"}, 3, ALL, "peer1", 3),
    "traditional mean model": ({"peer_teacher": "own_mean"}, 3, ALL, "mean1", 3),
    "logit sum": ({"ensemble": "sum"}, 3, ALL, "mean1", 3),
    "w/o InAu": ({"input_augmentation": False}, 3, ALL, "mean1", 1),
    **{f"{m} peers": ({}, m, ALL, "mean1", m) for m in (2, 4, 5, 6)},
}


@pytest.mark.parametrize("row", ROWS)
def test_row(row: str) -> None:
    options, peers, terms, deployed, views = ROWS[row]
    recipe = from_options(
        {
            "method": {"class_path": "PCL", "init_args": options},
            "model": "resnet8",
            "peers": peers,
            "data": {"class_path": "digits", "init_args": {"limit": 4}},
            "batch": 20,
            "ema": True,
        }
    )
    method = recipe.build()
    for p in method.mean_method.parameters():  # mean teachers that differ from their peers
        p.mul_(0.9)
    images = [torch.randn(4, *recipe.data.shape) for _ in range(method.views)]
    values = method(images if len(images) > 1 else images[0], torch.arange(4), 80)
    assert {name for name, value in values.items() if value != 0} - {"loss"} == terms
    assert method.deployed == deployed and method.views == views
    assert {f"{kind}{j}" for kind in ("peer", "mean") for j in range(1, peers + 1)} <= set(method.predictors())
    assert ("ensemble" in method.predictors()) == (row != "+ L_ce^p")

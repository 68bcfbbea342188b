"""Peer diversity (Fig. 4) and agreement of every method with several peers, raw and averaged, against NumPy."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from coterie.methods import available
from coterie.metrics.evaluate import evaluate
from tests.helpers.reference import softmax
from tests.methods.test_methods_training import VARIANTS, build_method, steps

MANY = [v for v, (name, _) in VARIANTS.items() if available()[name].trains != "one network"]


@pytest.mark.parametrize("variant", MANY)
def test_diversity_and_agreement(variant: str) -> None:
    """Among all m branches, OKDDip's leader included: Fig. 4 takes every two branches."""
    method = build_method(variant, 3)
    if method.mean is None:
        method.keep_mean(0.5)
    steps(method, 3)
    batches = [(torch.randn(n, 3, 8, 8), torch.randint(5, (n,))) for n in (7, 4)]  # of unequal size
    result = evaluate(method, batches)
    method.eval()
    for kind in ("peer", "mean"):
        distances, agreements = [], []
        for images, _ in batches:
            with torch.no_grad():
                z = [method.predictors()[f"{kind}{j}"](images).double().numpy() for j in (1, 2, 3)]
            for a, b in combinations(z, 2):
                distances.append(np.sqrt(((softmax(a) - softmax(b)) ** 2).sum(1)))
                agreements.append(a.argmax(1) == b.argmax(1))
        assert result["diversity"][kind] == pytest.approx(np.concatenate(distances).mean(), rel=1e-4)
        assert result["agreement"][kind] == pytest.approx(np.concatenate(agreements).mean())

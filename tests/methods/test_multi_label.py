"""Several labels an image: every method's terms against NumPy, with mixed targets, smoothing and class weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import coterie
from coterie.errors import InputError
from coterie.methods import available
from coterie.methods.cross_entropy import CrossEntropy
from coterie.methods.task import MULTI_LABEL, SINGLE_LABEL
from coterie.peers.net import PeerNet, Peers
from tests.helpers.common import TinyNet
from tests.helpers.outputs import BATCH, CLASSES, M, build, ensemble, outputs
from tests.helpers.reference import Array, binary_kl, binary_losses, ramp, sigmoid, softmax

EPOCH, T = 30.5, 3.0
W = ramp(EPOCH, 80)
WEIGHTS = np.array([0.5, 2.0, 1.0, 0.0, 3.0])


def targets_of(kind: str) -> tuple[Tensor, Array]:
    """Return targets for torch and for NumPy: zeros and ones, fractions, or class numbers."""
    if kind == "numbers":
        labels = torch.randint(CLASSES, (BATCH,))
        return labels, np.eye(CLASSES)[labels.numpy()]
    rows = (torch.rand(BATCH, CLASSES) < 0.4).double()
    rows[0] = 0  # an image may have no label
    if kind == "mixed":
        rows = 0.3 * rows + 0.7 * rows[torch.randperm(BATCH)]
    return (rows.to(torch.uint8) if kind == "plain" else rows), rows.numpy()


def attended(method: Any, peers: Peers, z: list[Array]) -> list[Array]:
    """Return OKDDip's targets t_a of the peers, which are all branches but the first."""
    q, k = method.query.weight.detach().numpy(), method.key.weight.detach().numpy()
    features = [f.detach().numpy() for f in peers.features]
    rows = []
    for a in range(1, M):
        scores = [np.sum((features[a] @ q.T) * (features[b] @ k.T), axis=1) for b in range(1, M)]
        attention = softmax(np.stack(scores, axis=1))
        rows.append(sum(attention[:, b - 1 : b] * z[b] for b in range(1, M)))
    return rows


def kdcl_teacher(kind: str, z: list[Array], y: Array) -> Array:
    """Return z_t: image by image the network of the lowest loss, the mean, or class by class the surest answer."""
    if kind == "mean":
        return np.mean(z, axis=0)
    teacher = np.empty_like(z[0])
    for i in range(BATCH):
        if kind == "naive":
            losses = [binary_losses(a[i : i + 1], y[i : i + 1], np.ones(CLASSES))[0] for a in z]
            teacher[i] = z[int(np.argmin(losses))][i]
            continue
        for c in range(CLASSES):  # KDCL-MinLogit of two answers with the logits z/2 and -z/2
            pairs = np.array([[a[i, c] / 2, -a[i, c] / 2] for a in z])
            of_target = pairs @ np.array([y[i, c], 1 - y[i, c]])
            yes, no = (pairs - of_target[:, None]).min(0)
            teacher[i, c] = yes - no
    return teacher


def expected_terms(name: str, method: Any, peers: Peers, z: list[Array], y: Array, ce: Any, kd: Array) -> Any:
    m, kl = len(z), binary_kl
    total = sum(map(ce, z))
    others = sum(kl(z[k], z[j], T) for j in range(m) for k in range(m) if k != j) / max(1, m - 1)
    if name == "Baseline":
        return {"ce": ce(z[0])}
    if name == "KD":
        return {"ce": ce(z[0]), "distil": kl(kd, z[0], T)}
    if name == "OwnMean":
        return {"ce": ce(z[0]), "distil_mean": kl(kd, z[0], T)}
    if name == "DML":
        return {"ce_peers": total, "distil_peers": others}
    if name == "CL":
        means = [np.mean([z[j] for j in range(m) if j != h], axis=0) for h in range(m)]
        return {"ce_peers": total, "distil_peers": W * sum(kl(means[h], z[h], T) for h in range(m))}
    if name == "KDCL":
        teacher = kdcl_teacher(method.teacher, z, y)
        return {"ce_peers": total, "distil_ensemble": sum(kl(teacher, a, T) for a in z)}
    if name == "OKDDip":
        taught = zip(attended(method, peers, z), z[1:], strict=True)
        return {
            "ce_peers": sum(map(ce, z[1:])),
            "ce_leader": ce(z[0]),
            "distil_peers": W * sum(kl(t, a, T) for t, a in taught),
            "distil_leader": W * kl(np.mean(z[1:], axis=0), z[0], T),
        }
    head = ensemble(name, method, peers)
    taught_by_head = W * sum(kl(head, a, T) for a in z)
    if name == "FFL":
        mean = W * kl(np.mean(z, axis=0), head, T)
        return {"ce_peers": total, "ce_fused": ce(head), "distil_fused": taught_by_head, "distil_mean": mean}
    terms = {"ce_peers": total, "ce_ensemble": ce(head), "distil_ensemble": taught_by_head}
    return terms if name == "ONE" else {**terms, "distil_mean": W * others}


CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in ("Baseline", "KD", "DML", "CL", "ONE", "FFL", "OKDDip", "OwnMean", "KDCL", "PCL")),
    ("KDCL", {"teacher": "mean"}),
    ("KDCL", {"teacher": "min_logit"}),
]


@pytest.mark.parametrize("kind", ["plain", "mixed", "numbers"])
@pytest.mark.parametrize(("smoothing", "weighted"), [(0.0, False), (0.0, True), (0.1, False), (0.1, True)])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_terms(name: str, options: dict[str, Any], kind: str, smoothing: float, weighted: bool) -> None:
    peers, leaves = outputs(1 if name in ("Baseline", "KD", "OwnMean") else M)
    teacher = TinyNet().double()
    method = build(name, peers, teacher, **options)
    weights = WEIGHTS if weighted else np.ones(CLASSES)
    class_weights = WEIGHTS.tolist() if weighted else None
    method.cross_entropy = CrossEntropy(smoothing, class_weights, task="multi_label").double()
    targets, y = targets_of(kind)
    views = [torch.zeros(BATCH, 3, 8, 8, dtype=torch.float64)] * method.views
    terms = method(views, targets, EPOCH)
    z = [leaf.detach().numpy() for leaf in leaves]
    with torch.no_grad():
        kd = teacher.eval()(views[0]).numpy()

    def ce(logits: Array) -> float:
        return float(binary_losses(logits, (1 - smoothing) * y + smoothing / 2, weights).mean())

    expected = expected_terms(name, method, peers, z, y, ce, kd)
    assert {k: v.item() for k, v in terms.items() if k != "loss"} == pytest.approx(expected, rel=1e-6)
    assert terms["loss"].item() == pytest.approx(sum(expected.values()), rel=1e-6)


def test_every_method_is_tested_here_or_refuses() -> None:
    assert {name for name, _ in CASES} | {"MCL"} == set(available())
    method = coterie.MCL(PeerNet(TinyNet, 2))
    method.cross_entropy = CrossEntropy(task="multi_label")
    for targets in (torch.zeros(4, CLASSES), torch.zeros(4, dtype=torch.int64)):
        with pytest.raises(InputError, match="MCL compares classes"):
            method(torch.randn(4, 3, 8, 8), targets, 0)


def test_the_gradient_is_sigmoid_minus_target() -> None:
    z, (targets, y) = torch.randn(BATCH, CLASSES, dtype=torch.float64, requires_grad=True), targets_of("mixed")
    MULTI_LABEL.loss(z, targets).sum().backward()
    np.testing.assert_allclose(z.grad, sigmoid(z.detach().numpy()) - y, atol=1e-12)
    taught = torch.randn(BATCH, CLASSES, dtype=torch.float64, requires_grad=True)
    MULTI_LABEL.divergence(z.detach(), taught, T).sum().backward()
    difference = sigmoid(taught.detach().numpy(), T) - sigmoid(z.detach().numpy(), T)
    np.testing.assert_allclose(taught.grad, difference / T, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_extreme_logits_stay_finite(dtype: torch.dtype) -> None:
    z = torch.tensor([[1e4, -1e4], [-1e4, 1e4]], dtype=dtype, requires_grad=True)
    loss = MULTI_LABEL.loss(z, torch.tensor([[0, 1], [1, 0]])).sum() + MULTI_LABEL.distil_loss(-z.detach(), z, T)
    loss.backward()
    assert loss.dtype == torch.float32 and torch.isfinite(loss) and torch.isfinite(z.grad).all()


def test_probabilities_and_decisions() -> None:
    z = torch.tensor([[2.0, -1.0, 0.5], [-3.0, -2.0, -1.0]])
    np.testing.assert_allclose(MULTI_LABEL.probabilities(z), sigmoid(z.numpy().astype(float)), rtol=1e-6)
    assert MULTI_LABEL.decisions(z).tolist() == [[True, False, True], [False, False, False]]
    thresholds = torch.tensor([0.9, 0.2, 0.5])  # sigmoid(2) is 0.88, sigmoid(-1) is 0.27
    assert MULTI_LABEL.decisions(z, thresholds).tolist() == [[False, True, True], [False, False, False]]
    assert SINGLE_LABEL.decisions(z).tolist() == [0, 2]


@pytest.mark.parametrize(
    ("targets", "says"),
    [
        (torch.tensor([[0.0, 1.2], [0.0, 1.0]]), "from 0 to 1"),
        (torch.tensor([[0.0, float("nan")], [0.0, 1.0]]), "from 0 to 1"),
        (torch.tensor([[0, 2], [0, 1]]), "from 0 to 1"),
        (torch.tensor([[0, 1, 1], [0, 1, 1]]), "3 classes, but there are 2"),
        (torch.tensor([0, 2]), "from 0 to 1, not 0 to 2"),
        (torch.zeros(3, 2), "not of shape"),
    ],
)
def test_bad_targets(targets: Tensor, says: str) -> None:
    with pytest.raises(InputError, match=says):
        MULTI_LABEL.checked(targets, 2, 2)


def test_an_unknown_task() -> None:
    with pytest.raises(InputError, match="multi_label"):
        CrossEntropy(task="multilabel")  # type: ignore[arg-type]

"""Soft targets, label smoothing and class weights: every method against NumPy, gradients included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import coterie
from coterie.errors import InputError
from coterie.methods import available
from coterie.methods.cross_entropy import CrossEntropy
from coterie.methods.losses import cross_entropy, reduce
from coterie.peers.net import PeerNet
from tests.helpers.common import TinyNet
from tests.helpers.outputs import BATCH, CLASSES, M, build, ensemble, outputs
from tests.helpers.reference import Array, kl, ramp, softmax

EPOCH, T = 30.5, 3.0
W = ramp(EPOCH, 80)
WEIGHTS = np.array([0.5, 2.0, 1.0, 0.0, 3.0])
SMOOTHING = 0.1


def np_ce(z: Array, y: Array, weights: Array, smoothing: float, hard: bool) -> float:
    """As torch.nn.CrossEntropyLoss: divided by the images' weights or, for probabilities, by their number."""
    smoothed = (1 - smoothing) * y + smoothing / CLASSES
    total = 0.0
    for i in range(len(z)):
        for c in range(CLASSES):
            total -= weights[c] * smoothed[i, c] * np.log(softmax(z[i])[c])
    return total / (sum(float(weights @ row) for row in y) if hard else len(z))


def loss_of(
    name: str, z: list[Array], teachers: dict[str, Any], ce: Callable[[Array], float], y: Array
) -> dict[str, float]:
    """The terms of a method as NumPy computes them; `teachers` are what no gradient flows through."""
    m = len(z)
    peers = sum(ce(z[j]) for j in range(m))
    if name == "Baseline":
        return {"ce": ce(z[0])}
    if name == "KD":
        return {"ce": ce(z[0]), "distil": kl(teachers["network"], z[0], T)}
    if name == "OwnMean":
        return {"ce": ce(z[0]), "distil_mean": kl(teachers["network"], z[0], T)}
    if name == "DML":
        others = sum(kl(teachers["z"][k], z[j], T) for j in range(m) for k in range(m) if k != j)
        return {"ce_peers": peers, "distil_peers": others / (m - 1)}
    if name == "CL":
        means = [np.mean([teachers["z"][j] for j in range(m) if j != h], axis=0) for h in range(m)]
        return {"ce_peers": peers, "distil_peers": W * sum(kl(means[h], z[h], T) for h in range(m))}
    if name == "KDCL":  # by the target as it is, neither smoothed nor weighted
        best = np.empty_like(z[0])
        for i in range(len(best)):
            losses = [-float(y[i] @ np.log(softmax(teachers["z"][k][i]))) for k in range(m)]
            best[i] = teachers["z"][int(np.argmin(losses))][i]
        return {"ce_peers": peers, "distil_ensemble": sum(kl(best, z[j], T) for j in range(m))}
    if name == "PCL":
        t = teachers["ensemble"]
        mutual = sum(kl(teachers["z"][k], z[j], T) for j in range(m) for k in range(m) if k != j) / (m - 1)
        return {
            "ce_peers": peers,
            "ce_ensemble": ce(t),
            "distil_ensemble": W * sum(kl(t, z[j], T) for j in range(m)),
            "distil_mean": W * mutual,
        }
    raise AssertionError(name)


def targets_of(kind: str) -> tuple[Tensor, Array]:
    labels = torch.randint(CLASSES, (BATCH,))
    if kind == "hard":
        return labels, np.eye(CLASSES)[labels.numpy()]
    soft = torch.softmax(2 * torch.randn(BATCH, CLASSES, dtype=torch.float64), 1)
    return soft, soft.numpy()


recipes = pytest.mark.parametrize("kind", ["hard", "soft"])
weighing = pytest.mark.parametrize(
    ("smoothing", "weighted"), [(0.0, False), (0.0, True), (SMOOTHING, False), (SMOOTHING, True)]
)


@recipes
@weighing
@pytest.mark.parametrize("name", ["Baseline", "KD", "DML", "CL", "KDCL", "OwnMean", "PCL"])
def test_terms_and_gradients(name: str, kind: str, smoothing: float, weighted: bool) -> None:
    """Terms by formula; gradients of the logits by central differences of the same formula."""
    m = 1 if name in ("Baseline", "KD", "OwnMean") else M
    peers, leaves = outputs(m)
    teacher = TinyNet().double()
    method = build(name, peers, teacher)
    weights = WEIGHTS if weighted else np.ones(CLASSES)
    method.cross_entropy = CrossEntropy(smoothing, WEIGHTS.tolist() if weighted else None).double()
    targets, y = targets_of(kind)
    views = [torch.zeros(BATCH, 3, 8, 8, dtype=torch.float64)] * method.views
    terms = method(views, targets, EPOCH)
    hard = kind == "hard" and weighted
    z = [leaf.detach().numpy().copy() for leaf in leaves]
    fixed: dict[str, Any] = {"z": [a.copy() for a in z]}
    with torch.no_grad():
        fixed["network"] = teacher.eval()(views[0]).numpy()
    if name == "PCL":
        fixed["ensemble"] = ensemble(name, method, peers)

    def ce(logits: Array) -> float:
        return np_ce(logits, y, weights, smoothing, hard)

    expected = loss_of(name, z, fixed, ce, y)
    assert {k: v.item() for k, v in terms.items() if k != "loss"} == pytest.approx(expected, rel=1e-6)
    gradients = torch.autograd.grad(terms["loss"], leaves)
    step = 1e-5
    for j, i, c in [(j, i, c) for j in range(m) for i in (0, BATCH - 1) for c in (0, 2, 3)]:
        sides = []
        for sign in (1, -1):
            moved = [a.copy() for a in z]
            moved[j][i, c] += sign * step
            sides.append(sum(loss_of(name, moved, fixed, ce, y).values()))
        numeric = (sides[0] - sides[1]) / (2 * step)
        assert gradients[j][i, c].item() == pytest.approx(numeric, rel=1e-4, abs=1e-7), (j, i, c)


@recipes
@weighing
@pytest.mark.parametrize("name", ["ONE", "FFL", "OKDDip"])
def test_methods_with_heads(name: str, kind: str, smoothing: float, weighted: bool) -> None:
    """Their cross-entropy terms by formula; gradients against the loss written with torch's own functions."""
    peers, leaves = outputs(M)
    method = build(name, peers, TinyNet())
    weight = torch.tensor(WEIGHTS) if weighted else None
    method.cross_entropy = CrossEntropy(smoothing, weight).double()
    targets, y = targets_of(kind)
    terms = method(torch.zeros(BATCH, 3, 8, 8, dtype=torch.float64), targets, EPOCH)
    weights, hard = (WEIGHTS if weighted else np.ones(CLASSES)), kind == "hard" and weighted
    z = [leaf.detach().numpy() for leaf in leaves]
    branches = z[1:] if name == "OKDDip" else z
    total = sum(np_ce(a, y, weights, smoothing, hard) for a in branches)
    assert terms["ce_peers"].item() == pytest.approx(total, rel=1e-6)
    if name == "OKDDip":
        leader = np_ce(z[0], y, weights, smoothing, hard)
        assert terms["ce_leader"].item() == pytest.approx(leader, rel=1e-6)
    else:
        fused = np_ce(ensemble(name, method, peers), y, weights, smoothing, hard)
        assert terms["ce_ensemble" if name == "ONE" else "ce_fused"].item() == pytest.approx(fused, rel=1e-6)
    named = [term for term in terms if term.startswith("ce_")]
    ours = torch.autograd.grad(sum(terms[term] for term in named), leaves, retain_graph=True)

    def theirs(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits, targets, weight=weight, label_smoothing=smoothing)

    loss = sum(theirs(logits) for logits in peers.logits)
    if name != "OKDDip":
        loss = loss + theirs(method.ensemble(peers))
    for a, b in zip(ours, torch.autograd.grad(loss, leaves), strict=True):
        torch.testing.assert_close(a, b)


@recipes
@weighing
def test_cross_entropy_is_torch_s(kind: str, smoothing: float, weighted: bool) -> None:
    z = torch.randn(2, BATCH, CLASSES, dtype=torch.float64)
    targets, _ = targets_of(kind)
    weight = torch.tensor(WEIGHTS) if weighted else None
    ours = CrossEntropy(smoothing, weight).double()(z, targets)
    theirs = sum(F.cross_entropy(a, targets, weight=weight, label_smoothing=smoothing) for a in z)
    torch.testing.assert_close(ours, theirs)
    each = cross_entropy(z, targets, weight, smoothing)
    assert each.shape == (2, BATCH)


def simple(name: str) -> Any:
    """A method with its default options."""
    cls: Any = available()[name]
    net = PeerNet(TinyNet, 1 if cls.trains == "one network" else M, "stage3" if cls.trains == "branches" else None)
    return cls(net, **({"teacher": TinyNet()} if name == "KD" else {}))


def test_one_hot_probabilities_are_class_numbers() -> None:
    """Of every method that takes both."""
    labels = torch.randint(CLASSES, (8,))
    for name, cls in available().items():
        if not cls.soft_targets:
            continue
        torch.manual_seed(0)
        net = PeerNet(
            TinyNet, 1 if cls.trains == "one network" else M, "stage3" if cls.trains == "branches" else None
        )
        method = cls(net, **({"teacher": TinyNet()} if name == "KD" else {})).eval()  # type: ignore[arg-type]
        views = [torch.randn(8, 3, 8, 8) for _ in range(method.views)]
        hard, soft = (method(views, y, 2.5) for y in (labels, F.one_hot(labels, CLASSES).float()))
        assert {k: v.item() for k, v in hard.items()} == pytest.approx(
            {k: v.item() for k, v in soft.items()}, rel=1e-5
        )


def test_min_logit_of_probabilities() -> None:
    peers, leaves = outputs(M)
    method = coterie.KDCL(PeerNet(TinyNet, M), teacher="min_logit").double()
    method.net.forward = lambda *args, **kwargs: peers  # type: ignore[method-assign]
    targets, y = targets_of("soft")
    z = [leaf.detach().numpy() for leaf in leaves]
    teacher = np.min([a - (a * y).sum(1, keepdims=True) for a in z], axis=0)
    term = method([torch.zeros(BATCH, 3, 8, 8)] * M, targets, 0)["distil_ensemble"].item()
    assert term == pytest.approx(sum(kl(teacher, a, T) for a in z), rel=1e-6)


def test_reduce_averages_images_and_sums_the_rest() -> None:
    values = torch.arange(12.0).view(2, 2, 3)
    assert reduce(values).item() == values.mean(-1).sum().item()
    assert reduce(values, count=2.0, scale=3.0).item() == pytest.approx(3 * values.sum().item() / 2)


@pytest.mark.parametrize(
    ("targets", "says"),
    [
        (torch.tensor([[1.5, -0.5, 0, 0, 0]] * 4), "must not be negative"),
        (torch.full((4, CLASSES), 0.1), "must sum to 1"),
        (torch.full((4, CLASSES), torch.nan), "must not be negative or NaN"),
        (torch.full((4, CLASSES), 0.1984), "must sum to 1"),
        (torch.full((4, 6), 1 / 6), "6 classes, but there are 5"),
        (torch.full((3, CLASSES), 0.2), r"not of shape \(3, 5\)"),
        (torch.zeros(4), "Class numbers must be integers"),
        (torch.zeros(4, CLASSES).long(), "Probabilities must be floating-point"),
        (torch.zeros(4, 1, 1), "not of shape"),
    ],
)
def test_bad_targets(targets: Tensor, says: str) -> None:
    method = coterie.Baseline(PeerNet(TinyNet, 1))
    with pytest.raises(InputError, match=says) as refused:
        method(torch.randn(4, 3, 8, 8), targets, 0)
    assert isinstance(refused.value, ValueError)  # as a PyTorch user expects it


def test_mcl_wants_classes() -> None:
    method = coterie.MCL(PeerNet(TinyNet, 2), width=4)
    with pytest.raises(InputError, match="MCL compares classes: its targets must be class numbers"):
        method(torch.randn(4, 3, 8, 8), torch.full((4, CLASSES), 0.2), 0)


@pytest.mark.parametrize("name", list(available()))
def test_a_wrong_number_of_views_is_refused(name: str) -> None:
    method = simple(name)
    view, labels = torch.randn(4, 3, 8, 8), torch.arange(4)
    for count in {1, 2, 3, 4} - {method.views}:
        with pytest.raises(
            InputError, match=rf"{name} takes (one view|{method.views} views) of each image, not {count}: pass"
        ):
            method([view] * count, labels, 0)
    method([view] * method.views, labels, 0)
    if method.views == 1:
        method(view, labels, 0)

"""Every method trains: three steps, its state, its networks, its averages, and numbers at the edge."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from coterie import PeerNet
from coterie.methods import Method, available
from coterie.peers.cost import parameters
from coterie.peers.net import Peers
from tests.helpers.common import TinyNet
from tests.helpers.device import find_device

ENSEMBLES = {"PCL", "ONE", "FFL", "OKDDip", "DML", "MCL"}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in available()},
    "OKDDip-E": ("OKDDip", {"leader": False}),
    "CL, original": ("CL", {"ce_weight": 0.5, "weight": 0.5, "temperature": 2.0, "ramp_up": 0}),
    "KDCL, mean": ("KDCL", {"teacher": "mean"}),
    "KDCL, min_logit": ("KDCL", {"teacher": "min_logit"}),
    "Baseline, 3 views": ("Baseline", {"views": 3}),
    "PCL, mutual": ("PCL", {"peer_teacher": "mutual"}),
    "PCL, own mean": ("PCL", {"peer_teacher": "own_mean"}),
    "PCL, taught": ("PCL", {"mean_view": "taught"}),
    "PCL, sum": ("PCL", {"ensemble": "sum"}),
    "PCL, CE only": ("PCL", {"ensemble": "none", "peer_teacher": "none"}),
    "PCL, joint": ("PCL", {"joint_trunk": True}),
    "PCL, no InAu": ("PCL", {"input_augmentation": False}),
}
every = pytest.mark.parametrize("variant", VARIANTS)


def build_method(variant: str, m: int = 3) -> Method:
    name, options = VARIANTS[variant]
    cls: Callable[..., Method] = available()[name]
    trains = available()[name].trains
    example = torch.zeros(2, 3, 8, 8)  # small images: the dry run is most of a test's time
    net = PeerNet(
        TinyNet, 1 if trains == "one network" else m, "stage3" if trains == "branches" else None, example
    )
    method = cls(net, **options, **({"teacher": TinyNet(width=12)} if name == "KD" else {}))
    return method.to(find_device())


def batch(method: Method, size: int = 8, **kind: Any) -> tuple[Tensor | list[Tensor], Tensor]:
    device = find_device()
    views = [torch.randn(size, 3, 8, 8, **kind).to(device) for _ in range(method.views)]
    return (views if len(views) > 1 else views[0]), (torch.arange(size) % 5).to(device)


def steps(method: Method, count: int = 3) -> set[str]:
    """Train; returns the names of the parameters that never received a gradient."""
    method.train()
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], 0.05, momentum=0.9)
    silent = {name for name, p in method.named_parameters() if p.requires_grad}
    for epoch in range(count):
        terms = method(*batch(method), epoch)
        assert all(torch.isfinite(term) for term in terms.values()), terms
        terms["loss"].backward()
        silent -= {n for n, p in method.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
        optimizer.step()
        optimizer.zero_grad()
        method.after_step()
    return silent


@every
@pytest.mark.parametrize("m", [2, 4])
def test_three_steps_train_every_parameter(variant: str, m: int) -> None:
    method = build_method(variant, m)
    before = {name: p.clone() for name, p in method.net.named_parameters() if name.endswith("weight")}
    silent = steps(method)
    if variant == "OKDDip" and m == 2:  # one peer beside the leader listens only to itself
        silent -= {"query.weight", "key.weight"}
    assert not silent
    assert not [name for name, was in before.items() if torch.equal(was, method.net.get_parameter(name))]


@every
def test_a_step_runs_wholly_on_the_meta_device(variant: str) -> None:
    """Nothing reads a value: so no step waits for a GPU, and its cost can be counted without computing it."""
    method = build_method(variant).to("meta").train()
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], 0.05, momentum=0.9)
    views = [torch.empty(8, 3, 8, 8, device="meta") for _ in range(method.views)]
    terms = method(views, torch.empty(8, dtype=torch.long, device="meta"), 40)
    terms["loss"].backward()
    optimizer.step()
    method.after_step()
    assert all(term.is_meta and term.shape == () for term in terms.values())
    assert all(p.grad is None or p.grad.is_meta for p in method.parameters())


@every
def test_deploy_gives_the_users_own_network(variant: str) -> None:
    method = build_method(variant)
    steps(method, 1)
    student = method.deploy()
    own = TinyNet().to(find_device()).eval()
    assert type(student) is TinyNet and not student.training
    assert own.load_state_dict(student.state_dict(), strict=True)
    assert parameters(student) == parameters(own)
    method.eval()
    images = torch.randn(4, 3, 8, 8).to(find_device())
    with torch.no_grad():
        expected = method.predictors()[method.deployed](images)
        assert torch.equal(own(images), expected) and torch.equal(student(images), expected)
    assert method.deployed == ("mean1" if method.deploys_mean else "peer1")


@every
def test_state_is_saved_and_loaded(variant: str) -> None:
    """A checkpoint, read as a checkpoint is read, gives the same predictions and the same next step."""
    first, second = build_method(variant), build_method(variant)
    if VARIANTS[variant][0] == "KD":
        second._teacher = first._teacher
    for method in (first, second):
        if method.mean is None:
            method.keep_mean(0.9)
    steps(first, 2)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    torch.manual_seed(7)
    steps(first, 1)
    torch.manual_seed(7)
    steps(second, 1)
    images = torch.randn(4, 3, 8, 8).to(find_device())
    with torch.no_grad():
        ours, theirs = first.eval().logits(images), second.eval().logits(images)
    assert ours.keys() == theirs.keys() == first.predictors().keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@every
def test_averages_of_any_method(variant: str) -> None:
    """`--ema`: mean peers and, where there is an ensemble, its average, all of them from one definition."""
    method = build_method(variant)
    if method.mean is None:
        method.keep_mean(0.5)
    steps(method, 3)
    assert method.mean is not None and method.mean.step == 3
    names = set(method.predictors())
    m = method.net.size
    assert {f"{kind}{j}" for kind in ("peer", "mean") for j in range(1, m + 1)} <= names
    has = VARIANTS[variant][0] in ENSEMBLES and variant != "PCL, CE only"
    other = "raw_ensemble" if method.deploys_mean else "mean_ensemble"
    assert (names & {"ensemble", other}) == ({"ensemble", other} if has else set())
    with torch.no_grad():
        method.eval()
        images = torch.randn(4, 3, 8, 8).to(find_device())
        together = method.logits(images)
        for name, network in method.predictors().items():
            torch.testing.assert_close(network.eval()(images), together[name])


def extreme(m: int, dtype: torch.dtype, size: int = 8) -> Peers:
    """Peers sure of themselves beyond measure, and of different opinions."""
    signs = torch.where(torch.rand(m, size, 5) < 0.5, -1.0, 1.0)

    def big(*shape: int) -> Tensor:
        return (1e4 * torch.sign(torch.randn(*shape))).to(find_device(), dtype).requires_grad_()

    return Peers(
        (1e4 * signs).to(find_device(), dtype).requires_grad_(),
        tuple(big(size, 16) for _ in range(m)),
        tuple(big(size, 16, 4, 4) for _ in range(m)),
        (big(size, 16, 4, 4),),
    )


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_extreme_logits(variant: str, dtype: torch.dtype) -> None:
    method = build_method(variant).to(dtype)
    peers = extreme(method.net.size, dtype)
    views, labels = batch(method, dtype=dtype)
    method.net.forward = lambda *args, **kwargs: peers  # type: ignore[method-assign]
    terms = method(views, labels, 40)
    assert all(torch.isfinite(term) for term in terms.values()), terms
    terms["loss"].backward()
    assert peers.logits.grad is not None and torch.isfinite(peers.logits.grad).all()
    for name, p in method.named_parameters():
        assert p.grad is None or not p.grad.isnan().any(), name


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_networks(variant: str, dtype: torch.dtype) -> None:
    method = build_method(variant).to(dtype)
    terms = method(*batch(method, dtype=dtype), 40)
    terms["loss"].backward()
    assert all(torch.isfinite(term) for term in terms.values())
    assert all(p.grad is None or not p.grad.isnan().any() for p in method.parameters())


@every
def test_autocast(variant: str) -> None:
    """Mixed precision, as on a GPU: the networks in bfloat16, the losses in float32."""
    method = build_method(variant)
    views, labels = batch(method)
    with torch.autocast(find_device().type, torch.bfloat16):
        terms = method(views, labels, 40)
    assert terms["loss"].dtype == torch.float32
    terms["loss"].backward()
    assert all(torch.isfinite(term) for term in terms.values())
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in method.parameters())

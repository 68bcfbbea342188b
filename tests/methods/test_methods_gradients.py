"""Who learns from which term: the gradient rules of the methods."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import coterie
from coterie.methods import Method
from coterie.peers.net import PeerNet
from coterie.peers.trace import branch_parameters, shared_parameters
from tests.helpers.common import TinyNet

several = pytest.mark.parametrize("m", [2, 3, 4])


def build_method(name: str, m: int = 3, **options: object) -> Method:
    cls = getattr(coterie, name)
    method: Method = cls(PeerNet(TinyNet, m, "stage3" if cls.trains == "branches" else None), **options)
    return method


def batch(method: Method, size: int = 8) -> tuple[Tensor | list[Tensor], Tensor]:
    views = [torch.randn(size, 3, 8, 8) for _ in range(method.views)]
    return (views if len(views) > 1 else views[0]), torch.randint(5, (size,))


def reached(term: Tensor, parameters: list[nn.Parameter]) -> list[bool]:
    """Which parameters this term trains."""
    gradients = torch.autograd.grad(term, parameters, retain_graph=True, allow_unused=True)
    return [g is not None and bool(g.abs().sum() > 0) for g in gradients]


def heads(method: Method) -> list[list[nn.Parameter]]:
    return [list(peer.head.parameters()) for peer in method.net.peers]


@several
def test_one_gate_learns_from_the_ensembles_cross_entropy_alone(m: int) -> None:
    method = build_method("ONE", m)
    terms = method(*batch(method), 80)
    gate = [method.gate[0].weight, *method.gate[1].parameters()]
    assert all(reached(terms["ce_ensemble"], gate))
    assert not any(reached(terms["distil_ensemble"], gate)) and not any(reached(terms["ce_peers"], gate))
    assert all(all(reached(terms["ce_ensemble"], head)) for head in heads(method))


@several
def test_okddip_attention_learns_through_its_target_alone(m: int) -> None:
    method = build_method("OKDDip", m)
    terms = method(*batch(method), 80)
    attention = [method.query.weight, method.key.weight]
    for name in ("ce_peers", "ce_leader", "distil_leader"):
        assert not any(reached(terms[name], attention))
    # A single peer beside the leader has nobody but itself to listen to.
    assert all(reached(terms["distil_peers"], attention)) == (m > 2)
    leader, *peers = heads(method)
    assert not any(reached(terms["distil_peers"], leader)) and not any(reached(terms["ce_peers"], leader))
    assert all(reached(terms["distil_leader"], leader)) and all(reached(terms["ce_leader"], leader))
    for peer in peers:  # the mean of the peers that teaches the leader is detached
        assert not any(reached(terms["distil_leader"], peer)) and not any(reached(terms["ce_leader"], peer))


def test_okddip_target_is_not_detached() -> None:
    """The target's gradient reaches the logits of those who are listened to."""
    method = build_method("OKDDip", 3)
    peers = method.net(batch(method)[0])
    z = peers.logits.detach().requires_grad_()
    targets = (method.attention(peers).detach().unsqueeze(-1) * z[1:]).sum(1)
    from coterie.methods.losses import distil

    full = torch.autograd.grad(distil(targets, z[1:], 3.0).mean(-1).sum(), z, retain_graph=True)[0]
    peers.logits = z
    method.net.forward = lambda *args, **kwargs: peers
    features = peers.features
    peers.features = tuple(f.detach() for f in features)
    term = method(torch.zeros(8), torch.randint(5, (8,)), 80)["distil_peers"]
    torch.testing.assert_close(torch.autograd.grad(term, z)[0], full)


@several
def test_ffl_fusion_and_branches(m: int) -> None:
    method = build_method("FFL", m)
    terms = method(*batch(method), 80)
    fusion = [*method.fuse.parameters(), *method.classifier.parameters()]
    assert not any(reached(terms["distil_fused"], fusion))  # its target is detached
    assert all(reached(terms["distil_mean"], fusion)) and all(reached(terms["ce_fused"], fusion))
    for head in heads(method):  # the mean of the logits that teaches the fusion is detached
        assert not any(reached(terms["distil_mean"], head))
        assert all(reached(terms["distil_fused"], head))
    for peer in method.net.peers:  # the maps are not
        assert all(reached(terms["ce_fused"], [peer.stage3[0].weight]))


@several
@pytest.mark.parametrize("name", ["DML", "CL", "KDCL", "MCL"])
def test_targets_are_detached(name: str, m: int) -> None:
    """Terms of student k alone: with detached targets, the gradient in z_k is that of a constant target."""
    method = build_method(name, m)
    terms = method(*batch(method), 80)
    soft = next(v for k, v in terms.items() if k in ("distil_peers", "distil_ensemble", "distil_across"))
    peers = method.net(batch(method)[0])
    z = peers.logits.detach().requires_grad_()
    peers.logits = z
    method.net.forward = lambda *args, **kwargs: peers
    labels = torch.randint(5, (8,))
    terms = method([torch.zeros(8)] * method.views, labels, 80)
    if name == "MCL":  # its targets are similarities of embeddings
        s = method.similarities(peers).detach().requires_grad_()
        method.similarities = lambda peers: s
        terms = method([torch.zeros(8)] * method.views, labels, 80)
        gradient = torch.autograd.grad(terms["distil_across"], s)[0]
        p = (s / 3.0).softmax(-1)
        across = ~torch.eye(m, dtype=torch.bool)
        expected = 3.0 * (p - p.transpose(0, 1))[across] / 8
        torch.testing.assert_close(gradient[across], expected)
        return
    term = terms["distil_peers" if "distil_peers" in terms else "distil_ensemble"]
    gradient = torch.autograd.grad(term, z)[0]
    p = (z / 3.0).softmax(-1)
    for k in range(m):
        others = [j for j in range(m) if j != k]
        if name == "DML":
            target = p[others].mean(0)
        elif name == "CL":
            target = (z[others].mean(0) / 3.0).softmax(-1)
        else:
            target = (method.choose(z.detach(), labels) / 3.0).softmax(-1)
        torch.testing.assert_close(gradient[k], 3.0 * (p[k] - target) / 8)
    assert soft.requires_grad


def test_pcl_ensemble_teacher_is_detached_unless_asked() -> None:
    for option in (False, True):
        method = build_method("PCL", 3, teacher_gradient=option)
        terms = method(*batch(method), 80)
        classifier = list(method.classifier.parameters())
        assert all(reached(terms["distil_ensemble"], classifier)) == option
        assert all(reached(terms["ce_ensemble"], classifier))


def test_pcl_mean_teachers_have_no_gradient() -> None:
    method = build_method("PCL", 3)
    method(*batch(method), 80)["loss"].backward()
    assert all(p.grad is None and not p.requires_grad for p in method.mean.parameters())


class Crossing(nn.Module):
    """Two tensors, and a token of the network's own, reach the branch: what a U-shape or a transformer does."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 8, 1, 1))
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.middle = nn.Conv2d(8, 8, 3, padding=1)
        self.last = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        early = torch.tanh(self.stem(x))
        late = torch.tanh(self.middle(early))
        x = torch.tanh(self.last(late * self.token)) + early + self.token
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


@several
@pytest.mark.parametrize(("network", "cut"), [(TinyNet, "stage3"), (TinyNet, "stage1"), (Crossing, "last")])
def test_ilr_gives_the_trunk_the_mean_of_the_heads_gradients(m: int, network: type[nn.Module], cut: str) -> None:
    net = PeerNet(network, m, cut)
    ilr, plain = coterie.CL(net), coterie.CL(net, mean_gradient=False)
    images, labels = torch.randn(8, 3, 8, 8), torch.randint(5, (8,))
    gradients = []
    for method in (ilr, plain):
        net.zero_grad()
        method(images, labels, 40)["loss"].backward()
        gradients.append({name: p.grad.clone() for name, p in net.named_parameters()})
    shared = set(map(id, shared_parameters(net.peers[0], net.split)))
    branches = {id(p) for peer in net.peers for p in branch_parameters(peer, net.split)}
    counts = [0, 0]
    for name, p in net.named_parameters():
        assert (id(p) in shared) != (id(p) in branches)
        factor = 1 / m if id(p) in shared else 1.0
        counts[id(p) in shared] += 1
        torch.testing.assert_close(gradients[0][name], factor * gradients[1][name], rtol=1e-4, atol=1e-7)
    assert all(counts)
    with torch.no_grad():
        net.eval()  # and forward it is the identity, to the last bit
        assert torch.equal(net(images).logits, net(images, trunk_gradient=1 / m).logits)


def test_ilr_leaves_no_trace_in_the_network() -> None:
    """Another method on the same peers afterwards gets the full gradient."""
    net = PeerNet(TinyNet, 3, "stage3")
    images, labels = torch.randn(8, 3, 8, 8), torch.randint(5, (8,))
    before = torch.autograd.grad(coterie.ONE(net)(images, labels, 0)["ce_peers"], net.peers[0].stem.weight)[0]
    coterie.CL(net)(images, labels, 0)["loss"].backward()
    after = torch.autograd.grad(coterie.ONE(net)(images, labels, 0)["ce_peers"], net.peers[0].stem.weight)[0]
    torch.testing.assert_close(before, after)
    assert isinstance(net.peers[0].stem.weight, nn.Parameter)


@pytest.mark.parametrize(
    ("name", "options", "trunk", "views"),
    [
        ("CL", {}, 1, 1),
        ("ONE", {}, 1, 1),
        ("FFL", {}, 1, 1),
        ("OKDDip", {}, 1, 1),
        ("DML", {}, 3, 1),
        ("MCL", {}, 3, 1),
        ("KDCL", {}, 3, 3),
        ("PCL", {"peer_teacher": "none"}, 3, 3),
        ("PCL", {"peer_teacher": "none", "input_augmentation": False}, 1, 1),
        ("PCL", {}, 6, 3),  # with the mean teachers
        ("PCL", {"input_augmentation": False}, 2, 1),
    ],
)
def test_how_often_low_level_layers_run(name: str, options: dict[str, object], trunk: int, views: int) -> None:
    """Single-view methods with a trunk run it once per step, whatever the number of peers."""
    method = build_method(name, 3, **options)
    assert method.views == views
    runs = {"stem": 0, "stage3": 0}
    for module_name, module in method.named_modules():
        part = module_name.rpartition(".")[2]
        if part in runs:

            def count(*args: object, part: str = part) -> None:
                runs[part] += 1

            module.register_forward_hook(count)
    method(*batch(method), 0)
    assert runs["stem"] == trunk
    assert runs["stage3"] == (6 if method.mean is not None else 3)

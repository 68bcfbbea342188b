"""PeerNet: what is shared, what runs once, what is refused."""

from __future__ import annotations

import copy
import pickle
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import coterie
from coterie.errors import InputError
from coterie.peers.net import standalone
from tests.helpers.common import TinyNet


def peer_net(m: int = 3, cut: str | None = "stage3") -> coterie.PeerNet:
    return coterie.PeerNet(TinyNet, m, cut, torch.randn(2, 3, 8, 8))


def count_calls(net: coterie.PeerNet, views: object) -> Counter[str]:
    calls: Counter[str] = Counter()
    handles = []
    for peer in net.peers[:1]:
        for name, module in peer.named_modules():
            handles.append(module.register_forward_hook(lambda *_, name=name: calls.update([name])))
    net(views)
    for handle in handles:
        handle.remove()
    return calls


def test_peers_are_complete_networks_of_the_users_class_sharing_module_objects() -> None:
    net = peer_net()
    first = net.peers[0]
    assert [type(p) for p in net.peers] == [TinyNet] * 3
    for other in net.peers[1:]:
        assert set(other.state_dict()) == set(TinyNet().state_dict())
        for name in ("stem", "stage1", "stage2"):
            assert other.get_submodule(name) is first.get_submodule(name)
        mine, theirs = list(first.stage3.parameters()) + list(first.head.parameters()), []
        theirs = list(other.stage3.parameters()) + list(other.head.parameters())
        assert not {id(p) for p in mine} & {id(p) for p in theirs}
    single = sum(p.numel() for p in TinyNet().parameters())
    branch = sum(p.numel() for m in (first.stage3, first.head) for p in m.parameters())
    assert sum(p.numel() for p in net.parameters()) == single + 2 * branch


@pytest.mark.parametrize("source", ["factory", "module"])
def test_branches_start_independently(source: str) -> None:
    maker = TinyNet if source == "factory" else TinyNet()
    net = coterie.PeerNet(maker, 3, "stage3", torch.randn(2, 3, 8, 8))
    for a, b in [(0, 1), (0, 2), (1, 2)]:
        assert not torch.equal(net.peers[a].stage3[0].weight, net.peers[b].stage3[0].weight)
        assert not torch.equal(net.peers[a].head.weight, net.peers[b].head.weight)
    if source == "module":  # the user's own instance is left alone, and its weights are peer 1's
        assert torch.equal(maker.head.weight, net.peers[0].head.weight)
        assert maker.head is not net.peers[0].head and not maker.head._forward_pre_hooks
        kept = coterie.PeerNet(maker, 2, "stage3", torch.randn(2, 3, 8, 8), keep=True)
        assert torch.equal(kept.peers[1].head.weight, maker.head.weight)


def test_one_view_runs_the_shared_part_once(example: Tensor) -> None:
    calls = count_calls(peer_net(), example)
    assert all(calls[name] == 1 for name in ("stem", "stage1", "stage1.0", "stage2", "stage2.1", "stage3", "head"))


def test_one_view_per_peer_costs_m_plain_forwards(example: Tensor) -> None:
    net = peer_net()
    calls = count_calls(net, [example, example + 1, example + 2])
    assert all(calls[name] == 3 for name in ("stem", "stage1", "stage2"))
    assert calls["stage3"] == calls["head"] == 1


def test_every_way_to_run_gives_what_the_peers_give_alone(example: Tensor) -> None:
    net = peer_net().eval()
    alone = torch.stack([peer(example) for peer in net.peers])
    assert torch.equal(net(example).logits, alone)
    assert torch.equal(net([example] * 3).logits, alone)
    assert torch.allclose(net([example] * 3, joint=True).logits, alone, atol=1e-6)
    views = [example, example + 1, example + 2]
    each = torch.stack([peer(view) for peer, view in zip(net.peers, views, strict=True)])
    assert torch.allclose(net(views, joint=True).logits, each, atol=1e-6)


def test_joint_trunk_shares_one_set_of_batch_norm_statistics(example: Tensor) -> None:
    views = [example, 3 * example, example + 2]
    net = peer_net().train()
    plain = copy.deepcopy(net.peers[0])
    net(views, joint=True)
    plain.stage1(plain.stem(torch.cat(views)))
    assert torch.allclose(net.peers[0].stage1[1].running_mean, plain.stage1[1].running_mean)
    assert int(net.peers[0].stage1[1].num_batches_tracked) == 1


@pytest.mark.parametrize("one_view", [True, False])
def test_shared_modules_receive_the_sum_over_peers(one_view: bool, example: Tensor) -> None:
    net = peer_net().eval()
    views = [example] * 3 if one_view else [example, example + 1, example + 2]
    weights = torch.randn(3, 4, 5)
    (net(example if one_view else views).logits * weights).sum().backward()
    summed = torch.zeros_like(net.peers[0].stem.weight)
    for peer, view, weight in zip(net.peers, views, weights, strict=True):
        lone = copy.deepcopy(peer)
        lone.zero_grad()
        (lone(view) * weight).sum().backward()
        summed += lone.stem.weight.grad
        assert torch.allclose(lone.head.weight.grad, peer.head.weight.grad, atol=1e-5)
    assert torch.allclose(net.peers[0].stem.weight.grad, summed, atol=1e-4)


def test_features_maps_and_trunk_are_what_they_are_said_to_be(example: Tensor) -> None:
    net = peer_net().eval()
    out = net(example)
    for j, peer in enumerate(net.peers):
        trunk = peer.stage2(peer.stage1(peer.stem(example)))
        spatial = peer.stage3(trunk)
        assert torch.equal(out.trunk[0], trunk) and torch.equal(out.maps[j], spatial)
        assert torch.equal(out.features[j], torch.relu(spatial).mean((2, 3)))
    assert len(out.trunk) == 1
    assert len(net([example] * 3).trunk) == 3
    assert net.shapes["features"] == ((16,),) * 3 and net.shapes["trunk"] == ((16, 4, 4),)


class InPlaceBorder(nn.Module):
    """A network whose branch begins with in-place operations on the trunk's output."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 4, 3, padding=1)
        self.b = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, padding=1))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        x += 1.0  # in place, outside of any module
        return self.head(F.relu(self.b(x)).mean((2, 3)))


def test_in_place_operations_at_the_border_corrupt_nothing() -> None:
    x = torch.randn(4, 3, 8, 8)
    net = coterie.PeerNet(InPlaceBorder, 3, "b", x)
    alone = torch.stack([peer(x) for peer in net.peers])
    out = net(x)
    assert torch.equal(out.logits, alone)
    assert torch.equal(out.trunk[0], net.peers[0].a(x) + 1.0)
    out.logits.sum().backward()
    grads = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    alone.sum().backward()
    assert all(torch.allclose(a, p.grad, atol=1e-5) for a, p in zip(grads, net.parameters(), strict=True))


def test_copies_and_pickles_keep_the_sharing(example: Tensor) -> None:
    net = peer_net().eval()
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert other.peers[0].stem is other.peers[2].stem and other.peers[0].stem is not net.peers[0].stem
        assert torch.equal(other(example).logits, net(example).logits)
        assert torch.equal(other(example).features[1], net(example).features[1])
        assert count_calls(other, example)["stem"] == 1


def test_standalone_peer_carries_nothing_of_ours() -> None:
    network = standalone(peer_net().peers[1])
    assert not any(m._forward_hooks or m._forward_pre_hooks or "_call_impl" in vars(m) for m in network.modules())
    assert not network.training


def test_whole_networks_share_nothing(example: Tensor) -> None:
    net = peer_net(3, None).eval()
    assert sum(p.numel() for p in net.parameters()) == 3 * sum(p.numel() for p in TinyNet().parameters())
    assert torch.equal(net(example).logits, torch.stack([p(example) for p in net.peers]))
    assert net(example).trunk == ()
    mixed = coterie.PeerNet([TinyNet, lambda: TinyNet(width=4)], example=torch.randn(2, 3, 8, 8))
    assert [tuple(s) for s in mixed.shapes["features"]] == [(16,), (8,)]


class Awkward(TinyNet):
    """Has a module that never runs, and one with parameters that runs on both sides of stage2."""

    def __init__(self) -> None:
        super().__init__(width=8)
        self.idle = nn.Linear(2, 2)
        self.twice = nn.BatchNorm2d(8)
        self.last = nn.Conv2d(16, 8, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.twice(self.stage1(self.stem(x)))
        return self.head(self.twice(self.last(self.stage3(self.stage2(x)))).mean((2, 3)))


@pytest.mark.parametrize(
    ("model", "cut", "reason"),
    [
        (TinyNet, "layer4", "no such module"),
        (Awkward, "idle", "never runs"),
        (Awkward, "stage2", "'twice'"),
        (TinyNet, "stem", "before it"),
        (TinyNet, "", "before it"),
    ],
)
def test_bad_cuts_are_refused_with_the_good_ones(model: type[nn.Module], cut: str, reason: str) -> None:
    with pytest.raises(InputError) as error:
        coterie.PeerNet(model, 3, cut, torch.randn(2, 3, 8, 8))
    assert reason in str(error.value)
    assert "Good cuts: " in str(error.value)
    if model is TinyNet:
        assert "stage1, stage2, stage3, head" in str(error.value)


def test_a_cut_that_leaves_nothing_in_the_branch_is_refused() -> None:
    class Ends(TinyNet):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Softplus()

        def forward(self, x: Tensor) -> Tensor:
            return self.scale(super().forward(x))

    with pytest.raises(InputError, match="nothing with parameters is left after it"):
        coterie.PeerNet(Ends, 2, "scale", torch.randn(2, 3, 8, 8))


def test_a_network_that_draws_in_evaluation_mode_is_refused() -> None:
    class Random(TinyNet):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + torch.rand_like(x))

    with pytest.raises(InputError, match="does not reproduce"):
        coterie.PeerNet(Random, 2, "stage3", torch.randn(2, 3, 8, 8))


def test_other_bad_input() -> None:
    with pytest.raises(InputError, match="at least one peer"):
        coterie.PeerNet(TinyNet, 0)
    with pytest.raises(InputError, match="not a torch.nn.Module"):
        coterie.PeerNet(lambda: "net", 2)
    with pytest.raises(InputError, match="same number of classes"):
        coterie.PeerNet([TinyNet, lambda: TinyNet(7)])
    with pytest.raises(InputError, match="share nothing"):
        coterie.PeerNet([TinyNet, TinyNet], cut="stage3")
    with pytest.raises(InputError, match="needs? 3 views"):
        peer_net()([torch.randn(2, 3, 8, 8)] * 2)

    class Tuple(TinyNet):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return super().forward(x), x

    with pytest.raises(InputError, match="gave a tuple of 2: wrap it"):
        coterie.PeerNet(Tuple, 2)


def test_the_example_is_found_without_being_given() -> None:
    assert coterie.PeerNet(TinyNet, 2, "stage3").shapes["trunk"] == ((16, 16, 16),)  # 3x32x32
    with pytest.raises(InputError, match="pass a batch of inputs as `example`"):
        coterie.PeerNet(lambda: TinyNet(channels=5), 2, "stage3")

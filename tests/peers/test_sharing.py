"""PeerNet under strain: timm's families, in-place layers, noise and copies."""

from __future__ import annotations

import copy
import pickle
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coterie import PeerNet, models
from coterie.errors import InputError
from coterie.peers.net import standalone
from tests.helpers.common import TinyNet

SAMPLE: dict[str, tuple[str, dict[str, object]]] = {  # timm's name -> cut, options that make it small
    "test_resnet": ("layer3", {}),
    "test_efficientnet": ("blocks.2", {}),
    "test_convnext": ("stages.2", {}),
    "test_byobnet": ("stages.2", {}),
    "test_nfnet": ("stages.2", {}),
    "test_mambaout": ("stages.2", {}),
    "lcnet_050": ("blocks.4", {}),
    "test_vit": ("blocks.4", {}),
    "test_vit2": ("blocks.5", {}),
    "test_vit3": ("blocks.6", {}),
    "xcit_nano_12_p16_224": ("blocks.2", {"depth": 3}),
    "pvt_v2_b0": ("stages.2", {"depths": (1, 1, 1, 1)}),
    "mobilevit_xxs": ("stages.3", {}),
    "resmlp_12_224": ("blocks.8", {}),
}


def equal_peers(model: nn.Module, cut: str, example: Tensor, peers: int = 3) -> PeerNet:
    return PeerNet(model, peers, cut, example, keep=True)


def calls_of(net: PeerNet, views: Tensor | list[Tensor]) -> Counter[str]:
    """How often each shared module runs, by hooks."""
    assert net.split is not None
    calls: Counter[str] = Counter()
    handles = [
        net.peers[0].get_submodule(n).register_forward_hook(lambda *_, n=n: calls.update([n]))
        for n in net.split.calls
    ]
    net(views)
    for handle in handles:
        handle.remove()
    return calls


@pytest.mark.parametrize("name", SAMPLE)
def test_timm_networks_hold_as_peers(name: str) -> None:
    """Exact, the trunk once, the sum of the peers' gradients in it, and back to the user's class."""
    cut, options = SAMPLE[name]
    make = models.factory(f"timm:{name}", 4, 3, options, size=(64, 64))
    example = torch.randn(2, 3, 64, 64)
    original = make().eval()
    net = equal_peers(original, cut, example).eval()
    with torch.no_grad():
        expected = original(example)
        assert all(torch.equal(z, expected) for z in net(example).logits)
        assert max(calls_of(net, example).values()) == 1
        assert set(calls_of(net, [example] * 3).values()) == {3}
    F.cross_entropy(original(example), torch.tensor([1, 2])).backward()
    sum(F.cross_entropy(z, torch.tensor([1, 2])) for z in net(example).logits).backward()  # type: ignore[union-attr]
    plain = dict(original.named_parameters())
    others = dict(net.peers[1].named_parameters())
    shared = [n for n, p in net.peers[0].named_parameters() if p is others[n] and plain[n].grad is not None]
    assert shared
    for n in shared:
        grad, wanted = net.peers[0].get_parameter(n).grad, 3 * plain[n].grad
        assert grad is not None
        torch.testing.assert_close(grad, wanted, rtol=1e-3, atol=1e-4 * wanted.abs().max().item() + 1e-8)
    make().load_state_dict(standalone(net.peers[2]).state_dict(), strict=True)


class InPlaceBorder(nn.Module):
    """Everything in place where trunk and branch meet: the activation, dropout and `+=`."""

    def __init__(self, first: nn.Module) -> None:
        super().__init__()
        self.trunk, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.shift = nn.Parameter(torch.ones(1, 4, 1, 1))
        self.branch = nn.Sequential(first, nn.Conv2d(4, 4, 3))
        self.fc = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.trunk(x))
        x += self.shift
        return self.fc(self.branch(x).mean((2, 3)))


@pytest.mark.parametrize(
    "first", [nn.ReLU(inplace=True), nn.Dropout(0.5, inplace=True), nn.Hardswish(inplace=True)]
)
@pytest.mark.parametrize("training", [False, True])
def test_in_place_layers_at_the_border_do_not_reach_other_peers(first: nn.Module, training: bool) -> None:
    model = InPlaceBorder(first)
    x = torch.randn(2, 3, 8, 8)
    net = PeerNet(model, 3, "branch", x).train(training)
    torch.manual_seed(1)
    peers = net(x)
    before = net.peers[0].norm(net.peers[0].trunk(x)) + model.shift  # what enters a branch, by hand
    torch.testing.assert_close(peers.trunk[0], before)
    torch.manual_seed(1)
    for j, peer in enumerate(net.peers):
        expected = peer.fc(peer.branch(before.clone()).mean((2, 3)))
        torch.testing.assert_close(peers.logits[j], expected)


def test_input_changed_in_place_is_not_changed_for_the_next_peer() -> None:
    class Normalises(TinyNet):
        def forward(self, x: Tensor) -> Tensor:
            x.mul_(0.5)
            return super().forward(x)

    x = torch.randn(2, 3, 8, 8)
    net = equal_peers(Normalises(), "stage2", x.clone()).eval()
    z = net(x).logits
    assert torch.equal(z[0], z[1]) and torch.equal(z[0], net.peers[0](x.clone()))


class Named(nn.Module):
    """Children by name in a Sequential, a ModuleList walked by hand, an activation used on both sides."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()
        self.body = nn.Sequential()
        self.body.add_module("one", nn.Conv2d(3, 4, 3))
        self.body.add_module("two", nn.Conv2d(4, 4, 3))
        self.list = nn.ModuleList(nn.Conv2d(4, 4, 1) for _ in range(3))
        self.repeated = nn.Conv2d(4, 4, 1)
        self.scales = nn.ParameterList([torch.ones(()), torch.ones(())])
        self.fc = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.body(x))
        x = self.repeated(self.repeated(x)) * self.scales[0]
        for layer in self.list:
            x = self.act(layer(x))
        return self.fc(x.mean((2, 3)))


@pytest.mark.parametrize("cut", ["body.two", "list.1", "list.2", "fc"])
def test_named_children_lists_and_repeated_modules(cut: str) -> None:
    x = torch.randn(2, 3, 8, 8)
    net = PeerNet(Named, 3, cut, x)
    together = net(x).logits
    assert all(torch.equal(z, peer(x)) for z, peer in zip(together, net.peers, strict=True))
    plain = PeerNet(lambda: copy.deepcopy(net.peers[0]), 1, cut, x)
    assert calls_of(net, x) == calls_of(plain, x)
    assert cut == "body.two" or calls_of(net, x)["repeated"] == 2
    assert net.peers[0].get_submodule(cut) is not net.peers[1].get_submodule(cut)
    assert net.peers[0].scales[0] is net.peers[1].scales[0]


def test_module_with_parameters_on_both_sides_is_refused_with_the_good_cuts() -> None:
    class Both(TinyNet):
        def forward(self, x: Tensor) -> Tensor:
            x = self.stage1(self.stage1(self.stem(x)))
            return super().forward(x[:, :3])

    with pytest.raises(
        InputError, match=r"'stem', which has parameters, runs both before and after.*Good cuts: stage"
    ):
        PeerNet(Both, 2, "stage1", torch.randn(2, 3, 8, 8))


def test_buffers_before_the_cut_are_shared_and_updated_once_and_those_after_are_not(example: Tensor) -> None:
    net = PeerNet(TinyNet, 3, "stage3", example).train()
    net(example)
    first, second = net.peers[0], net.peers[1]
    assert first.stage1[1].running_mean is second.stage1[1].running_mean
    assert first.stage1[1].num_batches_tracked == 1
    assert first.stage3[1].running_mean is not second.stage3[1].running_mean
    assert [int(peer.stage3[1].num_batches_tracked) for peer in net.peers] == [1, 1, 1]
    net([example] * 3)
    assert first.stage1[1].num_batches_tracked == 1 + 3


def test_class_token_and_position_embedding_are_shared_and_learn() -> None:
    make = models.factory("timm:test_vit", 4, 3, size=(64, 64))
    net = PeerNet(make, 3, "blocks.3", torch.randn(2, 3, 64, 64))
    tokens = [(peer.cls_token, peer.pos_embed) for peer in net.peers]
    assert all(c is tokens[0][0] and p is tokens[0][1] for c, p in tokens)
    net(torch.randn(2, 3, 64, 64)).logits.sum().backward()
    assert tokens[0][0].grad.abs().sum() > 0 and tokens[0][1].grad.abs().sum() > 0


class Noisy(TinyNet):
    """Dropout in the trunk and in the branch."""

    def __init__(self) -> None:
        super().__init__()
        self.stage1.append(nn.Dropout(0.5))
        self.stage3.append(nn.Dropout(0.5))


def test_shared_dropout_draws_once_on_one_view_and_per_peer_on_m_views(example: Tensor) -> None:
    net = equal_peers(Noisy(), "stage3", example).train()
    for batch_norm in [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]:
        batch_norm.eval()
    together = net(example)
    assert len(together.trunk) == 1
    assert not torch.equal(together.logits[0], together.logits[1])  # branches draw for themselves
    apart = net([example] * 3)
    assert not torch.equal(apart.trunk[0], apart.trunk[1])  # the trunk draws for each view


def test_stochastic_depth_draws_once_in_the_trunk_and_per_peer_in_the_branches() -> None:
    make = models.factory("timm:test_vit", 4, 3, {"drop_path_rate": 0.9}, size=(64, 64))
    x = torch.randn(16, 3, 64, 64)
    net = equal_peers(make(), "blocks.4", x).train()
    torch.manual_seed(3)
    peers = net(x)
    torch.manual_seed(3)
    entered: list[Tensor] = []
    net.peers[0].blocks[4].register_forward_pre_hook(lambda module, args: entered.append(args[0]))
    net.peers[0](x)
    assert torch.equal(peers.trunk[0], entered[0])  # one draw, as the plain network's
    assert not torch.equal(peers.logits[0], peers.logits[1])
    apart = net([x] * 3)
    assert not torch.equal(apart.trunk[0], apart.trunk[1])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_keep_sharing_taps_and_outputs(copied, example: Tensor) -> None:
    net = PeerNet(TinyNet, 3, "stage3", example).eval()
    net(example)
    other = copied(net)
    assert other.peers[0].stage1 is other.peers[2].stage1 and other.peers[0].stage1 is not net.peers[0].stage1
    assert torch.equal(other(example).logits, net(example).logits)
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    mine, theirs = net(example), other(example)
    assert theirs.features[0].abs().sum() == 0 < mine.features[0].abs().sum()  # type: ignore[union-attr]
    assert set(calls_of(other, example).values()) == {1}


def test_double_precision_after_building(example: Tensor) -> None:
    net = PeerNet(TinyNet, 3, "stage3", example).to(torch.float64).eval()
    assert net.peers[0].stage1 is net.peers[1].stage1
    peers = net(example.double())
    assert peers.logits.dtype == torch.float64 and peers.features[0].dtype == torch.float64  # type: ignore[union-attr]
    assert torch.equal(peers.logits[1], net.peers[1](example.double()))


def test_peer_called_by_itself_keeps_no_graph_alive(example: Tensor) -> None:
    net = PeerNet(TinyNet, 2, "stage3", example)
    net.peers[0](example)
    net(example)
    assert all(tap.value is None for taps in net._taps for tap in taps.all())
    assert net._trunk.calls and all(not call.outputs for call in net._trunk.calls.values())


def test_convolution_as_classifier_gives_a_pooled_feature_and_the_map_before_it() -> None:
    make = models.factory("torchvision:squeezenet1_1", 5, 3)
    net = PeerNet(make, 2, "features.9", torch.randn(2, 3, 64, 64))
    assert net.shapes["features"][0] == (512,)
    assert net.shapes["maps"][0] == (512, 3, 3)


def test_map_of_a_channels_last_network_comes_channels_first_and_a_vit_has_none() -> None:
    swin = models.factory("timm:swin_tiny_patch4_window7_224", 3, 3, {"depths": (1, 1, 1, 1), "embed_dim": 24})
    net = PeerNet(swin, 2, "layers.3", torch.randn(2, 3, 224, 224))
    assert net.shapes["maps"][0] == (192, 7, 7)
    vit = PeerNet(models.factory("timm:test_vit", 4, 3, size=(64, 64)), 2, "blocks.4", torch.randn(2, 3, 64, 64))
    assert vit.shapes["maps"] == (None, None)

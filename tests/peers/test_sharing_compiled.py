"""PeerNet with its trunk computed again instead of kept, and compiled: the same results."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coterie import PCL, PeerNet, models
from coterie.errors import InputError
from tests.helpers.common import TinyNet
from tests.peers.test_sharing import Noisy


def trained_with(example: Tensor, views: Tensor | list[Tensor], model: nn.Module, **options: bool) -> PeerNet:
    torch.manual_seed(5)
    net = PeerNet(copy.deepcopy(model), 3, "stage3", example, **options).train()
    torch.manual_seed(6)
    loss = sum(F.cross_entropy(z, torch.tensor([0, 1, 2, 3])) for z in net(views).logits)
    assert isinstance(loss, Tensor)
    loss.backward()
    return net


@pytest.mark.parametrize("one_view", [True, False])
@pytest.mark.parametrize("make", [TinyNet, Noisy])
def test_recomputed_trunk_has_the_same_gradients_and_statistics(one_view: bool, make, example: Tensor) -> None:
    model = make()
    views = example if one_view else [example, example.flip(-1), example.flip(-2)]
    kept = trained_with(example, views, model)
    recomputed = trained_with(example, views, model, checkpoint_activations=True)
    for (name, a), b in zip(kept.named_parameters(), recomputed.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, msg=name)
    for (name, a), b in zip(kept.named_buffers(), recomputed.buffers(), strict=True):
        assert torch.equal(a, b), name
    assert recomputed.peers[0].stage1[1].num_batches_tracked == (1 if one_view else 3)


@pytest.mark.parametrize("one_view", [True, False])
def test_recomputing_keeps_fewer_bytes_for_the_backward_pass(one_view: bool) -> None:
    example = torch.randn(2, 3, 32, 32)
    views = torch.randn(8, 3, 32, 32) if one_view else list(torch.randn(3, 8, 3, 32, 32))

    def kept_bytes(checkpoint_activations: bool) -> int:
        make = models.factory("resnet32", 10, 3)
        net = PeerNet(make, 3, "stage3", example, checkpoint_activations=checkpoint_activations).train()
        weights = {p.untyped_storage().data_ptr() for p in (*net.parameters(), *net.buffers())}
        storages: dict[int, int] = {}
        alive: list[Tensor] = []

        def pack(t: Tensor) -> Tensor:
            if t.untyped_storage().data_ptr() not in weights:
                storages[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
                alive.append(t)
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            net(views).logits.sum()
        return sum(storages.values())

    assert kept_bytes(True) < 0.5 * kept_bytes(False)


def test_compiled_and_recomputed_together_are_refused(example: Tensor) -> None:
    with pytest.raises(InputError, match="leave out checkpoint_activations or compile"):
        PeerNet(TinyNet, 2, "stage3", example, checkpoint_activations=True).compile_peers()


PAPER = ["resnet32", "resnet110", "vgg16", "densenet40_12", "wrn20_8", "resnext29_2x64d"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PAPER, "tiny"])
@pytest.mark.parametrize("one_view", [True, False])
def test_peers_are_one_graph_without_a_break(name: str, one_view: bool) -> None:
    from torch._dynamo.testing import CompileCounter

    make = TinyNet if name == "tiny" else models.factory(name, 10, 3)
    cut = "stage3" if name == "tiny" else make().default_cut
    x = torch.randn(2, 3, 32, 32)
    views = x if one_view else [x, x.flip(-1), x.flip(-2)]
    net = PeerNet(make, 3, cut, x).train()
    other = copy.deepcopy(net)
    graphs = CompileCounter()
    net.compile_peers(backend=graphs, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(net(views).logits, other(views).logits, rtol=1e-4, atol=1e-4)
    assert graphs.frame_count == 1
    for a, b in zip(net.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(a, b)  # the trunk ran once per step on one view: batch-norm moved once


def compiled_and_eager(example: Tensor, augmented: bool) -> tuple[PCL, PCL, Any]:
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    eager = PCL(PeerNet(TinyNet, 3, "stage3", example), beta=0.9, input_augmentation=augmented).train()
    compiled, graphs = copy.deepcopy(eager), CompileCounter()
    compiled.compile(backend=graphs)
    return compiled, eager, graphs


def test_a_forward_pass_of_pcl_is_one_graph_in_every_epoch(example: Tensor) -> None:
    """Peers, mean teachers, ensemble and losses, before, during and after the ramp-up, without a break."""
    compiled, eager, graphs = compiled_and_eager(example, augmented=True)
    views, labels = [example, example.flip(-1), example.flip(-2)], torch.tensor([0, 1, 2, 3])
    for epoch in (0, 1, 2, 40.5, 79, 80, 81, 300):
        terms, expected = compiled(views, labels, epoch), eager(views, labels, epoch)
        torch.testing.assert_close(terms, expected, rtol=1e-4, atol=1e-5)
        for method in (compiled, eager):
            method.zero_grad()
            (terms if method is compiled else expected)["loss"].backward()
            method.after_step()
    for (name, a), b in zip(compiled.named_parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, msg=name, rtol=1e-3, atol=1e-5)
    assert graphs.frame_count == 1
    assert copy.deepcopy(compiled)._compiled is None


def test_on_one_view_the_peers_are_a_graph_and_the_mean_teachers_another(example: Tensor) -> None:
    compiled, eager, graphs = compiled_and_eager(example, augmented=False)
    for epoch in (0, 1, 80):
        labels = torch.tensor([0, 1, 2, 3])
        torch.testing.assert_close(
            compiled(example, labels, epoch), eager(example, labels, epoch), rtol=1e-4, atol=1e-5
        )
    assert graphs.frame_count == 2


@pytest.mark.slow
@pytest.mark.parametrize("augmented", [True, False])
def test_compiled_training_has_the_same_losses(augmented: bool, example: Tensor) -> None:
    labels = torch.tensor([0, 1, 2, 3])

    def losses(compiled: bool) -> list[float]:
        torch.manual_seed(7)
        method = PCL(PeerNet(TinyNet, 3, "stage3", example), beta=0.9, input_augmentation=augmented).train()
        if compiled:
            method.compile()
        optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
        losses = []
        for epoch in range(4):
            views = [example + 0.1 * j for j in range(3)] if augmented else example
            loss = method(views, labels, 80 + epoch)["loss"]
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            method.after_step()
            losses.append(loss.item())
        return losses

    assert losses(True) == pytest.approx(losses(False), abs=1e-4)


@pytest.mark.slow
def test_net_compiled_from_outside_is_still_right_on_one_view(example: Tensor) -> None:
    net = PeerNet(TinyNet, 3, "stage3", example).train()
    other = copy.deepcopy(net)
    outside = torch.compile(net, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(outside(example).logits, other(example).logits)
    assert net.peers[0].stage1[1].num_batches_tracked == 2

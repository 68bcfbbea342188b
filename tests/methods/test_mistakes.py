"""The mistakes of public code (pcl.md, section 7): each has a test that it cannot happen here."""

from __future__ import annotations

import pytest
import torch

import coterie
from coterie.data.digits import digits
from coterie.methods import losses
from coterie.metrics.evaluate import evaluate
from coterie.models import factory
from tests.helpers.common import TinyNet
from tests.helpers.reference import kl


def make() -> coterie.PCL:
    return coterie.PCL(coterie.PeerNet(TinyNet, 3, "stage3", torch.randn(2, 3, 8, 8)))


def test_the_ramp_up_is_divided_by_its_length_not_by_its_height() -> None:
    """Three codes divide by lambda: w is about 0 for epochs 3 to 80, then jumps."""
    for weight in (1.0, 0.1):
        assert losses.ramp_up(60, 80, weight) == pytest.approx(weight * 0.7316, rel=1e-3)
    method, views, y = make().eval(), [torch.randn(4, 3, 8, 8) for _ in range(3)], torch.randint(5, (4,))
    full = method(views, y, 80)["distil_ensemble"].item()
    assert method(views, y, 60)["distil_ensemble"].item() == pytest.approx(0.7316 * full, rel=1e-3)


def test_the_average_counts_its_steps() -> None:
    """With step 0 for ever phi is 0 and the mean teacher is the student."""
    method = make()
    for _ in range(5):
        with torch.no_grad():
            method.net.peers[0].stem.weight.add_(1.0)
        method.after_step()
    assert not torch.allclose(method.mean.average.net.peers[0].stem.weight, method.net.peers[0].stem.weight)


@pytest.mark.parametrize("name", ["resnet8", "densenet40_12", "vgg16"])
def test_branches_are_different_objects_with_different_weights(name: str) -> None:
    """All DenseNet branches were one object, all heads initialised alike."""
    make_model = factory(name, 10, 3)
    cut = make_model().default_cut
    net = coterie.PeerNet(make_model, 3, cut, torch.randn(2, 3, 32, 32))
    shared = {id(p) for p in net.peers[0].parameters()} & {id(p) for p in net.peers[1].parameters()}
    own = [[p for p in peer.parameters() if id(p) not in shared] for peer in net.peers]
    for a, b, c in zip(*own, strict=True):
        assert len({id(a), id(b), id(c)}) == 3
        if a.dim() > 1:
            assert not torch.equal(a, b) and not torch.equal(b, c) and not torch.equal(a, c)


def test_evaluation_gives_the_training_mode_back() -> None:
    """From epoch 2 on public code trained with frozen batch-norm."""
    data = digits()
    data.load()
    net = coterie.PeerNet(lambda: TinyNet(10, channels=1), 3, "stage3", torch.randn(2, 1, 8, 8))
    method = coterie.PCL(net).train()
    method.net.peers[0].stage1[0].eval()  # a user's own frozen layer stays as it was
    before = [m.training for m in method.modules()]
    evaluate(method, data.test_batches(400))
    assert [m.training for m in method.modules()] == before and any(before) and not all(before)


def test_targets_are_detached_and_kl_is_per_image() -> None:
    method, views, y = make(), [torch.randn(8, 3, 8, 8) for _ in range(3)], torch.randint(5, (8,))
    terms = method(views, y, 80)
    terms["distil_ensemble"].backward()
    assert method.classifier.weight.grad is None
    z, t = torch.randn(3, 8, 5), torch.randn(8, 5)
    values = losses.distil(t, z, 3.0).mean(-1).tolist()
    assert values == pytest.approx([kl(t.numpy(), peer.numpy(), 3.0) for peer in z], rel=1e-4)


def test_loading_a_state_puts_every_weight_back_where_it_was() -> None:
    """Public code loads the averaged weights into the student."""
    method = make()
    for _ in range(3):
        with torch.no_grad():
            for p in method.parameters():
                if p.requires_grad:
                    p.add_(torch.randn_like(p))
        method.after_step()
    other = make()
    other.load_state_dict(method.state_dict())
    assert torch.equal(other.net.peers[0].stem.weight, method.net.peers[0].stem.weight)
    assert torch.equal(other.mean.average.net.peers[0].stem.weight, method.mean.average.net.peers[0].stem.weight)
    assert not torch.equal(other.net.peers[0].stem.weight, other.mean.average.net.peers[0].stem.weight)
    assert other.net.peers[0].stem is other.net.peers[1].stem


def test_what_is_reported_is_peer_1_and_the_ensemble_is_evaluated() -> None:
    """The best of three peers at the best test epoch was reported, and PCL-E never evaluated."""
    method = make()
    scores = evaluate(method, [(torch.randn(8, 3, 8, 8), torch.randint(5, (8,)))])
    assert scores["deployed"] == "mean1"
    assert {"ensemble", "raw_ensemble", "peer1", "peer3", "mean1", "mean3"} <= set(scores["predictors"])

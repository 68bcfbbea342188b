"""PCL and Baseline: who receives which gradient, every option, what is deployed."""

from __future__ import annotations

import inspect
from itertools import pairwise

import pytest
import torch
from torch import Tensor

import coterie
from coterie.errors import InputError
from coterie.methods.losses import distil, peer_divergences, ramp_up, reduce
from tests.helpers.common import TinyNet


def make(m: int = 3, **options: object) -> coterie.PCL:
    torch.manual_seed(1)
    return coterie.PCL(coterie.PeerNet(TinyNet, m, "stage3", torch.randn(2, 3, 8, 8)), **options)


@pytest.fixture
def batch() -> tuple[list[Tensor], Tensor]:
    return [torch.randn(6, 3, 8, 8) for _ in range(3)], torch.randint(5, (6,))


def gradients(method: coterie.Method, loss: Tensor) -> dict[str, Tensor]:
    """The gradients of one term; parameters it does not reach are absent."""
    method.zero_grad()
    loss.backward(retain_graph=True)
    return {n: p.grad for n, p in method.named_parameters() if p.grad is not None and bool((p.grad != 0).any())}


def test_who_receives_which_gradient(batch: tuple[list[Tensor], Tensor]) -> None:
    method = make()
    terms = method(*batch, 40)
    everything = {n for n, p in method.named_parameters() if p.requires_grad and not n.startswith("mean")}
    # A convolution's bias before batch-norm has no gradient by arithmetic.
    silent = {n for n in everything if n.endswith(("stage1.0.bias", "stage2.0.bias", "stage3.0.bias"))}

    reached = set(gradients(method, terms["distil_ensemble"]))
    assert not {n for n in reached if n.startswith("classifier")}  # the teacher is not taught by its pupils
    assert everything - silent - reached == {"classifier.weight", "classifier.bias"}

    reached = set(gradients(method, terms["distil_mean"]))
    assert not {n for n in reached if n.startswith(("mean", "classifier"))}

    reached = set(gradients(method, terms["ce_ensemble"]))
    assert {"classifier.weight", "classifier.bias", "net.peers.0.stem.weight"} <= reached
    for j in range(3):
        assert f"net.peers.{j}.stage3.0.weight" in reached
        assert f"net.peers.{j}.head.weight" not in reached  # the ensemble reads features, not logits

    reached = set(gradients(method, terms["ce_peers"]))
    assert {f"net.peers.{j}.head.weight" for j in range(3)} <= reached and "classifier.weight" not in reached
    assert all(p.grad is None for p in method.mean.parameters())


def test_options_for_gradients(batch: tuple[list[Tensor], Tensor]) -> None:
    method = make(ensemble_gradient=False)
    reached = set(gradients(method, method(*batch, 40)["ce_ensemble"]))
    assert reached == {"classifier.weight", "classifier.bias"}
    method = make(teacher_gradient=True)
    assert "classifier.weight" in gradients(method, method(*batch, 40)["distil_ensemble"])


def test_components_of_table_2_add_one_term_each(batch: tuple[list[Tensor], Tensor]) -> None:
    rows = [
        dict(ensemble="none", peer_teacher="none"),
        dict(distil_ensemble=False, peer_teacher="none"),
        dict(peer_teacher="none"),
        dict(),
    ]
    names = ["ce_peers", "ce_ensemble", "distil_ensemble", "distil_mean"]
    results = [{k: v.item() for k, v in make(**row)(*batch, 40).items()} for row in rows]
    for i, terms in enumerate(results):
        assert [name for name in names if terms[name] != 0] == names[: i + 1]
        assert terms["loss"] == pytest.approx(sum(terms[n] for n in names), rel=1e-6)
    for a, b in pairwise(results):
        assert a["ce_peers"] == pytest.approx(b["ce_peers"], rel=1e-6)


def test_variants_of_table_2(batch: tuple[list[Tensor], Tensor]) -> None:
    views, y = batch
    w = ramp_up(40, 80)
    for kind in ("mutual", "own_mean", "mean"):
        method = make(peer_teacher=kind).eval()
        if kind != "mutual":
            with torch.no_grad():
                for p in method.mean.parameters():
                    p.mul_(1.1)
        z = method.net(views).logits
        teachers = z if kind == "mutual" else method.mean.average.net(views).logits
        expected = (
            reduce(distil(teachers, z, 3.0))
            if kind == "own_mean"
            else reduce(peer_divergences(teachers, z, 3.0), scale=9.0) / 2
        )
        assert method(views, y, 40)["distil_mean"].item() == pytest.approx(w * expected.item(), rel=1e-5)
        assert method.deployed == ("peer1" if kind == "mutual" else "mean1")
    mutual = make(peer_teacher="mutual").eval()
    z = mutual.net(views).logits
    gradient = gradients(mutual, mutual(views, y, 40)["distil_mean"])["net.peers.1.head.weight"]
    detached, flowing = (
        gradients(mutual, w * reduce(peer_divergences(targets, z, 3.0), scale=9.0) / 2)["net.peers.1.head.weight"]
        for targets in (z.detach(), z)
    )
    assert torch.allclose(gradient, detached) and not torch.allclose(gradient, flowing)


def test_logit_sum(batch: tuple[list[Tensor], Tensor]) -> None:
    views, y = batch
    method = make(ensemble="sum").eval()
    assert not hasattr(method, "classifier")
    z = method.net(views).logits.sum(0)
    expected = torch.nn.functional.cross_entropy(z, y)
    assert method(views, y, 40)["ce_ensemble"].item() == pytest.approx(expected.item(), rel=1e-5)
    images = views[0]
    mean = torch.stack([p(images) for p in method.mean.average.net.peers]).sum(0)
    assert torch.allclose(method.predictors()["ensemble"](images), mean)


def test_mean_teachers_may_see_the_view_of_the_peer_they_teach(batch: tuple[list[Tensor], Tensor]) -> None:
    views, y = batch
    method = make(mean_view="taught").eval()
    with torch.no_grad():
        for p in method.mean.parameters():
            p.mul_(1.1)
    z = method.net(views).logits
    means = method.mean.average.net.peers
    expected = (
        sum(reduce(distil(means[k](views[j]), z[j], 3.0)).item() for j in range(3) for k in range(3) if k != j)
        * ramp_up(40, 80)
        / 2
    )
    assert method(views, y, 40)["distil_mean"].item() == pytest.approx(expected, rel=1e-5)
    own = make(mean_view="taught", peer_teacher="own_mean").eval()
    same = make(peer_teacher="own_mean").eval()
    assert own(views, y, 40)["distil_mean"].item() == pytest.approx(
        same(views, y, 40)["distil_mean"].item(), rel=1e-5
    )


def test_without_input_augmentation_one_view_serves_all(batch: tuple[list[Tensor], Tensor]) -> None:
    views, y = batch
    method = make(input_augmentation=False).eval()
    assert method.views == 1 and make().views == 3
    a, b = method(views[0], y, 40), make().eval()([views[0]] * 3, y, 40)
    assert all(a[k].item() == pytest.approx(b[k].item(), rel=1e-5) for k in a)


@pytest.mark.parametrize("m", [1, 2, 4, 6])
def test_any_number_of_peers(m: int) -> None:
    method = make(m)
    views, y = [torch.randn(4, 3, 8, 8) for _ in range(m)], torch.randint(5, (4,))
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.1)
    for _ in range(3):
        terms = method(views, y, 90)
        optimizer.zero_grad()
        terms["loss"].backward()
        optimizer.step()
        method.after_step()
        assert all(torch.isfinite(v) for v in terms.values())
    assert all(p.grad is not None for p in method.parameters() if p.requires_grad)
    assert (terms["distil_mean"].item() == 0) == (m == 1)
    expected = {f"{kind}{j}" for kind in ("peer", "mean") for j in range(1, m + 1)} | {"ensemble", "raw_ensemble"}
    assert set(method.predictors()) == expected


def test_deploy_gives_the_users_own_network_back(batch: tuple[list[Tensor], Tensor]) -> None:
    views, y = batch
    method = make(beta=0.5)
    for epoch in range(3):
        method(views, y, epoch)["loss"].backward()
        with torch.no_grad():
            for p in method.parameters():
                if p.grad is not None:
                    p -= 0.1 * p.grad
        method.zero_grad()
        method.after_step()
    student = method.deploy()
    assert type(student) is TinyNet and not student.training
    assert all(p.requires_grad for p in student.parameters())
    plain = TinyNet()
    plain.load_state_dict(student.state_dict(), strict=True)
    images = torch.randn(7, 3, 8, 8)
    method.eval()
    assert torch.equal(plain.eval()(images), method.predictors()["mean1"](images))
    assert torch.equal(student(images), plain(images))
    assert sum(p.numel() for p in student.parameters()) == sum(p.numel() for p in TinyNet().parameters())
    with torch.no_grad():  # it is the user's now: nothing they do reaches the training
        student.stem.weight.zero_()
    assert bool((method.mean.average.net.peers[0].stem.weight != 0).any())


def test_the_ensemble_is_all_mean_teachers_with_the_averaged_classifier() -> None:
    method = make().eval()
    with torch.no_grad():
        for p in method.mean.parameters():
            p.mul_(1.1)
    images = torch.randn(4, 3, 8, 8)
    average = method.mean.average
    features = [torch.relu(p.stage3(p.stage2(p.stage1(p.stem(images))))).mean((2, 3)) for p in average.net.peers]
    expected = average.classifier(torch.cat(features, 1))
    predictors, logits = method.predictors(), method.logits(images)
    assert torch.allclose(predictors["ensemble"](images), expected, atol=1e-6)
    assert set(predictors) == set(logits)
    for name, network in predictors.items():
        assert torch.equal(network(images), logits[name]), name
    # PCL-E has the parameters of the peers and the classifier, and not those of the raw peers besides.
    trainable = sum(p.numel() for p in method.parameters() if p.requires_grad)
    for name in ("ensemble", "raw_ensemble"):
        assert sum(p.numel() for p in predictors[name].parameters()) == trainable


def test_pcl_needs_a_classifier_for_its_features() -> None:
    class NoLinear(TinyNet):
        def forward(self, x: Tensor) -> Tensor:
            return self.stage3(self.stage2(self.stage1(self.stem(x)))).mean((2, 3))

    net = coterie.PeerNet(NoLinear, 2, "stage3", torch.randn(2, 3, 8, 8))
    with pytest.raises(InputError, match="Linear classifier"):
        coterie.PCL(net)
    coterie.PCL(net, ensemble="sum")  # needs no features


def test_every_option_is_documented() -> None:
    for method in (coterie.PCL, coterie.Baseline):
        for name in inspect.signature(method).parameters:
            assert f"    {name}: " in inspect.getdoc(method)


def test_baseline_and_its_controls() -> None:
    net = coterie.PeerNet(TinyNet, 1, None, torch.randn(2, 3, 8, 8)).eval()
    views, y = [torch.randn(4, 3, 8, 8) for _ in range(3)], torch.randint(5, (4,))
    losses = [torch.nn.functional.cross_entropy(net.peers[0](v), y).item() for v in views]
    assert coterie.Baseline(net)(views[0], y, 0)["loss"].item() == pytest.approx(losses[0], rel=1e-5)
    control = coterie.Baseline(net, views=3)
    assert control.views == 3
    assert control(views, y, 0)["loss"].item() == pytest.approx(sum(losses) / 3, rel=1e-5)
    assert set(control.predictors()) == {"peer1"}
    control.keep_mean(0.9)
    assert set(control.predictors()) == {"peer1", "mean1"}
    assert control.deployed == "peer1"  # averaged weights are reported beside the raw ones, not instead
    assert type(control.deploy()) is TinyNet

"""The fast path computes what the plain formulation does: 20 steps of every method, one term at a time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import coterie
from coterie.methods import Method, available
from coterie.metrics.evaluate import evaluate
from coterie.models import factory
from coterie.peers.net import PeerNet
from tests.helpers.device import HAS_FLOAT64, find_device

M, T, ALPHA, BETA, CLASSES, STEPS = 3, 3.0, 8, 0.9, 5, 20
LR, MOMENTUM, DECAY = 0.05, 0.9, 5e-4

Outputs = tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]


def network() -> nn.Module:
    return factory("resnet8", CLASSES, 1)().double()


def build_method(name: str) -> Method:
    torch.manual_seed(0)
    cls = available()[name]
    net = PeerNet(
        network,
        1 if cls.trains == "one network" else M,
        "stage3" if cls.trains == "branches" else None,
        torch.randn(2, 1, 8, 8, dtype=torch.float64),
    )
    options: dict[str, object] = {"teacher": network()} if name == "KD" else {}
    options |= {"beta": BETA} if name in ("PCL", "OwnMean") else {"width": 16} if name == "MCL" else {}
    options |= {"ramp_up": ALPHA} if name in ("PCL", "CL", "ONE", "FFL", "OKDDip") else {}
    method = (
        getattr(coterie, name)(net, **options).double().to(memory_format=torch.channels_last).to(find_device())
    )
    if method.mean is None:
        method.keep_mean(BETA)
    assert isinstance(method, Method)
    return method.train()


def ce(z: Tensor, labels: Tensor) -> Tensor:
    return F.nll_loss(torch.log(torch.exp(z) / torch.exp(z).sum(1, keepdim=True)), labels)


def kl(teacher: Tensor, student: Tensor) -> Tensor:
    p = F.softmax(teacher / T, 1)
    return T * T * F.kl_div(F.log_softmax(student / T, 1), p, reduction="batchmean")


def ramp(epoch: int) -> float:
    return float(torch.exp(torch.tensor(-5.0 * (1 - epoch / ALPHA) ** 2).double())) if epoch < ALPHA else 1.0


def run(method: Method, views: Sequence[Tensor], whole: bool) -> Outputs:
    """Logits, features, maps and trunk outputs, peer by peer; the trunk once for a single view."""
    outputs: Outputs = ([], [], [], [])
    trunk = None
    for j, peer in enumerate(method.net.peers):
        if trunk is None or whole or len(views) > 1:
            view = views[j] if len(views) > 1 else views[0]
            trunk = peer.stage2(peer.stage1(peer.stem(view)))
        last = peer.stage3(trunk)
        pooled = F.adaptive_avg_pool2d(last, 1).flatten(1)
        for values, value in zip(outputs, (peer.fc(pooled), pooled, last, trunk), strict=True):
            values.append(value)
    return outputs


def plain_terms(name: str, method: Method, views: Sequence[Tensor], y: Tensor, epoch: int) -> list[Tensor]:
    """Each weighted term of a method's loss, from the modules of its peers and heads alone."""
    z, features, maps, trunks = run(method, views, available()[name].trains != "branches")
    w, peers = ramp(epoch), range(len(z))
    pairs = [(i, j) for i in peers for j in peers if i != j]
    every = [ce(z[j], y) for j in peers]
    if name in ("Baseline", "KD"):
        if name == "Baseline":
            return every
        with torch.no_grad():
            target = method._teacher.load(method.net)(views[0])
        return [*every, kl(target, z[0])]
    if name == "OwnMean":
        assert method.mean_method is not None
        with torch.no_grad():
            (target,), *_ = run(method.mean_method, views[1:], whole=True)
        return [*every, kl(target, z[0])]
    if name == "DML":
        return [*every, *(kl(z[i].detach(), z[j]) / (M - 1) for i, j in pairs)]
    if name == "KDCL":
        target = torch.empty_like(z[0])
        for b, label in enumerate(y):
            best = min(peers, key=lambda j: float(F.cross_entropy(z[j][b].detach(), label)))
            target[b] = z[best][b].detach()
        return [*every, *(kl(target, z[j]) for j in peers)]
    if name == "CL":
        others = [sum(z[i].detach() for i in peers if i != j) / (M - 1) for j in peers]
        return [*every, *(w * kl(others[j], z[j]) for j in peers)]
    if name == "ONE":
        gate = method.gate(F.adaptive_avg_pool2d(trunks[0], 1).flatten(1))
        teacher = sum(gate[:, j : j + 1] * z[j] for j in peers)
        return [*every, ce(teacher, y), *(w * kl(teacher.detach(), z[j]) for j in peers)]
    if name == "FFL":
        fused = method.classifier(F.adaptive_avg_pool2d(method.fuse(torch.cat(maps, 1)), 1).flatten(1))
        mean = (sum(z) / M).detach()
        return [*every, ce(fused, y), *(w * kl(fused.detach(), z[j]) for j in peers), w * kl(mean, fused)]
    if name == "OKDDip":
        losses = [*every, w * kl(((z[1] + z[2]) / 2).detach(), z[0])]
        for a in (1, 2):
            scores = [(method.query(features[a]) * method.key(features[b])).sum(1) for b in (1, 2)]
            attention = F.softmax(torch.stack(scores, 1), 1)
            losses.append(w * kl(attention[:, :1] * z[1] + attention[:, 1:] * z[2], z[a]))
        return losses
    if name == "MCL":
        return [*every, *contrastive_terms(method, features, y)]
    assert name == "PCL" and method.mean_method is not None
    teacher = method.classifier(torch.cat(features, 1))
    with torch.no_grad():
        teachers, *_ = run(method.mean_method, views, whole=False)
    losses = [*every, ce(teacher, y), *(w * kl(teacher.detach(), z[j]) for j in peers)]
    return [*losses, *(w * kl(teachers[i], z[j]) / (M - 1) for i, j in pairs)]


def contrastive_terms(method: Method, features: Sequence[Tensor], y: Tensor) -> list[Tensor]:
    v = [F.normalize(embed(f), dim=1) for embed, f in zip(method.embed, features, strict=True)]
    s = [[v[i] @ v[j].T / 0.07 for j in range(M)] for i in range(M)]

    def contrast(similarities: Tensor) -> Tensor:
        losses = []
        for a, row in enumerate(similarities):
            others = [k for k in range(len(y)) if k != a]
            positives = [k for k in others if y[k] == y[a]]
            if positives:
                losses.append(torch.stack([torch.logsumexp(row[others], 0) - row[k] for k in positives]).mean())
        return torch.stack(losses).mean()

    pairs = [(i, j) for i in range(M) for j in range(M) if i != j]
    within = [0.1 * contrast(s[i][i]) for i in range(M)]
    between = [0.1 * contrast(s[i][j]) for i, j in pairs]
    taught = [kl(s[j][j].detach(), s[i][i]) + kl(s[j][i].detach(), s[i][j]) for i, j in pairs]
    return [*within, *between, *taught]


def trained(method: Method) -> dict[str, nn.Parameter]:
    return {name: p for name, p in method.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("name", list(available()))
@pytest.mark.skipif(not HAS_FLOAT64, reason="this device has no float64")
def test_twenty_steps_are_those_of_the_plain_formulation(name: str, device: torch.device) -> None:
    fast, slow = build_method(name), build_method(name)
    slow.to(memory_format=torch.contiguous_format)
    optimizer = torch.optim.SGD(trained(fast).values(), LR, momentum=MOMENTUM, nesterov=True, weight_decay=DECAY)
    velocity: dict[str, Tensor] = {}
    random = torch.Generator().manual_seed(1)
    close = {"rtol": 1e-5, "atol": 1e-7}
    for step in range(1, STEPS + 1):
        views = torch.randn(fast.views, 8, 1, 8, 8, generator=random, dtype=torch.float64).to(device)
        y = torch.randint(CLASSES, (8,), generator=random).to(device)
        epoch = step // 2
        terms = fast(list(views) if fast.views > 1 else views[0], y, epoch)
        optimizer.zero_grad()
        terms["loss"].backward()
        loss = sum(plain_terms(name, slow, list(views), y, epoch), start=torch.zeros((), device=device))
        slow.zero_grad()
        loss.backward()
        if name == "CL":  # ILR: the trunk receives the peers' mean gradient
            for part in ("stem", "stage1", "stage2"):
                for p in getattr(slow.net.peers[0], part).parameters():
                    p.grad /= M
        torch.testing.assert_close(terms["loss"].detach(), loss.detach(), **close)
        for (key, p), q in zip(trained(fast).items(), trained(slow).values(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, **close, msg=lambda m, k=f"{key}, step {step}": f"{k}: {m}")
        optimizer.step()
        fast.after_step()
        with torch.no_grad():
            for key, p in trained(slow).items():
                gradient = p.grad + DECAY * p
                velocity[key] = MOMENTUM * velocity[key] + gradient if key in velocity else gradient.clone()
                p -= LR * (gradient + MOMENTUM * velocity[key])
            assert slow.mean_method is not None
            average = dict(slow.mean_method.named_parameters())
            keep = min(1 - 1 / step, BETA)  # Eq. 8
            for key, p in slow.named_parameters():
                if not key.startswith("mean."):
                    average[key].copy_(keep * average[key] + (1 - keep) * p)
            if name != "PCL":  # PCL's mean teachers have statistics of their own
                means = dict(slow.mean_method.named_buffers())
                for key, b in slow.named_buffers():
                    if not key.startswith("mean."):
                        means[key].copy_(keep * means[key] + (1 - keep) * b if b.is_floating_point() else b)
    for (key, a), b in zip(fast.state_dict().items(), slow.state_dict().values(), strict=True):
        if isinstance(a, Tensor):
            torch.testing.assert_close(a, b, **close, msg=lambda m, k=key: f"{k}: {m}")
    same_metrics(fast, slow, random)


def same_metrics(fast: Method, slow: Method, random: torch.Generator) -> None:
    """What an evaluation says, against each predictor by itself, image by image."""
    images = torch.randn(12, 1, 8, 8, generator=random, dtype=torch.float64).to(find_device())
    labels = torch.randint(CLASSES, (12,), generator=random).to(find_device())
    scores = evaluate(fast, [(images[:7], labels[:7]), (images[7:], labels[7:])])["predictors"]
    slow.eval()
    for name, predictor in slow.predictors().items():
        with torch.no_grad():
            logits = [predictor(image[None])[0] for image in images]
        wrong = sum(int(z.argmax()) != int(y) for z, y in zip(logits, labels, strict=True))
        nll = sum(float(F.cross_entropy(z, y)) for z, y in zip(logits, labels, strict=True)) / len(labels)
        assert scores[name]["error"] == pytest.approx(100 * wrong / len(labels))
        assert scores[name]["nll"] == pytest.approx(nll, rel=1e-5)

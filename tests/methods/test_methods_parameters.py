"""What each method adds to its peers: exact parameter counts."""

from __future__ import annotations

import pytest
import torch

import coterie
from coterie import models
from coterie.methods import Method
from coterie.peers.cost import parameters
from coterie.peers.net import PeerNet
from tests.helpers.common import TinyNet

BRANCHED = ["CL", "ONE", "OKDDip", "FFL", "PCL"]

# methods.md and backbones.md: three branches, 10 and 100 classes
RESNET110 = {
    "ONE": (2_893_047, 2_962_437),
    "OKDDip": (2_909_038, 2_978_428),
    "FFL": (3_100_792, 3_193_312),
    "PCL": (2_900_344, 3_038_944),
}
# backbones.md's figures in millions are 1.176, 1.177, 1.191 and 1.178; the last one is 1.1775, rounded up.
RESNET32 = {"ONE": 1_175_639, "OKDDip": 1_176_558, "FFL": 1_190_712, "PCL": 1_177_464}


def trained(method: Method) -> int:
    """Parameters that are trained: averages are not counted."""
    return sum(p.numel() for p in method.parameters() if p.requires_grad)


def build_method(method: str, model: str, classes: int) -> Method:
    make = models.networks()[model]
    net = PeerNet(lambda: make(num_classes=classes), 3, "stage3", torch.zeros(2, 3, 32, 32))
    built: Method = getattr(coterie, method)(net)
    return built


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("method", RESNET110)
def test_resnet110(method: str, classes: int) -> None:
    net = build_method(method, "resnet110", classes)
    expected = RESNET110[method][classes == 100]
    assert trained(net) == expected
    assert parameters(net.predictors()["ensemble"]) == expected
    assert parameters(net.deploy()) == (1_147_738 if classes == 10 else 1_170_868)


@pytest.mark.parametrize("method", RESNET32)
def test_resnet32(method: str) -> None:
    assert trained(build_method(method, "resnet32", 10)) == RESNET32[method]


@pytest.mark.parametrize("m", [2, 3, 4])
@pytest.mark.parametrize("method", BRANCHED)
def test_what_a_method_adds(method: str, m: int) -> None:
    """The formulas of methods.md: d, d_trunk = 16, C = 5 in the tiny network."""
    d = trunk = 16
    classes = 5
    extra = {
        "CL": 0,
        "ONE": m * trunk + 3 * m,
        "OKDDip": 2 * d * (d // 8),
        "FFL": 9 * m * d + 2 * m * d + m * d**2 + 2 * d + d * classes + classes,
        "PCL": m * d * classes + classes,
    }
    net = PeerNet(TinyNet, m, "stage3")
    alone, branch = parameters(TinyNet()), parameters(TinyNet().stage3) + parameters(TinyNet().head)
    assert parameters(net) == alone + (m - 1) * branch
    assert trained(getattr(coterie, method)(net)) == parameters(net) + extra[method]


def test_whole_networks_and_their_teacher() -> None:
    alone = parameters(TinyNet())
    assert parameters(coterie.DML(PeerNet(TinyNet, 3))) == 3 * alone
    assert parameters(coterie.KDCL(PeerNet(TinyNet, 3))) == 3 * alone
    assert parameters(coterie.KD(PeerNet(TinyNet, 1), TinyNet(width=32))) == alone
    assert parameters(coterie.Baseline(PeerNet(TinyNet, 1))) == alone

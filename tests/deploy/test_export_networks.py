"""Export of every network and ensemble there is, by every format, and of the user's own."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import nn

from coterie import models
from coterie.deploy.export import export_run
from coterie.deploy.exported import open_exported
from coterie.deploy.formats import EnsembleWithPeers, make_writer
from coterie.deploy.verify import compare_outputs
from coterie.errors import InputError
from coterie.methods.base import Ensemble
from coterie.methods.pcl import PCL
from coterie.peers.cuts import default_cut
from coterie.peers.net import PeerNet
from coterie.runs.rebuild import restored
from tests.deploy.test_predict import Bytes
from tests.helpers.common import printed, train
from tests.helpers.deployables import lived_in, metadata

FORMATS = ("safetensors", "onnx", "pt2")


TIMM = (
    "timm:mobilenetv3_small_050",
    "timm:efficientnet_b0",
    "timm:convnext_atto",
    "timm:vit_tiny_patch16_224",
    "timm:swin_tiny_patch4_window7_224",
    "timm:densenet121",
)


class Single(Bytes):
    """One test image, and a name of its own."""

    classes = ["a, b", "\u0645\u06cc\u200c\u062e"]  # with a joiner, as Persian has it

    def __init__(self, train: bool = True) -> None:
        self.targets = [0, 1] * 4 if train else [1]


def test_a_data_set_of_the_users_own_with_one_test_image(tmp_path: Path) -> None:
    source = f"{__name__}.Single"
    options = ["--method", "Baseline", "--model", "resnet8", "--epochs", 1, "--batch", 4]
    printed("train", *options, "--data", source, "--out", tmp_path / "run")
    done = export_run(tmp_path / "run", "pt2", output=tmp_path / "s.pt2")
    loaded = open_exported(done.file, trust=True)
    assert loaded.metadata.classes == Single.classes and loaded.metadata.provenance["data"] == "Single"
    assert "datasets:\n- Single\n" in done.card.read_text()
    assert loaded.run(torch.randn(5, 3, 8, 6))[0].shape == (5, 2)
    assert json.loads(printed("evaluate", tmp_path / "run", "--json")[0])["data"] == "Single"


def test_a_network_of_the_users_own_is_built_only_if_the_user_says_so(tmp_path: Path) -> None:
    network = models.factory("resnet8", 4, 3)()
    file = tmp_path / "w.safetensors"
    make_writer(network, torch.randn(2, 3, 8, 8), "safetensors")(file, metadata("mine.py:make", 4, (3, 8, 8)))
    with pytest.raises(InputError, match=r"code that is not in the file.*name it by `model`"):
        open_exported(file)
    images = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(open_exported(file, "resnet8").run(images)[0], network.eval()(images))
    with pytest.raises(InputError, match="does not fit resnet14"):
        open_exported(file, "resnet14")


def test_tied_weights_keep_all_their_keys(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    network[1].weight = network[0].weight
    make_writer(network, torch.randn(2, 4), "safetensors")(tmp_path / "t", metadata("x", 4, (1, 2, 2)))
    other = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    other.load_state_dict(load_file(tmp_path / "t"), strict=True)
    torch.testing.assert_close(other[1].weight, network[0].weight)


def _shape(name: str) -> tuple[int, int, int]:
    return (3, 224, 224) if name.startswith("timm:") else (3, 32, 32)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", [*models.networks(), *TIMM])
def test_every_network_makes_the_round_trip(name: str, kind: str, tmp_path: Path) -> None:
    shape = _shape(name)
    network = lived_in(models.factory(name, 7, 3)())
    about = metadata(name, 7, shape)
    make_writer(network, torch.randn(2, *shape), kind)(tmp_path / "file", about)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(2)
    sizes = (1, 3) if shape[1] > 32 else (1, 3, 64)
    images = [torch.randn(size, *shape, generator=generator) for size in sizes]
    comparison = compare_outputs(network, open_exported(tmp_path / "file", trust=True), images)
    assert comparison["relative_difference"] <= comparison["tolerance"]
    assert comparison["label_agreement"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "safetensors") for name in [*models.networks(), *TIMM]),
        *product(("vgg16", "densenet40_12", TIMM[0]), ("onnx", "pt2")),
    ],
)
def test_every_ensemble_makes_the_round_trip(name: str, kind: str, tmp_path: Path) -> None:
    shape = _shape(name)
    make, example = models.factory(name, 7, 3), torch.randn(2, *shape)
    cut = default_cut(make(), example)
    network = EnsembleWithPeers(Ensemble(PCL(PeerNet(make, 3, cut, example)))).eval()
    lived_in(network)
    ensemble = {"method": "PCL", "options": {}, "peers": 3, "cut": cut}
    put = make_writer(network, example, kind)  # type: ignore[arg-type]
    put(tmp_path / "file", metadata(name, 7, shape, ensemble=ensemble))
    comparison = compare_outputs(network, open_exported(tmp_path / "file", trust=True), [torch.randn(3, *shape)])
    assert comparison["relative_difference"] <= comparison["tolerance"] and comparison["label_agreement"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["PCL", "Baseline"])
def test_a_run_exports_in_every_format(method: str, tmp_path: Path) -> None:
    run = train(tmp_path / "run", "--method", method, "--model", "resnet20")
    for kind in FORMATS:
        printed("export", run, "--format", kind)
    name = "mean1" if method == "PCL" else "peer1"
    assert {p.name for p in run.glob(f"{name}.*")} == {f"{name}.{k}{end}" for k in FORMATS for end in ("", ".md")}


def test_peers_of_different_architectures_are_named(tmp_path: Path) -> None:
    run = train(tmp_path / "run", "--method", "DML", "--peers", "resnet8,resnet14", "--epochs", 1)
    recipe, method, _ = restored(run)
    images = next(recipe.data.test_batches(3))[0]
    with torch.no_grad():
        expected = method.eval().logits(images)
    for name, model in (("peer1", "resnet8"), ("peer2", "resnet14"), ("ensemble", "resnet8,resnet14")):
        loaded = open_exported(export_run(run, predictor=name, output=tmp_path / name).file)
        assert loaded.metadata.model["name"] == model
        torch.testing.assert_close(loaded.run(images)[0], expected[name], atol=1e-4, rtol=1e-4)

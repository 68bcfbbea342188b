"""Files that fit: the ending decides, plain state dicts, timm's folders, the Hub, and the card's own code."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from unittest.mock import create_autospec

import numpy as np
import pytest
import torch
from huggingface_hub import HfApi, RepoUrl
from PIL import Image

from coterie import load, models
from coterie.compat import import_torchvision
from coterie.deploy.card import torchvision_code
from coterie.deploy.export import export_run
from coterie.deploy.exported import open_exported
from coterie.deploy.pictures import prepare_picture
from coterie.deploy.push import push
from coterie.errors import Failure, InputError
from coterie.models.metadata import read_metadata
from coterie.runs.rebuild import restored
from tests.helpers.common import build_once, picture, printed, refused
from tests.helpers.deployables import metadata
from tests.helpers.photographs import photographs


@pytest.fixture(scope="module")
def timm_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network of timm, trained on photographs."""

    def build(folder: Path) -> None:
        photographs(folder / "photos", train=12, val=8)
        options = ["--data", folder / "photos", "--data.size", 32, "--data.workers", 0, "--method", "Baseline"]
        options += ["--model", "timm:resnet10t", "--epochs", 2, "--batch", 8, "--out", folder / "run"]
        printed("train", *options)

    return build_once(tmp_path_factory, "timm_run", build) / "run"


def test_the_ending_decides_and_a_mismatch_is_refused(pcl_run: Path, tmp_path: Path) -> None:
    printed("export", pcl_run, "-o", tmp_path / "a.onnx")
    assert open_exported(tmp_path / "a.onnx").runtime.startswith("onnxruntime")
    sentence = refused("export", pcl_run, "--format", "safetensors", "-o", tmp_path / "b.onnx")
    assert (
        sentence
        == f"{tmp_path / 'b.onnx'} has the ending of onnx, but --format is safetensors: change one of them."
    )
    assert "has the ending of safetensors" in refused(
        "export", pcl_run, "--format", "timm", "-o", tmp_path / "c.safetensors"
    )
    with pytest.raises(InputError, match="has the ending of pth, but `format` is onnx"):
        load(pcl_run).export(tmp_path / "d.pt", format="onnx")
    assert "none of the endings" in refused("export", pcl_run, "-o", tmp_path / "e.bin")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.onnx", "a.onnx.md"]
    printed(
        "export", pcl_run, "--format", "safetensors", "-o", tmp_path / "e.bin"
    )  # an unknown ending may be named
    assert open_exported(tmp_path / "e.bin").metadata.predictor == "mean1"


@pytest.mark.parametrize("name", ["student.pth", "student.pt"])
def test_a_plain_state_dict(name: str, pcl_run: Path, tmp_path: Path) -> None:
    text, _ = printed("export", pcl_run, "-o", tmp_path / name)
    assert "largest difference of a logit 0.00e+00" in text
    weights = torch.load(tmp_path / name, weights_only=True)
    network = models.factory("resnet8", 10, 1)()
    network.load_state_dict(weights, strict=True)
    deployed = restored(pcl_run)[1].deploy()
    images = torch.randn(3, 1, 8, 8)
    with torch.no_grad():
        assert torch.equal(network.eval()(images), deployed.eval()(images))
    assert f'torch.load("{name}", weights_only=True)' in (tmp_path / f"{name}.md").read_text()
    assert "holds weights alone" in refused("predict", tmp_path / name, tmp_path / name)
    with pytest.raises(InputError, match="`format` pth holds a single network: export ensemble as safetensors"):
        export_run(pcl_run, "pth", "ensemble", tmp_path / "e.pth")


@pytest.mark.parametrize("name", ["mean1", pytest.param("ensemble", marks=pytest.mark.slow)])
def test_a_program_for_executorch(name: str, pcl_run: Path, tmp_path: Path) -> None:
    from executorch.runtime import Runtime

    file = tmp_path / "student.pte"
    done = export_run(pcl_run, predictor=name, output=file)
    assert done.metadata.verified["runtime"].startswith("executorch")
    assert done.metadata.verified["label_agreement"] == 1.0 and done.metadata.verified["max_difference"] < 1e-3
    recipe, method, _ = restored(pcl_run)
    images, _ = next(recipe.data.test_batches(1))
    outputs = Runtime.get().load_program(file).load_method("forward").execute([images])
    with torch.no_grad():
        torch.testing.assert_close(outputs[0], method.eval().logits(images)[name], atol=1e-4, rtol=1e-4)
    assert len(outputs) == (2 if name == "ensemble" else 1)
    assert str(Path.cwd()).encode() not in file.read_bytes()
    assert "is a program for ExecuTorch" in refused("predict", file, file)
    assert "has the ending of executorch" in refused("export", pcl_run, "--format", "onnx", "-o", file)


def test_without_executorch_the_remedy_is_named(
    pcl_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == "executorch" else find(n, *a))
    assert "pip install executorch" in refused("export", pcl_run, "-o", tmp_path / "a.pte")


def test_a_folder_that_timm_loads(timm_run: Path, tmp_path: Path) -> None:
    timm = import_torchvision("timm")
    folder = tmp_path / "student"
    for _ in range(2):  # written, and written over
        text, _ = printed("export", timm_run, "--format", "timm", "-o", folder)
    assert f"timm {timm.__version__}: largest difference of a logit" in text
    assert sorted(file.name for file in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    assert [file.name for file in tmp_path.iterdir()] == ["student"]
    network = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    recipe, method, _ = restored(timm_run)
    images, _ = next(recipe.data.test_batches(8))
    with torch.no_grad():
        torch.testing.assert_close(network(images), method.deploy().eval()(images))
    config = timm.data.resolve_data_config({}, model=network)
    assert tuple(config["input_size"]) == (3, 32, 32) and tuple(config["mean"]) == recipe.data.mean
    transform = timm.data.create_transform(**config)
    file = recipe.data.path("test", 0)
    ours = prepare_picture(recipe.data.original(0, "test"), recipe.data.preprocessing())
    assert (transform(Image.open(file)) - ours).abs().max() < 3 / 255 / 0.22  # Pillow rounds differently
    assert json.loads((folder / "config.json").read_text())["label_names"] == ["china", "flower"]
    assert "china" in printed("predict", folder / "model.safetensors", file)[0]
    assert "library_name: timm" in (folder / "README.md").read_text()


def test_a_transformer_of_timm_keeps_the_size_of_its_images(tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = "{patch_size: 4, depth: 1, embed_dim: 24, num_heads: 2}"
    train = ["train", "--model", "timm:vit_tiny_patch16_224", "--model_options", options, "--data", "digits"]
    printed(*train, "--data.limit", 10, "--method", "Baseline", "--epochs", 1, "--batch", 50, "--out", run)
    done = export_run(run, "timm", output=tmp_path / "vit")
    assert done.metadata.verified["label_agreement"] == 1.0
    config = json.loads((tmp_path / "vit" / "config.json").read_text())
    assert config["model_args"]["img_size"] == 8 and config["pretrained_cfg"]["input_size"] == [1, 8, 8]


def test_networks_that_timm_does_not_make_are_refused(pcl_run: Path, tmp_path: Path) -> None:
    assert "resnet8 is no network of timm" in refused("export", pcl_run, "--format", "timm", "-o", tmp_path / "x")
    (tmp_path / "file").write_text("")
    assert "name a folder in a directory" in refused(
        "export", pcl_run, "--format", "timm", "-o", tmp_path / "file"
    )
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file"]


def test_fine_tuning_from_a_state_dict(timm_run: Path, tmp_path: Path) -> None:
    export_run(timm_run, output=tmp_path / "w.pth")
    export_run(timm_run, output=tmp_path / "w.safetensors")
    photos = timm_run.parent / "photos"
    train = ["train", "--data", photos, "--data.size", 32, "--data.workers", 0, "--model", "timm:resnet10t"]
    train += ["--method", "Baseline", "--epochs", 1, "--batch", 8]
    for name in ("w.pth", "w.safetensors"):
        printed(*train, "--init", tmp_path / name, "--out", tmp_path / f"run-{name}")
    first, second = (
        json.loads((tmp_path / f"run-{n}" / "metrics.jsonl").read_text()) for n in ("w.pth", "w.safetensors")
    )
    assert first["terms"] == second["terms"]
    out = ["--out", tmp_path / "run"]
    torch.save({"epoch": 3, "state_dict": {"w": torch.zeros(1)}}, tmp_path / "a.pth")
    assert "is not a state dict: it holds epoch, state_dict, not weights alone" in refused(
        *train, "--init", tmp_path / "a.pth", *out
    )
    torch.save(torch.zeros(3), tmp_path / "b.pt")
    assert "it holds Tensor, not weights alone" in refused(*train, "--init", tmp_path / "b.pt", *out)
    torch.save(torch.nn.Linear(2, 2), tmp_path / "c.pt")
    assert "is not a state dict: it holds more than weights" in refused(*train, "--init", tmp_path / "c.pt", *out)
    (tmp_path / "d.pth").write_bytes(b"no weights")
    assert "is not a state dict" in refused(*train, "--init", tmp_path / "d.pth", *out)
    assert "There is no weights file" in refused(*train, "--init", tmp_path / "e.pth", *out)
    torch.save({"other": torch.zeros(1)}, tmp_path / "f.pth")
    assert "does not fit the network" in refused(*train, "--init", tmp_path / "f.pth", *out)


def double_of_the_hub(uploads: dict[str, bytes]) -> HfApi:
    """Return an object with the signatures of `HfApi` that keeps what is uploaded."""
    api = create_autospec(HfApi, instance=True)
    api.create_repo.side_effect = lambda repo, **options: RepoUrl(f"https://huggingface.co/me/{repo}")

    def upload(*, repo_id: str, folder_path: str, commit_message: str) -> None:
        assert repo_id == "me/student" and commit_message.endswith("by coterie")
        uploads.update({file.name: file.read_bytes() for file in Path(folder_path).iterdir()})

    api.upload_folder.side_effect = upload
    return api


def test_pushing_uploads_the_file_and_the_card(
    shipped: Path, timm_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads: dict[str, bytes] = {}
    api = double_of_the_hub(uploads)
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: api)
    out, _ = printed("push", shipped / "student.onnx", "student", "--private")
    assert out == "https://huggingface.co/me/student\n"
    api.create_repo.assert_called_once_with("student", private=True, exist_ok=True)
    card = (shipped / "student.onnx.md").read_bytes()
    assert uploads == {"student.onnx": (shipped / "student.onnx").read_bytes(), "README.md": card}
    uploads.clear()
    export_run(timm_run, "timm", output=tmp_path / "student")
    assert push(tmp_path / "student", "student", api=api) == "https://huggingface.co/me/student"
    assert sorted(uploads) == ["README.md", "config.json", "model.safetensors"]
    (tmp_path / "student" / "README.md").unlink()
    assert "is not a folder that `coterie export --format timm` wrote" in refused(
        "push", tmp_path / "student", "s"
    )
    (tmp_path / "bare.onnx").write_bytes(b"x")
    assert "with its card beside it: there is no" in refused("push", tmp_path / "bare.onnx", "s")


def test_a_hub_that_refuses_is_a_sentence(shipped: Path) -> None:
    api = double_of_the_hub({})
    api.create_repo.side_effect = ConnectionError("no network")
    with pytest.raises(Failure, match=r"could not be uploaded to student \(no network\): `hf auth login`"):
        push(shipped / "student.onnx", "student", api=api)
    from huggingface_hub.errors import HFValidationError

    api.create_repo.side_effect = HFValidationError("Repo id must use alphanumeric chars")
    with pytest.raises(InputError, match="'a b' is no name of a repository: Repo id must use"):
        push(shipped / "student.onnx", "a b", api=api)


@pytest.mark.parametrize(
    ("channels", "resize", "filter"),
    [(3, 36, "bilinear"), (3, None, "bilinear"), (1, 36, "bilinear"), (3, None, "box"), (1, 36, "box")],
)
def test_the_cards_torchvision_code_prepares_as_predict_does(
    channels: int, resize: int | None, filter: str, tmp_path: Path
) -> None:
    import_torchvision("torchvision.transforms.v2")
    about = metadata("resnet8", 4, (channels, 32, 32))
    about.input |= {"resize": resize, "filter": filter, "mean": [0.4] * channels, "std": [0.2] * channels}
    names: dict[str, object] = {}
    exec(torchvision_code(about), names)
    sizes = [(64, 64), (90, 61), (41, 130)]
    if filter == "box":  # an average is Pillow's where a side is a multiple
        sizes = [(factor * (resize or 32), factor * (resize or 32)) for factor in (2, 3)]
    for seed, size in enumerate(sizes):
        image = picture(seed, size)
        ours = prepare_picture(image.convert("L") if channels == 1 else image, about.input)
        theirs = names["transform"](image)  # type: ignore[operator]
        assert theirs.shape == ours.shape and (theirs - ours).abs().max() <= 1.01 / 255 / 0.2


def test_the_card_shows_the_code_where_it_is_known(shipped: Path) -> None:
    card = (shipped / "student.onnx.md").read_text()
    about = read_metadata(shipped / "student.safetensors")
    assert about is not None and torchvision_code(about) in card and "v2.Grayscale()" in card
    about.input |= {"mean": None, "std": None}
    assert torchvision_code(about) == "" and np.isfinite(about.temperature)

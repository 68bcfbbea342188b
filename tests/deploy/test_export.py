"""Export: the file computes what the run's network computes, and says so; or nothing is replaced."""

from __future__ import annotations

import dataclasses
import json
import resource
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor, nn

from coterie import models
from coterie.deploy.card import write_card
from coterie.deploy.export import export_run
from coterie.deploy.exported import open_exported
from coterie.deploy.formats import make_writer
from coterie.deploy.verify import compare_outputs, edge_inputs
from coterie.errors import Failure, InputError
from coterie.runs.rebuild import restored
from tests.helpers.common import printed, refused, train


def test_each_format_gives_the_test_sets_logits_in_any_batch(pcl_run: Path, shipped: Path, tmp_path: Path) -> None:
    recipe, method, _ = restored(pcl_run)
    method.eval()
    images, _ = next(recipe.data.test_batches(64))
    with torch.no_grad():
        expected = method.logits(images)
    files = [shipped / "student.onnx", shipped / "ensemble.onnx", shipped / "student.safetensors"]
    for kind, name in (
        ("safetensors", "ensemble"),
        ("pt2", "ensemble"),
        ("safetensors", "peer2"),
    ):
        files.append(export_run(pcl_run, kind, name, tmp_path / f"{name}.{kind}").file)  # type: ignore[arg-type]
    for file in files:
        loaded = open_exported(file, trust=True)
        name = loaded.metadata.predictor
        for size in (1, 3, 64):
            logits, peers = loaded.run(images[:size].contiguous())
            torch.testing.assert_close(logits, expected[name][:size], atol=1e-4, rtol=1e-4)
            assert (peers is not None) == (name == "ensemble")
            if peers is not None:
                alone = torch.stack([expected[f"mean{j}"][:size] for j in (1, 2, 3)], dim=1)
                torch.testing.assert_close(peers, alone, atol=1e-4, rtol=1e-4)


def test_the_trunk_is_in_the_graph_once(shipped: Path) -> None:
    import onnx

    graph = onnx.load(shipped / "ensemble.onnx").graph
    network = models.factory("resnet8", 10, 1)()
    layers = [name for name, m in network.named_modules() if isinstance(m, nn.Conv2d)]
    branch = [name for name in layers if name.startswith("stage3")]
    assert 0 < len(branch) < len(layers)
    assert sum(node.op_type == "Conv" for node in graph.node) == len(layers) + 2 * len(branch)
    first = graph.input[0].type.tensor_type.shape.dim[0]
    assert first.dim_param and not first.dim_value  # the batch is free


def test_what_a_file_says_about_itself(pcl_run: Path, shipped: Path) -> None:
    about = open_exported(shipped / "student.onnx").metadata
    last = json.loads((pcl_run / "metrics.jsonl").read_text().splitlines()[-1])
    assert about.classes == [str(d) for d in range(10)] and about.shape == (1, 8, 8)
    assert about.input["mean"] == [0.3056] and about.input["std"] == [0.3754]
    assert about.predictor == "mean1" and about.provenance["method"] == "PCL" and about.provenance["epochs"] == 5
    assert about.scores["error"] == last["predictors"]["mean1"]["error"]
    assert about.verified["max_difference"] < 1e-3 and about.verified["label_agreement"] == 1.0
    assert about.verified["runtime"].startswith("onnxruntime") and about.verified["images"] == 256
    assert about.temperature == about.scores["calibrated"]["temperature"] != 1.0
    card = (shipped / "student.onnx.md").read_text()
    front = yaml.safe_load(card.split("---")[1])
    assert front["pipeline_tag"] == "image-classification" and front["datasets"] == ["digits"]
    accuracy = front["model-index"][0]["results"][0]["metrics"][0]
    assert accuracy["type"] == "accuracy" and accuracy["value"] == pytest.approx(1 - about.scores["error"] / 100)
    assert f"{about.temperature:.4f}" in card and "largest difference" in card
    ticked = dataclasses.replace(about, classes=["a`b", *about.classes[1:]])
    assert "in order: `` a`b ``, `1`," in write_card(ticked, "student.onnx")
    # No path of the machine that exported travels with the file.
    assert str(Path.cwd()).encode() not in (shipped / "student.onnx").read_bytes()


def test_the_command_prints_what_it_stores(pcl_run: Path, tmp_path: Path) -> None:
    file = tmp_path / "s.safetensors"
    shown = json.loads(printed("export", pcl_run, "--predictor", "peer3", "-o", file, "--json")[0])
    assert shown["verified"] == open_exported(file).metadata.verified
    assert shown["predictor"] == "peer3" and shown["card"] == f"{file}.md"
    text, _ = printed("export", pcl_run, "-o", file, "--calibrate")
    assert "largest difference of a logit" in text and "labels agree on 100.00 %" in text
    assert "it was fit on every second test image" in text and "`val_fraction`" in text


def test_a_file_that_differs_is_refused_and_the_old_one_stays(
    pcl_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "student.safetensors"
    export_run(pcl_run, "safetensors", output=file)
    before = file.read_bytes()

    def spoilt(network: nn.Module, example: Tensor, kind: str) -> object:
        with torch.no_grad():
            wrong = models.factory("resnet8", 10, 1)()
            wrong.load_state_dict(network.state_dict())
            wrong.fc.bias[3] += 0.01
        return make_writer(wrong, example, "safetensors")

    monkeypatch.setattr("coterie.deploy.export.make_writer", spoilt)
    with pytest.raises(InputError, match=r"not compute the same: a logit differs by 0\.01.*nothing was replaced"):
        export_run(pcl_run, "safetensors", output=file)
    assert file.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["student.safetensors", "student.safetensors.md"]


def test_a_full_disk_is_a_sentence_and_the_old_file_stays(pcl_run: Path, tmp_path: Path) -> None:
    file = tmp_path / "student.safetensors"
    file.write_bytes(b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(Failure, match="could not be written"):
            export_run(pcl_run, "safetensors", output=file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [p.name for p in tmp_path.iterdir()] == ["student.safetensors"] and file.read_bytes() == b"old"


def test_figures_of_other_weights_are_not_stored(pcl_run: Path, tmp_path: Path) -> None:
    """A run that was stopped: its last figures may be older than its weights, or there may be none yet."""
    run = tmp_path / "run"
    shutil.copytree(pcl_run, run)
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("epochs: 5", "epochs: 9"))
    (run / "metrics.jsonl").write_text("")
    _, stderr = printed("export", run, "-o", tmp_path / "s")
    assert "is not finished: 5 of 9 epochs" in stderr and open_exported(tmp_path / "s").metadata.scores == {}


def test_classes_that_changed_since_are_refused(pcl_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(pcl_run, run)
    described = json.loads((run / "data.json").read_text())
    described["classes"][3] = "drei"
    (run / "data.json").write_text(json.dumps(described))
    with pytest.raises(InputError, match="its classes differ"):
        export_run(run, output=tmp_path / "s")


def test_comparing_sees_not_a_number_and_shape() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    images = [torch.randn(4, 1, 2, 2)]

    def runs(change: object) -> SimpleNamespace:
        metadata = SimpleNamespace(task="single_label")
        return SimpleNamespace(
            run=lambda x: (change(network(x).detach()), None), runtime="test", metadata=metadata
        )  # type: ignore[operator]

    same = compare_outputs(network, runs(lambda z: z), images)  # type: ignore[arg-type]
    assert same["max_difference"] == 0 and same["label_agreement"] == 1 and same["images"] == 4
    nan = compare_outputs(network, runs(lambda z: z * float("nan")), images)  # type: ignore[arg-type]
    assert not nan["relative_difference"] <= nan["tolerance"]
    with pytest.raises(InputError, match="another shape"):
        compare_outputs(network, runs(lambda z: z[:, :2]), images)  # type: ignore[arg-type]
    diverged = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    nn.init.constant_(diverged[1].weight, float("nan"))
    with pytest.raises(InputError, match="network itself gives no numbers"):
        compare_outputs(diverged, runs(lambda z: z), images)  # type: ignore[arg-type]
    shifted = compare_outputs(network, runs(lambda z: z.roll(1, 1)), images)  # type: ignore[arg-type]
    assert shifted["label_agreement"] == 0


def test_edge_inputs_hold_nothing_extremes_and_several_batch_sizes() -> None:
    batch = torch.randn(8, 1, 4, 4)
    edges = edge_inputs(batch)
    assert {len(e) for e in edges} == {1, 3}
    values = torch.cat([e.flatten() for e in edges])
    assert batch.min() in values and batch.max() in values and any(not e.any() for e in edges)


def test_int8_is_smaller_and_its_accuracy_is_measured(pcl_run: Path, shipped: Path, tmp_path: Path) -> None:
    import onnxruntime

    done, wide = export_run(pcl_run, "onnx", output=tmp_path / "small.onnx", int8=True), shipped / "student.onnx"
    assert done.file.stat().st_size < 0.5 * wide.stat().st_size
    # Measured again, with onnxruntime alone.
    recipe, _, _ = restored(pcl_run)
    session = onnxruntime.InferenceSession(str(done.file))
    wrong, count, nll = 0, 0, 0.0
    for images, labels in recipe.data.test_batches(100):
        logits = session.run(None, {"images": images.contiguous().numpy()})[0]
        assert (np.sort(logits)[:, -1] > np.sort(logits)[:, -2]).all()  # the last layer is not rounded to ties
        wrong += int((logits.argmax(1) != labels.numpy()).sum())
        count += len(labels)
        nll += nn.functional.cross_entropy(torch.from_numpy(logits), labels, reduction="sum").item()
    about = open_exported(done.file).metadata.quantized
    assert about is not None and about["test_images"] == count
    assert about["error_int8"] == pytest.approx(100 * wrong / count)
    # The file's scores are its own, and another network's would be noticed.
    assert open_exported(done.file).metadata.scores["nll"] == pytest.approx(nll / count, rel=1e-6)
    assert open_exported(wide).metadata.scores["nll"] != pytest.approx(nll / count, rel=1e-5)
    assert f"value: {round(1 - wrong / count, 6)}" in done.card.read_text()
    assert about["error_float32"] == pytest.approx(open_exported(wide).metadata.scores["error"])
    assert done.metadata.verified["max_difference"] > 1e-3
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
def test_int8_that_ruins_the_network_is_refused(
    pcl_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Ranges learnt from black images alone cannot hold real ones.
    monkeypatch.setattr(
        "coterie.deploy.quantize.calibration_batches", lambda r, m: iter([torch.full((4, 1, 8, 8), -0.8)])
    )
    with pytest.raises(InputError, match="int8 raises the error from"):
        export_run(pcl_run, "onnx", output=tmp_path / "small.onnx", int8=True)
    assert list(tmp_path.iterdir()) == []


def test_what_one_onnx_file_cannot_hold_is_refused(
    pcl_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.deploy.formats.LARGEST_ONNX", 1000)
    with pytest.raises(InputError, match="too large for one ONNX file: choose pt2 or safetensors"):
        export_run(pcl_run, "onnx", output=tmp_path / "large.onnx")
    assert list(tmp_path.iterdir()) == []


def test_class_names_that_are_no_text_are_made_so(
    pcl_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, method, epochs = restored(pcl_run)
    recipe.data.classes = ["cat\n", "caf\udce9", *recipe.data.classes[2:]]  # lines of a file; a Latin-1 folder
    monkeypatch.setattr("coterie.deploy.export.restored", lambda *_: (recipe, method, epochs))
    done = export_run(pcl_run, "safetensors", output=tmp_path / "s.safetensors")
    assert open_exported(done.file).metadata.classes[:3] == ["cat", r"caf\udce9", "2"]


def test_other_image_sizes(pcl_run: Path, tmp_path: Path) -> None:
    done = export_run(pcl_run, "pt2", output=tmp_path / "large.pt2", size=16)
    loaded = open_exported(done.file, trust=True)
    assert loaded.metadata.shape == (1, 16, 16) and loaded.metadata.input["resize"] == 16
    network = restored(pcl_run)[1].deploy()
    images = torch.randn(3, 1, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(loaded.run(images)[0], network(images))


def test_bad_requests(pcl_run: Path, tmp_path: Path) -> None:
    assert "--format expects" in refused("export", pcl_run, "--format", "torchscript")
    with pytest.raises(InputError, match=r"There is no predictor 'mean9'; did you mean 'mean\d'\?"):
        export_run(pcl_run, predictor="mean9")
    with pytest.raises(InputError, match="choose onnx as `format`"):
        export_run(pcl_run, int8=True)
    with pytest.raises(InputError, match="leave out `calibrate` or `size`"):
        export_run(pcl_run, calibrate=True, size=16)
    with pytest.raises(InputError, match="in a directory that exists"):
        export_run(pcl_run, output=tmp_path / "none" / "a.onnx")
    with pytest.raises(InputError, match="not a run directory"):
        export_run(tmp_path)


def test_without_the_optional_packages_the_remedy_is_named(
    pcl_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n.startswith("onnx") else find(n, *a))
    with pytest.raises(InputError, match=r"pip install onnx onnxscript onnxruntime"):
        export_run(pcl_run, "onnx", output=tmp_path / "a.onnx")


def test_the_temperature_is_fit_on_what_the_run_held_out(tmp_path: Path) -> None:
    from coterie.metrics.calibration import temperature

    run = train(tmp_path / "run", "--method", "Baseline", "--data.val_fraction", 0.3, "--epochs", 2)
    text, _ = printed("export", run, "--calibrate", "-o", tmp_path / "s.safetensors")
    about, card = open_exported(tmp_path / "s.safetensors").metadata, (tmp_path / "s.safetensors.md").read_text()
    recipe, method, _ = restored(run)
    x, y = next(recipe.data.test_batches(5000, split="val"))
    test_x, test_y = next(recipe.data.test_batches(5000))
    with torch.no_grad():
        z, test_z = method.deploy()(x), method.deploy()(test_x)
    assert len(y) == 90 and f"on {len(test_y):,} test images; it was fit on 90 held-out images" in text
    assert about.temperature == pytest.approx(temperature(z, y), rel=1e-3)
    expected = nn.functional.cross_entropy(test_z / about.temperature, test_y).item()
    assert about.scores["calibrated"]["after"]["nll"] == pytest.approx(expected, rel=1e-4)
    # Training scored the held-out images, and its scores are not called anything else.
    wrong = 100 * (z.argmax(1) != y).float().mean().item()
    assert (
        about.scores["error"] == pytest.approx(wrong, abs=1e-3) and "On the held-out images of `digits`:" in card
    )


def test_probabilities_are_the_same_with_the_runtime_alone(pcl_run: Path, shipped: Path) -> None:
    """ONNX without Coterie: the file's own metadata is enough to prepare a picture."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(shipped / "student.onnx"))
    about = json.loads(session.get_modelmeta().custom_metadata_map["coterie"])
    recipe, method, _ = restored(pcl_run)
    pixels = np.stack([np.asarray(recipe.data.original(i, "test")) for i in range(5)])[..., None]
    x = (pixels / 255.0 - np.array(about["input"]["mean"])) / np.array(about["input"]["std"])
    logits = session.run(None, {"images": x.transpose(0, 3, 1, 2).astype(np.float32)})[0]
    with torch.no_grad():
        expected = method.deploy()(next(recipe.data.test_batches(5))[0])
    np.testing.assert_allclose(logits, expected.numpy(), atol=1e-4)

"""Files from strangers: a clear sentence, and no code in them is run."""

from __future__ import annotations

import json
import math
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from coterie import models
from coterie.deploy.exported import open_exported
from coterie.deploy.formats import make_writer
from coterie.deploy.predict import predict_pictures
from coterie.errors import InputError
from tests.helpers.common import refused
from tests.helpers.deployables import SHAPE, Bomb, metadata


def test_a_pickle_disguised_as_weights(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    for name in ("a.safetensors", "b.onnx", "c.pt2"):
        (tmp_path / name).write_bytes(pickle.dumps(Bomb(marker)))
        torch.save({"weights": Bomb(marker)}, tmp_path / f"zip-{name}")
        for file in (tmp_path / name, tmp_path / f"zip-{name}"):
            with pytest.raises(InputError, match=r"is a pickle|can run code"):
                open_exported(file)
    assert "is a pickle" in refused("predict", tmp_path / "a.safetensors", tmp_path)
    assert not marker.exists()
    pickle.loads((tmp_path / "a.safetensors").read_bytes())
    assert marker.exists()  # it would have


@pytest.mark.parametrize("kind", ["safetensors", "onnx", "pt2"])
def test_truncated_and_damaged_files(good: dict[str, Path], kind: str, tmp_path: Path) -> None:
    data = good[kind].read_bytes()
    for i, length in enumerate((0, 5, 50, len(data) // 2, len(data) - 20)):
        file = tmp_path / f"{i}.{kind}"
        file.write_bytes(data[:length])
        with pytest.raises(InputError) as caught:
            open_exported(file, trust=True)
        assert str(file) in str(caught.value)
    (tmp_path / "text").write_text("hello, I am a model " * 20)
    with pytest.raises(InputError, match="no safetensors, onnx or pt2 file"):
        open_exported(tmp_path / "text")


def test_a_header_that_promises_too_much(tmp_path: Path) -> None:
    (tmp_path / "h").write_bytes(struct.pack("<Q", 2**60) + b"{" + b" " * 100)
    with pytest.raises(InputError, match="damaged"):
        open_exported(tmp_path / "h")


WRONG: dict[str, Callable[[dict[str, Any]], object]] = {
    "size": lambda m: m["input"].update(size=[8, -1]),
    "size ": lambda m: m["input"].update(size=[10**9, 8]),
    "channels": lambda m: m["input"].update(channels=0),
    "mean": lambda m: m["input"].update(mean=[0.1, 0.2]),
    "std": lambda m: m["input"].update(std=[0]),
    "crop": lambda m: m["input"].update(resize=4),
    "classes": lambda m: m.update(classes=["a", "\x1b[31mred", "c", "d"]),
    "classes ": lambda m: m.update(classes="abcd"),
    "temperature": lambda m: m.update(temperature=0),
    "temperature  ": lambda m: m.update(temperature=1e-300),
    "temperature ": lambda m: m.update(temperature="1; import os"),
    "model": lambda m: m.update(model={"name": 3, "options": {}}),
    "incomplete": lambda m: m.pop("input"),
    "incomplete ": lambda m: m.update(input=None),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_metadata(good: dict[str, Path], what: str, tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    with safe_open(good["safetensors"], framework="pt") as stream:
        about = json.loads(stream.metadata()["coterie"])
    WRONG[what](about)
    file = tmp_path / "w.safetensors"
    save_file(load_file(good["safetensors"]), file, {"coterie": json.dumps(about)})
    with pytest.raises(InputError, match=rf"metadata of .* is damaged \(.*{what.strip()}"):
        open_exported(file)
    save_file(load_file(good["safetensors"]), file)
    with pytest.raises(InputError, match="was not written by `coterie train` or `coterie export`"):
        open_exported(file)


def test_metadata_that_does_not_fit_the_network(good: dict[str, Path], tmp_path: Path) -> None:
    import onnx
    from PIL import Image

    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    model = onnx.load(good["onnx"])
    for change, sentence in (
        ({"classes": ["a", "b"]}, "names 2 classes, but its network gives"),
        ({"size": [9, 9], "resize": 9}, "does not take images of 1x9x9"),
    ):
        about = json.loads(model.metadata_props[0].value)
        (about if "classes" in change else about["input"]).update(change)
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        changed.metadata_props[0].value = json.dumps(about)
        onnx.save(changed, tmp_path / "m.onnx")
        with pytest.raises(InputError, match=sentence):
            list(predict_pictures(open_exported(tmp_path / "m.onnx"), [str(tmp_path / "a.png")]))


def test_a_graph_that_gives_nonsense(tmp_path: Path) -> None:
    from onnx import TensorProto, helper
    from PIL import Image

    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", *SHAPE])

    def predicted(outputs: dict[str, tuple[tuple[int, ...], float]], inputs: int = 1, text: bytes = b"") -> None:
        nodes, graph_outputs = [], []
        for name, (shape, value) in outputs.items():
            filled = helper.make_tensor(name, TensorProto.FLOAT, shape, [value] * math.prod(shape))
            nodes.append(helper.make_node("Constant", [], [name], value=filled))
            graph_outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        graph = helper.make_graph(nodes, "nonsense", [images][:inputs], graph_outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        model.metadata_props.add(key="coterie", value=metadata("resnet8", 4, SHAPE).to_json())
        content = model.SerializeToString().replace(b"class 0", text or b"class 0")
        (tmp_path / "m.onnx").write_bytes(content)
        list(predict_pictures(open_exported(tmp_path / "m.onnx"), [str(tmp_path / "a.png")] * 2))

    good = {"logits": ((2, 4), 1.0)}
    predicted(good)
    for wrong, sentence in (
        ({"logits": ((1, 4), 1.0)}, r"gives an output of \(1, 4\)"),
        ({"logits": ((2, 4), math.nan)}, "gives no numbers"),
        ({**good, "peers": ((2,), 1.0)}, "its metadata is wrong"),
        ({**good, "peers": ((2, 3, 4, 1), 1.0)}, "its metadata is wrong"),
    ):
        with pytest.raises(InputError, match=sentence):
            predicted(wrong)
    with pytest.raises(InputError, match="or it is damaged"):
        predicted(good, inputs=0)
    with pytest.raises(InputError, match="or it is damaged"):
        predicted(good, text=b"\xff\xff\xff\xff\xff\xff\xff")


def test_names_in_a_file_do_not_command_the_terminal(tmp_path: Path) -> None:
    network = models.factory("resnet8", 4, 1)()
    about = metadata("evil\x1b[31m\n.py:make", 4, SHAPE)
    make_writer(network, torch.randn(2, *SHAPE), "safetensors")(tmp_path / "m", about)
    assert "holds the weights of 'evil\\x1b[31m\\n.py:make'" in refused("predict", tmp_path / "m", tmp_path)


def test_onnx_weights_in_other_files_are_not_read(good: dict[str, Path], tmp_path: Path) -> None:
    import onnx

    model = onnx.load(good["onnx"])
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="secret.bin", size_threshold=0)
    assert (tmp_path / "secret.bin").exists()
    with pytest.raises(InputError, match="keeps weights in other files"):
        open_exported(tmp_path / "m.onnx")


@pytest.mark.parametrize("name", ["os:system", "evil.py:make", "builtins.exec", "timm:hf-hub:someone/evil"])
def test_a_model_named_by_a_stranger_is_not_imported(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('ran', 'w')\ndef make(**k): ...")
    network = models.factory("resnet8", 4, 1)()
    make_writer(network, torch.randn(2, *SHAPE), "safetensors")(tmp_path / "m", metadata(name, 4, SHAPE))
    with pytest.raises(InputError, match=r"code that is not in the file|There is no|no module|not found"):
        open_exported(tmp_path / "m")
    ensemble = {"method": "evil.Method", "options": {}, "peers": 2, "cut": None}
    about = metadata("resnet8", 4, SHAPE, ensemble=ensemble)
    make_writer(network, torch.randn(2, *SHAPE), "safetensors")(tmp_path / "e", about)
    with pytest.raises(InputError, match=r"method 'evil\.Method', which is not one of Coterie's"):
        open_exported(tmp_path / "e")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("timm:resnet18", {"pretrained": True}),
        ("timm:resnet18", {"checkpoint_path": "weights.pth"}),
        ("torchvision:resnet18", {"weights": "DEFAULT"}),
    ],
)
def test_a_file_fetches_and_reads_no_other_weights(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    network = models.factory(name, 1000, 3)()
    about = metadata(name, 1000, (3, 32, 32))
    about.model["options"] = options
    make_writer(network, torch.randn(2, 3, 32, 32), "safetensors")(tmp_path / "m", about)
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(open_exported(tmp_path / "m").run(images)[0], network.eval()(images))


def test_options_of_an_ensemble_import_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil_teacher.py").write_text("open('ran', 'w')\nimport torch\nclass Net(torch.nn.Module): ...\n")
    network = models.factory("resnet8", 4, 1)()
    for options in ({"teacher": {"class_path": "evil_teacher.Net"}}, {"teacher": "evil_teacher.Net"}, {"a": 1}):
        about = metadata(
            "resnet8", 4, SHAPE, ensemble={"method": "KD", "options": options, "peers": 1, "cut": None}
        )
        make_writer(network, torch.randn(2, *SHAPE), "safetensors")(tmp_path / "m", about)
        with pytest.raises(InputError, match=r"does not fit resnet8|cannot be made: .* argument 'a'"):
            open_exported(tmp_path / "m")
    assert not (tmp_path / "ran").exists()

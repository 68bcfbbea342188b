"""Files of networks that ask for other files, for more than they hold, or for time without end."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import coterie
from coterie.compat import import_torchvision
from coterie.deploy import deadline
from coterie.deploy.exported import open_exported
from coterie.deploy.onnx_file import FIELDS, has_external_data
from coterie.deploy.predict import predict_pictures
from coterie.errors import Failure, InputError
from tests.helpers.common import refused
from tests.helpers.deployables import SHAPE, metadata

LIMIT = 20.0
"""Seconds in which a file must be refused; it takes less than one on an idle machine."""


def test_external_data_in_the_working_directory(
    good: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = onnx.load(good["onnx"])
    onnx.save(model, "m.onnx", save_as_external_data=True, location="secret.bin", size_threshold=0)
    Image.new("L", (8, 8)).save("a.png")
    assert refused("predict", "m.onnx", "a.png") == (
        "m.onnx keeps weights in other files, which could be any files of this machine: save it with its weights "
        "inside."
    )


def _external() -> TensorProto:
    tensor = numpy_helper.from_array(np.zeros((4, 64), np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    return tensor


def _hiding_places() -> dict[str, onnx.ModelProto]:
    """Models with external data in every place where a tensor can stand."""
    constant = helper.make_node("Constant", [], ["w"], value=_external())
    inner = helper.make_graph([constant], "inner", [], [])
    branch = helper.make_node(
        "If", ["c"], ["y"], then_branch=inner, else_branch=helper.make_graph([], "e", [], [])
    )
    tensors = helper.make_attribute("many", [_external()])
    sparse = onnx.SparseTensorProto(values=_external(), dims=[256])
    models = {}
    for name, nodes in {
        "constant": [constant],
        "branch": [branch],
        "list": [helper.make_node("X", [], ["y"])],
    }.items():
        models[name] = helper.make_model(helper.make_graph(nodes, "g", [], []))
    models["list"].graph.node[0].attribute.append(tensors)
    for name in ("initializer", "sparse", "sparse value", "function", "training", "unset location"):
        models[name] = helper.make_model(helper.make_graph([helper.make_node("X", [], ["y"])], "g", [], []))
    models["initializer"].graph.initializer.append(_external())
    models["sparse"].graph.sparse_initializer.append(sparse)
    attribute = onnx.AttributeProto(name="s", type=onnx.AttributeProto.SPARSE_TENSOR, sparse_tensor=sparse)
    models["sparse value"].graph.node[0].attribute.append(attribute)
    models["function"].functions.add(name="f").node.append(constant)
    models["training"].training_info.add().initialization.CopyFrom(inner)
    models["unset location"].graph.initializer.append(_external())
    models["unset location"].graph.initializer[0].ClearField("data_location")
    return models


def test_external_data_is_seen_wherever_it_stands() -> None:
    for name, model in _hiding_places().items():
        assert has_external_data(model.SerializeToString()), name
    graph = helper.make_graph([], "g", [], [], [numpy_helper.from_array(np.ones(3, np.float32), "w")])
    plain = helper.make_model(graph).SerializeToString()
    assert not has_external_data(plain)
    # Protobuf allows numbers in more bytes than they need, and messages in parts.
    late = helper.make_model(helper.make_graph([], "g", [], [], [_external()])).graph.SerializeToString()
    part = b"\xba\x80\x00" + bytes([0x80 | len(late) & 0x7F, 0x80 | len(late) >> 7, 0x00]) + late
    assert onnx.ModelProto.FromString(plain + part).graph.initializer[1].external_data
    assert has_external_data(plain + part)


def test_the_places_of_tensors_are_those_of_onnx() -> None:
    """Compare with the descriptors of the package onnx."""
    seen, waiting = {}, [onnx.ModelProto.DESCRIPTOR]
    while waiting:
        message = waiting.pop()
        fields = {f.number: f.message_type for f in message.fields if f.message_type is not None}
        seen[message.name] = {number: kind.name for number, kind in fields.items()}
        waiting += [kind for kind in fields.values() if kind.name not in seen]
    holds = {"TensorProto"}
    while True:
        more = {name for name, fields in seen.items() if holds & set(fields.values())} | holds
        if more == holds:
            break
        holds = more
    expected = {
        name: {number: kind for number, kind in seen[name].items() if kind in holds}
        for name in holds - {"TensorProto"}
    }
    assert expected == FIELDS


def _claim(good: Path, file: Path, **changes: Any) -> None:
    with safe_open(good, framework="pt") as stream:
        about = json.loads(stream.metadata()["coterie"])
    save_file(load_file(good), file, {"coterie": json.dumps(about | changes)})


ENSEMBLE = {"method": "DML", "options": {}, "peers": 3, "cut": None}
VIT = "timm:vit_tiny_patch16_224"
CLAIMS: dict[str, dict[str, Any]] = {
    "a depth of a million": {"model": {"name": VIT, "options": {"depth": 1_000_000}}},
    "a depth of ten thousand": {"model": {"name": VIT, "options": {"depth": 10_000}}},
    "a width": {"model": {"name": VIT, "options": {"embed_dim": 99_999, "num_heads": 1}}},
    "a list": {"model": {"name": VIT, "options": {"x": [0] * 200_000}}},
    "8,000 peers": {"ensemble": ENSEMBLE | {"peers": 8000}},
    "200 peers": {"ensemble": ENSEMBLE | {"peers": 200}},
    "an image": {
        "input": {"channels": 3, "size": [8192, 8192], "resize": 8192, "mean": [0] * 3, "std": [1] * 3},
        "ensemble": ENSEMBLE,
    },
    "channels": {"input": {"channels": 8192, "size": [8192, 8192], "resize": None, "mean": None, "std": None}},
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_metadata_that_asks_for_more_than_the_file_holds(
    good: dict[str, Path], claim: str, tmp_path: Path
) -> None:
    import_torchvision("timm")  # so that its import is not timed
    _claim(good["safetensors"], tmp_path / "m.safetensors", **CLAIMS[claim])
    started = time.monotonic()
    with pytest.raises(InputError, match=r"is damaged \(its|many times larger than|does not fit"):
        open_exported(tmp_path / "m.safetensors")
    assert time.monotonic() - started < LIMIT
    assert not torch.nn.modules.module._global_parameter_registration_hooks
    assert not torch.nn.modules.module._global_module_registration_hooks


def test_a_teachers_file_that_asks_for_more_than_it_holds(good: dict[str, Path], tmp_path: Path) -> None:
    from coterie.models.weights import load_trained

    _claim(good["safetensors"], tmp_path / "m.safetensors", model={"name": VIT, "options": {"depth": 10_000}})
    with pytest.raises(InputError, match="many times larger than its weights"):
        load_trained(str(tmp_path / "m.safetensors"), None, 4, (3, 32, 32))


def _endless(file: Path) -> None:
    """Write a network that adds up its input for 2^62 steps."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_on"]), helper.make_node("Add", ["sum", "sum"], ["next"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
        ],
    )
    steps = numpy_helper.from_array(np.array(2**62, np.int64), "steps")
    yes = numpy_helper.from_array(np.array(True), "yes")
    loop = helper.make_node("Loop", ["steps", "yes", "images"], ["logits"], body=body)
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", *SHAPE])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, None)
    model = helper.make_model(
        helper.make_graph([loop], "endless", [images], [logits], [steps, yes]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
    )
    model.metadata_props.add(key="coterie", value=metadata("resnet8", 4, SHAPE).to_json())
    file.write_bytes(model.SerializeToString())


def test_a_network_that_does_not_end(tmp_path: Path) -> None:
    _endless(tmp_path / "m.onnx")
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    script = "import sys, coterie.deploy.deadline as d; d.LONGEST = 2.0\nfrom coterie.cli.main import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", script, "predict", tmp_path / "m.onnx", tmp_path / "a.png"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.stderr == "coterie: The network's answer took longer than 2 seconds and was given up.\n"
    assert ended.returncode == 1 and not ended.stdout


def test_a_deadline_passes_results_and_errors_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert deadline.within_deadline(lambda: 3, "It") == 3
    with pytest.raises(ZeroDivisionError):
        deadline.within_deadline(lambda: 1 // 0, "It")
    monkeypatch.setattr(deadline, "LONGEST", 0.05)
    with pytest.raises(Failure, match="It took longer than 0.05 seconds and was given up"):
        deadline.within_deadline(lambda: time.sleep(1), "It")
    assert deadline.within_deadline(lambda: time.sleep(0.2) or 3, "It", images=80) == 3


def test_large_images_go_through_in_small_batches(good: dict[str, Path], tmp_path: Path) -> None:
    exported = open_exported(good["onnx"])
    batches: list[int] = []
    exported.metadata.input |= {"size": [4096, 4096], "resize": 4096}

    def run(images: torch.Tensor) -> tuple[torch.Tensor, None]:
        batches.append(len(images))
        return torch.zeros(len(images), 4), None

    exported.run = run
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    assert len(list(predict_pictures(exported, [str(tmp_path / "a.png")] * 6))) == 6
    assert batches == [4, 2]  # 4 of 4096 x 4096 are 2^26 pixels


def test_torch_loads_weights_only() -> None:
    """No call of `torch.load` in the package may unpickle objects."""
    calls = 0
    for file in Path(coterie.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                options = {option.arg: ast.unparse(option.value) for option in node.keywords}
                assert options.get("weights_only") == "True", file
                calls += 1
    assert calls >= 3

"""Files from strangers: a clear sentence, and no code in them is run."""

from __future__ import annotations

import io
import json
import math
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from coterie import models
from coterie.deploy.formats import load, writer
from coterie.errors import InputError
from coterie.predict import predict

from .conftest import refused
from .deployables import metadata

SHAPE = (1, 8, 8)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("good")
    network = models.factory("resnet8", 4, 1)().eval()
    for kind in ("safetensors", "onnx", "pt2"):
        put = writer(network, torch.randn(2, *SHAPE), kind)  # type: ignore[arg-type]
        put(folder / f"good.{kind}", metadata("resnet8", 4, SHAPE))
    return {kind: folder / f"good.{kind}" for kind in ("safetensors", "onnx", "pt2")}


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def test_a_pickle_disguised_as_weights(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    for name in ("a.safetensors", "b.onnx", "c.pt2"):
        (tmp_path / name).write_bytes(pickle.dumps(Bomb(marker)))
        torch.save({"weights": Bomb(marker)}, tmp_path / f"zip-{name}")
        for file in (tmp_path / name, tmp_path / f"zip-{name}"):
            with pytest.raises(InputError, match=r"pickle|could run code|not an exported program"):
                load(file)
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
            load(file)
        assert str(file) in str(caught.value)
    (tmp_path / "text").write_text("hello, I am a model " * 20)
    with pytest.raises(InputError, match="no safetensors, onnx or pt2 file"):
        load(tmp_path / "text")


def test_a_header_that_promises_too_much(tmp_path: Path) -> None:
    (tmp_path / "h").write_bytes(struct.pack("<Q", 2**60) + b"{" + b" " * 100)
    with pytest.raises(InputError, match="damaged"):
        load(tmp_path / "h")


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
        load(file)
    save_file(load_file(good["safetensors"]), file)
    with pytest.raises(InputError, match="was not written by `coterie export`"):
        load(file)


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
            list(predict(load(tmp_path / "m.onnx"), [str(tmp_path / "a.png")]))


def test_a_graph_that_gives_nonsense(tmp_path: Path) -> None:
    from onnx import TensorProto, helper
    from PIL import Image

    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", *SHAPE])

    def predicted(outputs: dict[str, tuple[tuple[int, ...], float]], inputs: int = 1, text: bytes = b"") -> None:
        nodes, told = [], []
        for name, (shape, value) in outputs.items():
            filled = helper.make_tensor(name, TensorProto.FLOAT, shape, [value] * math.prod(shape))
            nodes.append(helper.make_node("Constant", [], [name], value=filled))
            told.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        graph = helper.make_graph(nodes, "nonsense", [images][:inputs], told)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        model.metadata_props.add(key="coterie", value=metadata("resnet8", 4, SHAPE).to_json())
        content = model.SerializeToString().replace(b"class 0", text or b"class 0")
        (tmp_path / "m.onnx").write_bytes(content)
        list(predict(load(tmp_path / "m.onnx"), [str(tmp_path / "a.png")] * 2))

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
    writer(network, torch.randn(2, *SHAPE), "safetensors")(tmp_path / "m", about)
    assert "holds the weights of 'evil?[31m?.py:make'" in refused("predict", tmp_path / "m", tmp_path)


def test_onnx_weights_in_other_files_are_not_read(good: dict[str, Path], tmp_path: Path) -> None:
    import onnx

    model = onnx.load(good["onnx"])
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="secret.bin", size_threshold=0)
    assert (tmp_path / "secret.bin").exists()
    with pytest.raises(InputError, match="no safetensors, onnx or pt2 file, or it is damaged"):
        load(tmp_path / "m.onnx")


@pytest.mark.parametrize("name", ["os:system", "evil.py:make", "builtins.exec", "timm:hf-hub:someone/evil"])
def test_a_model_named_by_a_stranger_is_not_imported(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('ran', 'w')\ndef make(**k): ...")
    network = models.factory("resnet8", 4, 1)()
    writer(network, torch.randn(2, *SHAPE), "safetensors")(tmp_path / "m", metadata(name, 4, SHAPE))
    with pytest.raises(InputError, match=r"code that is not in the file|There is no|no module|not found"):
        load(tmp_path / "m")
    ensemble = {"method": "evil.Method", "options": {}, "peers": 2, "cut": None}
    about = metadata("resnet8", 4, SHAPE, ensemble=ensemble)
    writer(network, torch.randn(2, *SHAPE), "safetensors")(tmp_path / "e", about)
    with pytest.raises(InputError, match=r"method 'evil\.Method', which is not one of Coterie's"):
        load(tmp_path / "e")
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
    writer(network, torch.randn(2, 3, 32, 32), "safetensors")(tmp_path / "m", about)
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(load(tmp_path / "m").run(images)[0], network.eval()(images))


def test_options_of_an_ensemble_import_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil_teacher.py").write_text("open('ran', 'w')\nimport torch\nclass Net(torch.nn.Module): ...\n")
    network = models.factory("resnet8", 4, 1)()
    for options in ({"teacher": {"class_path": "evil_teacher.Net"}}, {"teacher": "evil_teacher.Net"}, {"a": 1}):
        about = metadata(
            "resnet8", 4, SHAPE, ensemble={"method": "KD", "options": options, "peers": 1, "cut": None}
        )
        writer(network, torch.randn(2, *SHAPE), "safetensors")(tmp_path / "m", about)
        with pytest.raises(InputError, match=r"do not fit resnet8|cannot be made: .* argument 'a'"):
            load(tmp_path / "m")
    assert not (tmp_path / "ran").exists()


def repack(
    source: Path, target: Path, change: Callable[[str, bytes], bytes], more: dict[str, bytes] | None = None
) -> None:
    """Copy a .pt2 with some members changed."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name.partition("/")[2], old.read(name)))
        root = old.namelist()[0].partition("/")[0]
        for name, data in (more or {}).items():
            new.writestr(f"{root}/{name}", data)


def in_program(edit: Callable[[dict[str, Any]], object]) -> Callable[[str, bytes], bytes]:
    def change(name: str, data: bytes) -> bytes:
        if name != "models/model.json":
            return data
        program = json.loads(data)
        edit(program)
        return json.dumps(program).encode()

    return change


def _first_expression(program: dict[str, Any], text: str) -> None:
    plain = json.dumps(program)
    start = plain.index('"expr_str": "') + len('"expr_str": "')
    end = plain.index('"', start)
    program.clear()
    program.update(json.loads(plain[:start] + text + plain[end:]))


HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "guards": lambda p: p.update(guards_code=["__import__('pathlib').Path('ran').touch() or True"]),
    "expr_str": lambda p: _first_expression(p, "__import__('pathlib').Path('ran').touch()"),
    "expr_str ": lambda p: _first_expression(p, "Symbol.__class__.__base__"),
    "target": lambda p: p["graph_module"]["graph"]["nodes"][0].update(target="torch.serialization.os.system"),
    "target ": lambda p: p["graph_module"]["graph"]["nodes"][0].update(target="_operator.methodcaller"),
    "target  ": lambda p: p["graph_module"]["graph"]["nodes"][0].update(target="torch.ops.aten.from_file.default"),
    "name": lambda p: p["graph_module"]["graph"]["nodes"][0].update(name="x\nimport os"),
    "in_spec": lambda p: p["graph_module"]["module_call_graph"][0]["signature"].update(
        in_spec='[1, {"type": "os.system", "context": "null", "children_spec": []}]'
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_program_that_hides_code(
    good: dict[str, Path], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    repack(good["pt2"], tmp_path / "h.pt2", in_program(HOSTILE[what]))
    with pytest.raises(InputError, match=rf"could run code when it is loaded \(.*{what.strip()}"):
        load(tmp_path / "h.pt2")
    assert not (tmp_path / "ran").exists()


def test_pickles_in_a_program(good: dict[str, Path], tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    bomb = io.BytesIO()
    torch.save(Bomb(marker), bomb)

    def sample(name: str, data: bytes) -> bytes:
        return bomb.getvalue() if name.startswith("data/sample_inputs") else data

    def weight(name: str, data: bytes) -> bytes:
        if name == "data/weights/weight_0":
            return bomb.getvalue()
        if name == "data/weights/model_weights_config.json":
            config = json.loads(data)
            next(iter(config["config"].values()))["use_pickle"] = True
            return json.dumps(config).encode()
        return data

    def same(name: str, data: bytes) -> bytes:
        return data

    repack(good["pt2"], tmp_path / "same.pt2", same)
    load(tmp_path / "same.pt2")  # repacking alone does no harm
    repack(good["pt2"], tmp_path / "sample.pt2", sample)
    repack(good["pt2"], tmp_path / "weight.pt2", weight)
    repack(good["pt2"], tmp_path / "object.pt2", same, {"data/constants/custom_obj_0": bomb.getvalue()})
    repack(good["pt2"], tmp_path / "compiled.pt2", same, {"data/aotinductor/model/a.so": b"\x7fELF"})
    repack(good["pt2"], tmp_path / "legacy.pt2", same, {"data/weights/model.pt": bomb.getvalue()})
    for name in ("sample", "weight", "object", "compiled", "legacy"):
        with pytest.raises(InputError, match="could run code when it is loaded"):
            load(tmp_path / f"{name}.pt2")
    assert not marker.exists()
    with pytest.raises(Exception, match=r".*"):  # what torch itself does with the same file
        torch.export.load(tmp_path / "weight.pt2")
    assert marker.exists()


def with_another_face(audited: bytes, hidden: bytes) -> bytes:
    """One archive for two readers: torch's takes the directory of members where the end record says that it is,
    Python's takes what stands right before the end record."""

    def parts(archive: bytes) -> tuple[bytes, bytearray, int]:
        end = archive.rindex(b"PK\5\6")
        count, size, start = struct.unpack("<HII", archive[end + 10 : end + 20])
        return archive[:start], bytearray(archive[start : start + size]), count

    (front, directory, count), (back, other, _) = parts(audited), parts(hidden)
    shift, place = len(directory) + len(back), 0
    while place < len(other):
        last, (name, extra) = place, struct.unpack("<HH", other[place + 28 : place + 32])
        (offset,) = struct.unpack("<I", other[place + 42 : place + 46])
        # Python adds how far the directory it found is from where the record says.
        struct.pack_into("<I", other, place + 42, len(front) + len(directory) + offset - shift)
        place += 46 + name + extra
    padding = len(directory) - len(other)  # both of one size: the last member gets a comment
    struct.pack_into("<H", other, last + 32, padding)
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, count, count, len(directory), len(front), 0)
    return front + bytes(directory) + back + bytes(other) + b" " * padding + end


def test_an_archive_that_shows_two_faces(good: dict[str, Path], tmp_path: Path) -> None:
    """What is audited cannot be loaded, so torch.export.load would take the other face for an old file."""
    marker, bomb = tmp_path / "ran", io.BytesIO()
    torch.save(Bomb(marker), bomb)
    program = b""

    def misfit(name: str, data: bytes) -> bytes:
        nonlocal program
        program = data if name == "models/model.json" else program
        if name != "data/weights/model_weights_config.json":
            return data
        config = json.loads(data)
        next(iter(config["config"].values()))["tensor_meta"]["sizes"][0] = {"as_int": 10**6}
        return json.dumps(config).encode()

    repack(good["pt2"], tmp_path / "misfit.pt2", misfit)
    version = json.loads(program)["schema_version"]
    with zipfile.ZipFile(tmp_path / "old.pt2", "w") as old:
        old.writestr("version", f"{version['major']}.{version['minor']}")
        old.writestr("serialized_exported_program.json", program)
        for name in ("state_dict", "constants", "example_inputs"):
            old.writestr(f"serialized_{name}.pt", bomb.getvalue())
    both = with_another_face((tmp_path / "misfit.pt2").read_bytes(), (tmp_path / "old.pt2").read_bytes())
    (tmp_path / "both.pt2").write_bytes(both)
    with pytest.raises(InputError, match="is damaged"):
        load(tmp_path / "both.pt2")
    assert not marker.exists()
    with pytest.raises(Exception, match=r".*"):
        torch.export.load(tmp_path / "both.pt2")
    assert marker.exists()  # it would have


def test_an_archive_that_unpacks_to_more_than_it_is(good: dict[str, Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(good["pt2"]) as old, zipfile.ZipFile(tmp_path / "b.pt2", "w") as new:
        for name in old.namelist():
            packed = zipfile.ZIP_DEFLATED if name.endswith("models/model.json") else zipfile.ZIP_STORED
            data = old.read(name)
            new.writestr(name, data + b" " * 10**7 if packed else data, packed)
    with pytest.raises(InputError, match="would unpack to more than its own size"):
        load(tmp_path / "b.pt2")

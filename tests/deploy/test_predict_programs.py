"""Programs (.pt2) from strangers: whatever an archive hides, no code in it is run."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from coterie.deploy.formats import load
from coterie.errors import InputError
from tests.helpers.deployables import Bomb


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

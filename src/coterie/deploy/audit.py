"""Does a .pt2 file hold nothing but a network? `torch.export.load` would run code that one can hide there.

Its loader unpickles weights and constants marked so, falls back to an unrestricted unpickler for the sample
inputs, evaluates symbolic sizes and guards as Python, and calls whatever function below `torch` the graph names
(read in torch 2.13: `torch/export/pt2_archive/_package.py`, `torch/_export/serde/serialize.py`,
`torch/export/_unlift.py`). So before it is called, everything in the archive must be on a short list of
harmless things; what `coterie export` writes is.

And what fails to load it reads again as a file of an older layout, with another zip reader, to which an archive
can show other members than those that were audited: `formats` calls `load_pt2`, which does not.
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import torch

from ..errors import InputError

MEMBERS = re.compile(
    r"data/weights/(weight_\d+|model_weights_config\.json)|data/constants/(tensor_\d+|model_constants_config\.json)"
    r"|models/model\.json|data/sample_inputs/model\.pt|extra/[\w.]+|archive_format|archive_version|byteorder"
    r"|version|\.data/(version|serialization_id)"
)
"""Not among them: compiled code (AOTInductor), custom objects, files of older layouts."""

OPERATORS = re.compile(
    r"torch\.ops\.aten\.(?!from_file)\w+\.\w+|_operator\.(add|sub|mul|floordiv|truediv|mod|pow|neg|eq|ne|lt|le|gt|ge|getitem)"
    r"|torch\.sym_(int|float|not|max|min)"
)
SIZE = re.compile(r"[\w(),=' +*/-]*")
SIZE_WORDS = re.compile(
    r"[su]\d+|\d+|Symbol|Integer|Mul|Add|Pow|Max|Min|Mod|PythonMod|FloorDiv|CeilDiv|CleanDiv|Rational|positive|"
    r"integer|nonnegative|True|False"
)
PLAIN = re.compile(r"[\w.+-]*")
"""Names of nodes, parameters, types."""

CONTAINERS = ("builtins.tuple", "builtins.list", "builtins.dict", None)


def audit(file: Path, content: bytes) -> None:
    """Raise an InputError unless the archive is a plain network."""
    from torch.export.pt2_archive._package import PT2ArchiveReader

    try:
        # torch's own reader: another one might see other members.
        with PT2ArchiveReader(io.BytesIO(content)) as archive:
            names = archive.get_file_names()
            # torch packs nothing, so what grows when it is unpacked is a bomb.
            if sum(map(archive.archive_file.get_record_size, names)) > len(content):
                raise InputError(f"{file} would unpack to more than its own size: export it again.")
            for name in names:
                if not MEMBERS.fullmatch(name):
                    raise _Suspicious(f"it has a member {name!r}")
            if "models/model.json" not in names:
                raise InputError(f"{file} is not an exported program: `coterie export --format pt2` writes one.")
            for name in names:
                if name.endswith("_config.json"):
                    _payload(json.loads(archive.read_bytes(name)))
                elif name.startswith("data/sample_inputs/"):
                    _pickle(archive.read_bytes(name))
            _program(json.loads(archive.read_bytes("models/model.json")))
    except _Suspicious as why:
        raise InputError(
            f"{file} could run code when it is loaded ({why}), and is refused; if you trust where it comes from, "
            "load it yourself with torch.export.load."
        ) from None
    except InputError:
        raise
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(f"{file} is damaged or not an exported program: export it again.") from None


class _Suspicious(Exception):
    pass


def _payload(config: dict[str, Any]) -> None:
    for name, entry in config["config"].items():
        if entry["use_pickle"] is not False or not re.fullmatch(r"(weight|tensor)_\d+", entry["path_name"]):
            raise _Suspicious(f"{name!r} is pickled")


def _pickle(data: bytes) -> None:
    if data:
        try:
            torch.load(io.BytesIO(data), weights_only=True)
        except Exception:
            raise _Suspicious("its sample inputs are more than tensors") from None


def _program(program: dict[str, Any]) -> None:
    if program["guards_code"]:
        raise _Suspicious("it has guards in Python")
    _walk(program, "")


def _walk(value: Any, key: str) -> None:
    if isinstance(value, dict):
        for name, item in value.items():
            if not PLAIN.fullmatch(name):
                raise _Suspicious(f"it has a name {name[:40]!r}")
            _walk(item, name)
    elif isinstance(value, list):
        for item in value:
            _walk(item, key)
    elif isinstance(value, str) and not _harmless(value, key):
        raise _Suspicious(f"its {key} is {value[:60]!r}")


def _harmless(text: str, key: str) -> bool:
    if key == "target":
        return OPERATORS.fullmatch(text) is not None
    if key == "expr_str":
        words = re.findall(r"\w+", text)
        return SIZE.fullmatch(text) is not None and all(SIZE_WORDS.fullmatch(word) for word in words)
    if key in ("in_spec", "out_spec"):
        return all(kind in CONTAINERS for kind in _types(json.loads(text)))
    return PLAIN.fullmatch(text) is not None


def _types(spec: Any) -> list[Any]:
    """The container types that a tree specification names."""
    if isinstance(spec, list):
        return [kind for item in spec for kind in _types(item)]
    if isinstance(spec, dict):
        return [spec["type"], *_types(spec["children_spec"])]
    return []

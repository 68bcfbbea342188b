"""Whose code a run directory may run: that of one's own runs, which carry a signature, and of those one trusts."""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import json
import os
import re
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from .errors import InputError, printable
from .files import read_yaml, yaml_content
from .names import PARTS

SIGNATURE = "signature"
"""The file of a run directory that shows whose run it is."""
LIBRARY_MODEL = r"((timm|torchvision):)?\w[\w.-]*"
"""Names of networks of Coterie, timm and torchvision. Others are code of a user's own."""
# torchvision's LSUN unpickles a file of the data's folder.
LIBRARY_CLASS = r"\w+|(coterie|torch\.optim|timm\.optim|torchvision\.datasets(?!.*LSUN))(\.\w+)+"
"""Names of classes of libraries that are used here; one without a dot is a class that is imported already."""
IMPORT_PATH = r"[^\W\d]\w*(\.[^\W\d]\w*)+"
SIGNED = ("model", "model_options", "peers", *PARTS)
"""The options that can name code, with what this code is called with."""
PLACES = ("root", "workers")
"""Options of the data that are not signed: a run may be read where its data lies elsewhere."""

_trusting: ContextVar[bool] = ContextVar("trusting", default=False)


@contextmanager
def trusting(trust: bool = True) -> Iterator[None]:
    """Run, inside this context, the code of every run directory that is read, also of a teacher's."""
    before = _trusting.set(trust or _trusting.get())
    try:
        yield
    finally:
        _trusting.reset(before)


def allow_imports_from_here() -> None:
    """Let Python import from the working directory too, after all that is installed."""
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))


def names_code_here(words: Sequence[str]) -> bool:
    """Tell whether the words of a command, or the files of options among them, name code of the working directory.

    Else that stays out of Python's path: libraries look for packages that they can do without, and would import
    files of such names that lie beside photographs.
    """
    names = [name for word in words for name in re.split(r"[^\w.]+", word)]
    for option, value in zip(words, [*words[1:], ""], strict=False):
        if option.partition("=")[0] == "--config":
            with suppress(InputError, OSError):  # said where it is parsed
                options = read_yaml(Path(option.partition("=")[2] or value))
                names += code_in(options) if isinstance(options, Mapping) else []
    return any(_is_here(name) for name in names if not re.fullmatch(LIBRARY_CLASS, name))


def _is_here(name: str) -> bool:
    """Tell whether this names something in a module of the working directory, and no file."""
    if not re.fullmatch(IMPORT_PATH, name) or Path(name).exists():
        return False
    parts = name.split(".")
    spec = PathFinder.find_spec(parts[0], [str(Path.cwd())])
    if spec is None or spec.loader is not None:
        return spec is not None
    return any(Path(*parts[:i]).with_suffix(".py").is_file() for i in range(2, len(parts)))


def check_run(directory: Path, config: Mapping[str, Any]) -> None:
    """Raise an InputError if a run names code of its own, and is neither signed by this user nor trusted."""
    code = code_in(config)
    if not code:
        return
    if not _trusting.get():
        signed = _is_signed(directory, config)
        if not signed and (hidden := [name for name in code if _is_hidden(name)]):
            raise InputError(
                f"{directory} was not trained by you on this machine, and it writes options as text, which may "
                f"hide code ({printable(hidden[0][:80])}): read it, and if you trust it, add `trust`."
            )
        origins = {name: _origin(name) for name in code if not _is_hidden(name)}
        if missing := [name for name, origin in origins.items() if origin is None]:
            raise InputError(f"{directory} names code that is not here, {missing[0]}: go to where it is.")
        if not signed:
            files = ", ".join(f"{name} in {origin}" for name, origin in origins.items())
            raise InputError(
                f"{directory} was not trained by you on this machine, and it names code of its own ({files}): "
                "read that code, and if you trust it, add `trust`."
            )
    allow_imports_from_here()


def code_in(config: Mapping[str, Any]) -> list[str]:
    """Return the code that the options of a run name, other than that of Coterie and the libraries it is made of.

    What could be meant as code is taken for it.
    """
    peers = config.get("peers")
    parts = peers.split(",") if isinstance(peers, str) else ()
    models = [config.get("model"), *(name.strip() for name in parts)]
    code = [name for model in models for name in _foreign_models(model)]
    for part in PARTS:
        value = config.get(part)
        code += _foreign_classes(value) if isinstance(value, str) else _foreign_in(value, ours=True)
    return list(dict.fromkeys(code))


def sign(config: Mapping[str, Any]) -> str | None:
    """Return the signature of a run of these options, or None where no key can be kept."""
    key = _key(create=True)
    return None if key is None else _digest(key, config)


def _foreign_models(name: Any) -> list[str]:
    own = isinstance(name, str) and not _is_label(name) and not re.fullmatch(LIBRARY_MODEL, name)
    return [name] if own else []


def _foreign_classes(path: Any) -> list[str]:
    return [] if _is_label(str(path)) or re.fullmatch(LIBRARY_CLASS, str(path)) else [str(path)]


def _is_label(name: str) -> bool:
    """Tell whether this stands for a Python object that no file can hold: `<make_model in train.py>`."""
    return name.startswith("<") and name.endswith(">")


def _foreign_in(value: Any, ours: bool) -> Iterator[str]:
    """Yield the code in the options of a class; only classes of ours (`ours`) take a path in text as it is."""
    if isinstance(value, Mapping):
        path = value.get("class_path")
        if path is not None:
            yield from _foreign_classes(path)
            ours = str(path).startswith("coterie.")
        for key, item in value.items():
            if key in ("source", "class_path"):
                yield from _foreign_classes(item)
            elif key == "teacher_model":
                yield from _foreign_models(item)
            elif not re.fullmatch(r"\w+", str(key)):  # a parser may take `a.b` for a key in a key
                yield str(key)
            else:
                yield from _foreign_in(item, ours and key != "options")
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _foreign_in(item, ours)
    elif isinstance(value, str):
        text = yaml_content(value)  # the parser of options reads text as YAML once more
        if text is None or (not ours and re.fullmatch(IMPORT_PATH, text)):
            yield value


def _is_hidden(name: str) -> bool:
    """Tell whether this is a mapping or a list written as text, which Coterie itself never writes."""
    return yaml_content(name) is None


def _origin(name: str) -> str | None:
    """Return the file or folder in which Python would find code of this name; nothing is imported."""
    source = name.rpartition(":")[0] or name
    if source.endswith(".py"):
        return str(Path(source).resolve()) if Path(source).is_file() else None
    package = source.partition(".")[0]
    try:
        spec = importlib.util.find_spec(package) or PathFinder.find_spec(package, [str(Path.cwd())])
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None:
        return None
    return spec.origin or ", ".join(spec.submodule_search_locations or ())


def _is_signed(directory: Path, config: Mapping[str, Any]) -> bool:
    key = _key(create=False)
    try:
        signature = (directory / SIGNATURE).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return False
    return key is not None and hmac.compare_digest(signature.encode(), _digest(key, config).encode())


def _digest(key: bytes, config: Mapping[str, Any]) -> str:
    """Return the keyed hash of the options that can name code, and of where this code is.

    Without the place, a signature that was published with its run would vouch for any file of the same name.
    """
    options = {name: config.get(name) for name in SIGNED}
    data = options["data"]
    if isinstance(data, Mapping) and isinstance(data.get("init_args"), Mapping):
        arguments = {name: value for name, value in data["init_args"].items() if name not in PLACES}
        options["data"] = {**data, "init_args": arguments}
    content = {"options": options, "code": {name: _origin(name) for name in code_in(config)}}
    text = json.dumps(content, sort_keys=True, default=str)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _key(create: bool) -> bytes | None:
    """Return this user's secret key, or None where there is none and none can be kept."""
    try:
        default = os.environ["LOCALAPPDATA"] if os.name == "nt" else Path.home() / ".local" / "state"
        folder = Path(os.environ.get("XDG_STATE_HOME") or default) / "coterie"
        file = folder / "key"
        if create and not file.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = folder / f"key.{secrets.token_hex(8)}"
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(secrets.token_bytes(32))
            with suppress(FileExistsError):  # another process was first
                file.hardlink_to(part)
            part.unlink()
        key = file.read_bytes()
    except (OSError, RuntimeError, KeyError):  # no home, or it is not ours to write to
        return None
    return key if len(key) == 32 else None

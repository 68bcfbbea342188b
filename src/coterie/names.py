"""The names of our methods, data sets and networks, read from their source files, and the errors for other names.

Importing the files takes seconds, as that imports torch: a typo is answered without it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from .errors import InputError, nearest, unknown

PACKAGE = Path(__file__).parent
PARTS = ("method", "data", "optimizer", "schedule", "mix")
"""Options of a training that name a class with options of its own."""
TABLES = (".csv", ".tsv", ".parquet")
MODEL_FORMS = "timm:NAME, torchvision:NAME, package.module:factory, file.py:factory"
ELSEWHERE = {
    "pretrained": "pretrained weights are an option of the network, {0}model_options.pretrained true with a "
    "network of timm, and weights in a file are loaded with {0}init",
    "lr": "the learning rate is {0}optimizer.lr",
}
"""Options of other libraries, and where ours are."""


def parse_modules(folder: str) -> Iterator[ast.Module]:
    """Yield the syntax trees of the modules in a folder of this package, in the order of their names."""
    for file in sorted((PACKAGE / folder).glob("*.py")):
        if file.stem != "__init__":
            yield ast.parse(file.read_bytes())


def listed_names(folder: str) -> list[str]:
    """Return what the modules of a folder list in `__all__`: the data sets, the networks."""
    names: list[str] = []
    for module in parse_modules(folder):
        for node in module.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names += ast.literal_eval(node.value)
    return names


def subclass_names(folder: str, base: str) -> list[str]:
    """Return the classes in a folder that derive from a class of it: the methods."""
    bases = {
        node.name: {ast.unparse(parent) for parent in node.bases}
        for module in parse_modules(folder)
        for node in module.body
        if isinstance(node, ast.ClassDef)
    }
    derived = {base}
    while more := {name for name, parents in bases.items() if parents & derived} - derived:
        derived |= more
    return [name for name in bases if name in derived and name != base]


def path_exists(path: Path) -> bool:
    """Tell whether there is something at a path; a name that no file can have, such as a long one, has nothing."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def unknown_data(name: str, sets: Iterable[str]) -> InputError:
    """Return the error for what is neither a data set nor a path, with the nearest set, directory or table."""
    if path_exists(Path(name)):
        return InputError(f"{name} is no folder and no table of images.")
    folder = Path(name).parent
    entries = folder.iterdir() if folder.is_dir() else ()
    paths = [str(entry) for entry in entries if entry.is_dir() or entry.suffix.lower() in TABLES]
    if "/" in name:
        no_folder = InputError(f"There is no folder or table {name}.")
        return unknown("folder or table", name, paths) if nearest(name, paths) else no_folder
    sets = list(sets)
    if nearest(name, [*sets, *paths]):
        return unknown("data set or directory", name, [*sets, *paths])
    return InputError(
        f"There is no data set or directory '{name}': it is none of {', '.join(sets)}, and no folder or table of "
        "images has this path."
    )


def unknown_model(name: str, names: Iterable[str]) -> InputError:
    """Return the error for a network that is not one of ours."""
    return InputError(f"{unknown('model', name, names)} Others are named {MODEL_FORMS}.")


def unknown_option(name: str, options: Iterable[str]) -> InputError:
    """Return the error for an option that a training does not have, named as a flag or as Python names it."""
    prefix, word = ("--" if name.startswith("--") else ""), name.removeprefix("--")
    if word in ELSEWHERE:
        return InputError(f"There is no option '{name}': {ELSEWHERE[word].format(prefix)}.")
    return unknown("option", name, options)

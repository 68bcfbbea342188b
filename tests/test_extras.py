"""Training and deploying need the core dependencies alone; whatever else is absent is named in one sentence."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from coterie.data.huggingface import huggingface
from coterie.data.table import table
from coterie.deploy.exported import open_exported
from coterie.deploy.formats import make_writer
from coterie.errors import InputError
from coterie.experiments.launch_ray import RayLauncher
from coterie.experiments.run import Run
from coterie.runs.tracking import import_tracker
from tests.helpers.common import TinyNet

ROOT = Path(__file__).parents[1]
MODULES = {"pillow": "PIL", "scikit-learn": "sklearn", "pyyaml": "yaml", "docstring-parser": "docstring_parser"}
"""The modules of distributions that are named otherwise."""


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    import coterie

    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {project['version']}\n" in citation and coterie.__version__ == project["version"]
    assert f"\n## [{project['version']}] - " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def imports(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield each module that a file imports from elsewhere, and whether it does so when it is imported itself."""
    inside = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.FunctionDef)
        or (isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test))
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        else:
            continue
        yield from ((name.split(".")[0], id(node) not in inside) for name in names)


def test_what_the_package_imports_is_a_core_dependency_or_an_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def modules(requirements: list[str]) -> set[str]:
        names = {requirement.split(">")[0].split("[")[0] for requirement in requirements}
        return {MODULES.get(name, name) for name in names}

    core = modules(project["dependencies"])
    extras = modules([r for name, each in project["optional-dependencies"].items() if name != "dev" for r in each])
    imported: dict[str, bool] = {}
    for file in (ROOT / "src").rglob("*.py"):
        for name, at_once in imports(ast.parse(file.read_text(encoding="utf-8"))):
            imported[name] = imported.get(name, False) or at_once
    others = set(imported) - sys.stdlib_module_names - {"coterie"} - core
    assert others <= extras and not [name for name in others if imported[name]]
    by_name = {"timm", "torchvision"}  # as in import_torchvision("timm")
    assert core - set(imported) == by_name


def open_onnx(folder: Path) -> None:
    (folder / "x.onnx").write_bytes(b"\x08\x08")
    open_exported(folder / "x.onnx")


def open_parquet(folder: Path) -> None:
    (folder / "x.parquet").write_bytes(b"PAR1")
    table(root=str(folder), file="x.parquet").load()


def read_as_pandas(folder: Path) -> None:
    (folder / "config.yaml").write_text("method: {class_path: coterie.PCL}\n")
    Run(folder).to_pandas()


CASES: dict[str, Callable[[Path], Any]] = {
    "onnx": lambda _: make_writer(TinyNet(), torch.zeros(2, 3, 8, 8), "onnx"),
    "onnxscript": lambda _: make_writer(TinyNet(), torch.zeros(2, 3, 8, 8), "onnx"),
    "onnxruntime": open_onnx,
    "executorch": lambda _: make_writer(TinyNet(), torch.zeros(2, 3, 8, 8), "executorch"),
    "tensorboard": lambda _: import_tracker("tensorboard"),
    "wandb": lambda _: import_tracker("wandb"),
    "ray": lambda folder: RayLauncher(folder, {}, None, 1),
    "pandas": read_as_pandas,
    "datasets": lambda folder: huggingface(root=str(folder)).load(),
    "pyarrow": open_parquet,
}


@pytest.mark.parametrize("name", CASES)
def test_an_absent_package_is_named_with_its_remedy(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [loaded for loaded in sys.modules if loaded.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError) as refused:
        CASES[name](tmp_path)
    sentence = str(refused.value)
    assert f"pip install {name}" in sentence and "\n" not in sentence and sentence.endswith(".")

"""The pages of the methods say what their docstrings say, and the example of one's own method works as shown."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
import torch

from coterie.methods import available
from coterie.peers.net import PeerNet
from tests.helpers.common import TinyNet, coterie, script
from tests.helpers.reference import ce, kl, ramp

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "own_method"


def load(file: Path, name: str) -> object:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_up_to_date() -> None:
    expected = script("method_pages", "docs").pages()
    pages = {file.name: file.read_text() for file in (ROOT / "docs" / "methods").glob("*.md")}
    assert pages == expected, "run `python docs/method_pages.py`"
    assert {f"{name}.md" for name in available()} < set(pages)


@pytest.mark.parametrize("name", available())
def test_every_option_is_explained(name: str) -> None:
    page = (ROOT / "docs" / "methods" / f"{name}.md").read_text()
    rows = re.findall(r"^\| `--method\.\w+` .*$", page, re.MULTILINE)
    assert all(len(re.split(r"(?<!\\)\|", row)[4].strip()) > 1 for row in rows)
    assert "L = " in page and ("Our reading" in page or "we read" in page or name in ("Baseline", "MCL"))


def test_the_example_in_the_text_is_the_example() -> None:
    code = (EXAMPLE / "my_package" / "__init__.py").read_text()
    shown = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "own_method.md").read_text(), re.DOTALL)
    assert shown is not None
    after_docstring = shown[1].split('"""\n', 1)[1]
    assert after_docstring.strip() in code
    assert len(code.splitlines()) < 50


def test_own_method_against_numpy() -> None:
    package = load(EXAMPLE / "my_package" / "__init__.py", "my_package")
    method = package.MyMethod(PeerNet(TinyNet, 3, "stage3")).double()  # type: ignore[attr-defined]
    images, labels = torch.randn(6, 3, 8, 8).double(), torch.randint(5, (6,))
    terms = method(images, labels, 20)
    z, y = method.net(images).logits.detach().numpy(), labels.numpy()
    assert terms["ce_ensemble"].item() == pytest.approx(ce(z.mean(0), y))
    expected = ramp(20, 80) * sum(kl(z[j - 1], z[j], 3.0) for j in range(3))
    assert terms["distil_neighbour"].item() == pytest.approx(expected)


def test_own_method_by_its_import_path(tmp_path: Path) -> None:
    """From the folder that holds the package, as the text says: train, with an option, and evaluate."""
    run = tmp_path / "run"
    method = ["--method", "my_package.MyMethod", "--method.temperature", 4]
    small = ["--model", "resnet8", "--epochs", 1, "--data.limit", 8, "--batch", 40, "--ema"]
    result = coterie("train", *method, *small, "--out", run, cwd=EXAMPLE, PYTHONPATH=str(ROOT / "src"))
    assert result.returncode == 0, result.stderr
    record = json.loads((run / "metrics.jsonl").read_text())
    assert set(record["terms"]) == {"loss", "ce_peers", "ce_ensemble", "distil_neighbour"}
    assert set(record["diversity"]) == {"peer", "mean"}
    assert {"peer3", "mean3", "ensemble", "mean_ensemble"} <= set(record["predictors"])
    assert "temperature: 4" in (run / "config.yaml").read_text()
    result = coterie("evaluate", run, "--json", cwd=EXAMPLE, PYTHONPATH=str(ROOT / "src"))
    assert json.loads(result.stdout)["deployed"] == "peer1"

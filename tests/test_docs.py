"""The examples in the documents run."""

from __future__ import annotations

import re
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import coterie
from coterie.compat import import_torchvision
from tests.helpers.common import TinyNet

ROOT = Path(__file__).parents[1]


def blocks(file: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / file).read_text(), re.S)


def test_the_readme_shows_the_two_commands() -> None:
    shell = "".join(blocks("README.md", "sh"))
    assert "pip install -c constraints.txt -e . && coterie demo\n" in shell
    assert 'pip install -c constraints.txt -e ".[dev]" && pytest\n' in shell
    assert "torch==2.13.0\n" in (ROOT / "constraints.txt").read_text()


def test_the_script_in_the_readme_goes_from_import_to_an_onnx_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, _ = blocks("README.md", "python")
    assert len(script.splitlines()) <= 12
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(script.replace("epochs=30", "epochs=15"), names)
    assert names["run"].error < 10 and (tmp_path / "student.onnx").is_file()
    assert type(names["student"]).__name__ == "ResNet"


def test_the_loop_in_the_readme_runs() -> None:
    _, code = blocks("README.md", "python")
    views = [torch.randn(4, 3, 8, 8) for _ in range(3)]
    names = {"coterie": coterie, "torch": torch, "make_model": TinyNet, "epochs": 2}
    names["loader"] = [(views, torch.randint(5, (4,)))]
    exec(code.replace('"layer4"', '"stage3"'), names)
    assert type(names["student"]) is TinyNet


def test_the_page_on_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pixels = torch.randint(0, 255, (400, 1, 8, 8)).byte()
    labels = torch.arange(400) % 10
    names: dict[str, Any] = {"train_images": pixels, "train_labels": labels}
    names |= {"test_images": pixels[:100], "test_labels": labels[:100]}
    first, second, third = blocks("docs/python.md", "python")
    exec(first.replace("epochs=30", "epochs=1"), names)
    exec(second, names)
    assert names["run"].finished and "coterie.KDCL" in (tmp_path / "runs/mine/config.yaml").read_text()
    exec(third, names)
    assert (tmp_path / "student.onnx").is_file() and "ensemble" in names["networks"]


def test_the_recipes_run() -> None:
    net = coterie.PeerNet(TinyNet, 3, "stage3", torch.randn(2, 3, 8, 8))
    views = [torch.randn(4, 3, 8, 8) for _ in range(3)]
    names = {
        "coterie": coterie,
        "method": coterie.PCL(net),
        "epochs": 2,
        "loader": [(views, torch.randint(5, (4,)))],
    }
    assert not re.search(r"\b[A-Z]{3,}_[A-Z]{3,}\b", (ROOT / "docs/recipes.md").read_text())  # no placeholder
    loop, *criteria = blocks("docs/recipes.md", "python")
    for criterion in criteria:
        exec(criterion, names)
        exec(loop.replace("num_classes=10", "num_classes=5"), names)
        assert torch.isfinite(names["terms"]["loss"])


@pytest.mark.filterwarnings("ignore")  # a class of Lightning's cannot be sent between the workers of pytest
def test_the_loops_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each section's lines, one after the other, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    import_torchvision("torchvision")  # Lightning and timm import it
    images, labels = torch.randn(8, 3, 8, 8), torch.arange(8) % 5
    names: dict[str, Any] = {
        "make_model": TinyNet,
        "epochs": 2,
        "train_pairs": TensorDataset(images, labels),
        "transform": lambda image: image + 0.1 * torch.randn_like(image),
        "device": "cpu",
        "accumulate": 2,
    }
    text = [textwrap.dedent(block) for block in blocks("docs/loops.md", "python")]
    loop, hook, views, plain, checkpoint, lightning, accelerate, timm, mean = (
        block.replace('"layer4"', '"stage3"').replace("=128", "=2").replace("num_classes=10", "num_classes=5")
        for block in text
    )
    exec(loop, names)
    assert type(names["student"]) is TinyNet and names["method"].mean.step == 2 * 4
    for block in (hook, views):
        exec(block, names)
    assert isinstance(names["views"], list) and len(names["views"]) == 3

    def steps_of(block: str) -> int:
        """Run lines with a new optimiser; return how often the averages move."""
        before, trained = names["method"].mean.step, [p for p in names["method"].parameters() if p.requires_grad]
        names["optimizer"] = torch.optim.SGD(trained, lr=0.01)
        exec(block, names)
        steps: int = names["method"].mean.step - before
        return steps

    assert steps_of(plain) == 2  # four batches, two for each step
    assert steps_of(checkpoint) == 0
    assert steps_of(f"{lightning}\ntrainer.fit(PeerModule(method), loader)") == 2
    assert steps_of(accelerate) == 2
    names["loader"] = DataLoader(names["train_set"], batch_size=4)
    assert steps_of(timm) == 0 and names["targets"].shape == (4, 5)
    network = TinyNet()
    exec(
        mean, names | {"model": network, "optimizer": torch.optim.SGD(network.parameters(), 0.1), "images": images}
    )
    assert torch.load("mean.pt", weights_only=True).keys() >= {f"average.{name}" for name in network.state_dict()}


def test_the_method_in_contributing_is_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = blocks("CONTRIBUTING.md", "python")
    assert len(code.splitlines()) <= 45
    module = type(sys)("coterie.methods.mean_logits")
    module.__package__ = "coterie.methods"
    exec(compile(code, "mean_logits.py", "exec"), vars(module))
    net = coterie.PeerNet(TinyNet, 3, "stage3", torch.randn(2, 3, 8, 8))
    method = module.MeanLogits(net)
    terms = method(torch.randn(4, 3, 8, 8), torch.randint(5, (4,)), 10)
    terms["loss"].backward()
    assert set(terms) == {"loss", "ce_peers", "distil"}
    assert {"peer1", "peer3", "ensemble"} <= set(method.predictors())


def test_the_design_lists_the_folders_in_the_order_of_the_contract() -> None:
    """Every folder and module at the top of the package; the contract is checked by lint-imports."""
    source = ROOT / "src" / "coterie"
    listed = re.findall(r"^(\w+)/? ", (ROOT / "docs" / "design.md").read_text().split("```")[1], re.M)
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    assert listed == contract["layers"][::-1]
    units = {file.relative_to(source).parts[0].removesuffix(".py") for file in source.rglob("*.py")}
    assert units - {"__init__", "__main__"} == set(listed)


def test_files_that_the_design_names_exist() -> None:
    text = (ROOT / "docs" / "design.md").read_text()
    named = set(re.findall(r"`(\w+/\w+\.py)`", text))
    assert len(named) > 15 and all((ROOT / "src" / "coterie" / name).is_file() for name in named)


def test_every_promise_names_tests_that_exist() -> None:
    page = (ROOT / "docs/reliability.md").read_text()
    tests = set(re.findall(r"`((?:\w+/)*test_\w+\.py)`", page))
    assert len(tests) > 15
    assert [test for test in tests if not (ROOT / "tests" / test).is_file()] == []


def test_imports_keep_their_order() -> None:
    """The contract of pyproject.toml, as `lint-imports` checks it."""
    from importlinter.cli import lint_imports

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


BOLD = re.compile(r"\*\*(?P<mean>[+-][\d.]+) ± (?P<half>[\d.]+) \((?P<seeds>\d+)\)\*\*")
STUDYS_BOLD = re.compile(r"\*\*([+-][\d.]+ ± [\d.]+|[^*]+ wins[^*]*)\*\*")


@pytest.mark.parametrize(
    "file", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda f: f.name
)
def test_bold_in_a_table_means_clear_of_chance(file: Path) -> None:
    """And every clear difference is bold."""
    for line in file.read_text().splitlines():
        if not line.startswith("|"):
            continue
        for cell in line.strip("|").split("|"):
            bold, plain = BOLD.fullmatch(cell.strip()), BOLD.fullmatch(f"**{cell.strip()}**")
            if "**" in cell and not (
                file.name in ("study.md", "README.md") and STUDYS_BOLD.fullmatch(cell.strip())
            ):
                assert bold and int(bold["seeds"]) >= 3 and abs(float(bold["mean"])) >= float(bold["half"]), line
            if plain:
                assert int(plain["seeds"]) < 3 or abs(float(plain["mean"])) <= float(plain["half"]), line

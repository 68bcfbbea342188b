"""The commands as a user types them: what they print, and one clear sentence for bad input."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from coterie.models.resnet import resnet8
from tests.helpers.common import coterie, printed, refused

SMALL = ["train", "--model", "resnet8"]
TRAIN = ["train", "--model", "resnet8", "--data", "digits", "--data.limit", 6, "--batch", 20, "--epochs", 2]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cli") / "run"
    result = coterie(*TRAIN, "--method", "PCL", "--method.temperature", 4, "--peers", 2, "--out", out)
    assert result.returncode == 0, result.stderr
    assert "epoch 2/2" in result.stderr and "distil_mean" in result.stderr  # plain lines without a terminal
    return out


def test_help_imports_the_standard_library_alone() -> None:
    result = coterie("--help")
    assert result.returncode == 0 and "demo" in result.stdout and "train" in result.stdout
    code = "import sys, coterie.cli.main; coterie.cli.main.main(['--help']); print(*sys.modules, file=sys.stderr)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stderr.split()
    assert "coterie.cli.main" in modules
    assert not {"torch", "torchvision", "numpy", "scipy", "jsonargparse", "rich", "yaml"} & set(modules)


def test_commands_import_neither_scikit_learn_nor_the_compiler() -> None:
    """Each takes as long to import as torch itself."""
    code = "import sys; from coterie.cli.main import main\nfor command in eval(sys.argv[1]): main(command)\n"
    code += "print(*sys.modules, file=sys.stderr)"
    commands = repr([["data", "inspect", "digits", "--json"], ["methods"]])
    done = subprocess.run([sys.executable, "-c", code, commands], capture_output=True, text=True, check=True)
    modules = set(done.stderr.split())
    assert {"coterie.peers.net", "coterie.data.digits"} <= modules
    assert not {"sklearn", "torch._dynamo"} & modules


def test_train_help_comes_from_the_signatures() -> None:
    text = coterie("train", "--help").stdout
    for option in ("--method", "--model", "--data", "--epochs", "--ema_horizon", "--optimizer", "--out"):
        assert option in text
    assert "--method.ensemble_gradient" in coterie("train", "--method.help", "PCL").stdout


def test_yaml_out_and_in(run: Path, tmp_path: Path) -> None:
    shown = coterie(*TRAIN, "--method.temperature", 4, "--out", "x", "--print_config")
    config = yaml.safe_load(shown.stdout)
    assert config["method"]["init_args"]["temperature"] == 4.0 and config["data"]["init_args"]["limit"] == 6
    (tmp_path / "short.yaml").write_text("method: Baseline\nmodel: resnet8\ndata: digits\nepochs: 1\nbatch: 500\n")
    printed("train", "--config", tmp_path / "short.yaml", "--seed", 3, "--ema", "--out", tmp_path / "run")
    stored = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (stored["seed"], stored["ema"], stored["epochs"]) == (3, True, 1)
    printed("train", "--config", run / "config.yaml", "--out", run)  # what a run stored, continues it


def test_evaluate(run: Path) -> None:
    result = json.loads(coterie("evaluate", run, "--json").stdout)
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    for name, scores in last["predictors"].items():
        for key, value in scores.items():
            assert result["predictors"][name][key] == pytest.approx(value, rel=1e-6)
    student, ensemble = result["predictors"]["mean1"], result["predictors"]["ensemble"]
    assert result["deployed"] == "mean1" and student["parameters"] == sum(
        p.numel() for p in resnet8(10, 1).parameters()
    )
    assert (
        ensemble["parameters"] > student["parameters"] and student["macs"] < ensemble["macs"] < 2 * student["macs"]
    )
    text, _ = printed("evaluate", run)
    assert "mean1 (deployed)" in text and "diversity" in text


def test_a_run_is_evaluated_without_the_device_it_was_trained_on(run: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(run, tmp_path / "moved")
    config = (moved / "config.yaml").read_text()
    (moved / "config.yaml").write_text(config.replace("device: auto", "device: cuda:99"))
    assert "mean1" in printed("evaluate", moved)[0]


def test_methods_and_models() -> None:
    methods = json.loads(coterie("methods", "--json").stdout)
    assert methods["PCL"]["options"]["temperature"] == 3.0 and methods["Baseline"]["trains"] == "one network"
    models = json.loads(coterie("models", "--json").stdout)
    assert models["resnet32"]["parameters"] == {"10": 466906, "100": 472756}
    assert "PCL" in printed("methods")[0] and "466,906" in printed("models")[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], "did you mean 'train'?"),
        (["train", "--method", "PCX"], "no method 'PCX'; did you mean 'PCL'?"),
        (["train", "--model", "resnet3"], "no model 'resnet3'; did you mean 'resnet"),
        (["train", "--data", "cifar1"], "no data set or directory 'cifar1'; did you mean 'cifar1"),
        (["train", "--epochz", "3"], "no option '--epochz'; did you mean '--epochs'?"),
        (["train", "--method.temprature", "4"], "did you mean '--method.temperature'?"),
        (["train", "--data.limitt", "4"], "did you mean '--data.limit'?"),
        (["train", "--optimizer.lrr", "4"], "did you mean '--optimizer.lr'?"),
        (["train", "--method.temperature", "hot"], "--method.temperature expects a number, not 'hot'"),
        (["train", "--epochs", "0"], "--epochs must be at least 1"),
        (["train", "--out", "run", "--seed"], "--seed needs a value"),
        (["train", "--config", "nope.yaml"], "nope.yaml"),
        (["train", "--method.ensemble", "foo"], "one of learned, sum, none, not 'foo'"),
        (["train", "--data.limit", "few"], "--data.limit expects a whole number, not 'few'"),
        (["train", "--schedule.factr", "1"], "did you mean '--schedule.factor'?"),
        (["train", "--method", "torch.nn.Linear"], "is not a Method"),
        (["train", "--method", "nowhere.Own"], "nowhere"),
        (["train", "--cut", "stage9", "--model", "resnet8"], "Good cuts: "),
        (["train", "--model", "resnet8", "--batch", "5000"], "larger than the 600 training images"),
        (["train", "--data", "cifar100", "--data.root", "nowhere"], "nowhere"),
        (["train", "--ramp_up", "80"], "fraction"),
        (["evaluate", "nope"], "nope is not a run directory"),
        (["evaluate"], "missing"),
        (["models", "--jsn"], "did you mean '--json'?"),
        (
            [*SMALL, "--method", "Baseline", "--cut", "stage3"],
            "Baseline trains a single network, so there is nothing",
        ),
        ([*SMALL, "--method", "DML", "--cut", "stage3"], "DML trains whole networks, so there is nothing to cut"),
        ([*SMALL, "--method", "Baseline", "--method.views", "0"], "needs 1 to 256 views of each image, not 0"),
        ([*SMALL, "--method.beta", "2"], "is from 0 to 1, not 2.0"),
        (["train", "--method", "Method"], "Method has no `forward`"),
        (["train", "--seed", "-1"], "--seed must be from 0"),
        (["train", "--device", "abacus"], "There is no device 'abacus' here"),
        (["train", "--device", "cuda:99"], "There is no device 'cuda:99' here"),
        ([*SMALL, "--optimizer.momentum", "0"], "--optimizer: Nesterov momentum requires a momentum"),
        ([*SMALL, "--optimizer", "LBFGS"], "LBFGS wants the loss more than once a step"),
        ([*SMALL, "--schedule", "OneCycleLR", "--schedule.max_lr", "1"], "--schedule: You must define"),
        (["train", "--data", "InMemory"], "There is no data set or directory 'InMemory'"),
        (["train", "--schedule", "StepLR"], "--schedule.step_size is missing"),
        (["train", "--schedule", "Schedule"], "There is no schedule 'Schedule'"),
        (["train", "--schedule.at", "0.5"], "--schedule.at expects a list such as [a, b], not '0.5'"),
        (["data", "inspect", "digits", "--sheet", "."], "--sheet . cannot be written (is a directory)"),
        (["demo", "--seeds", "0"], "--seeds must be at least 1, not 0"),
    ],
)
def test_bad_input_gets_one_sentence(arguments: list[str], words: str, tmp_path: Path) -> None:
    if arguments[0] == "train" and "--out" not in arguments:
        arguments = [*arguments, "--out", "run"]
    assert words in refused(*arguments, cwd=tmp_path)
    assert not any(tmp_path.iterdir())


def test_another_configuration_is_refused_and_nothing_is_touched(run: Path) -> None:
    def contents() -> dict[str, tuple[bytes, int]]:
        files = (f for f in run.iterdir() if f.name != ".lock")
        return {f.name: (f.read_bytes(), f.stat().st_mtime_ns) for f in files}

    before = contents()
    sentence = refused(*TRAIN, "--method.temperature", 5, "--peers", 2, "--seed", 1, "--out", run)
    assert "method.temperature was 4.0, is 5.0" in sentence and "seed was 0, is 1" in sentence
    assert contents() == before


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    assert "not empty" in refused(*TRAIN, "--out", tmp_path)
    assert [f.name for f in tmp_path.iterdir()] == ["thesis.txt"]
    assert "is a file" in refused(*TRAIN, "--out", tmp_path / "thesis.txt")
    assert "cannot be written (Not a directory)" in refused(*TRAIN, "--out", tmp_path / "thesis.txt" / "run")


@pytest.mark.parametrize("content", [b"method: [\n", b"", b"\xff\xfe", b"- PCL\n"])
def test_a_damaged_config_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(content)
    for command in (["evaluate", tmp_path], [*TRAIN, "--out", tmp_path]):
        assert re.search(r"config\.yaml (is damaged|cannot be read \()", refused(*command))
    assert (tmp_path / "config.yaml").read_bytes() == content
    if content in (b"", b"- PCL\n"):
        assert "holds no options" in refused(
            *TRAIN, "--config", tmp_path / "config.yaml", "--out", tmp_path / "run"
        )


def test_weights_that_are_not_the_networks_are_refused(run: Path, tmp_path: Path) -> None:
    """As after a change of the user's own code."""
    other = shutil.copytree(run, tmp_path / "other")
    config = (other / "config.yaml").read_text()
    (other / "config.yaml").write_text(config.replace("model: resnet8", "model: resnet14"))
    assert "does not fit this code's network" in refused("evaluate", other)
    again = ["--method.temperature", 4, "--peers", 2, "--model", "resnet14", "--out", other]
    assert "checkpoint.pt belongs to another run (model was resnet8, is resnet14)" in refused(*TRAIN, *again)


def test_a_single_image_at_a_time_is_refused_where_batch_norm_needs_two(tmp_path: Path) -> None:
    sentence = refused(*TRAIN, "--method", "ONE", "--batch", 1, "--out", tmp_path / "run")
    assert "raise --batch" in sentence


def test_damaged_data_files_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    (folder / "fine_label_names.txt").write_text("\n".join(f"class{i}" for i in range(100)))
    (folder / "train.bin").write_bytes(bytes(1000))
    sentence = refused("train", "--data", "cifar100", "--data.root", tmp_path, "--out", tmp_path / "run")
    assert "train.bin is not the released file" in sentence and "fetch it again" in sentence
    (folder / "train.bin").unlink()
    assert "missing" in refused("train", "--data", "cifar100", "--data.root", tmp_path, "--out", tmp_path / "run")

"""Sentences that were wrong once: options of classes, cuts, runs and paths in place of names, own methods."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from PIL import Image

from coterie.cli.choosing import describe_cuts
from coterie.config import options
from coterie.config.parsing import parse
from coterie.models.resnet import resnet8
from coterie.peers.build import example_for
from tests.helpers.common import coterie, picture, printed, refused

SMALL = ["train", "--model", "resnet8", "--data", "digits", "--data.limit", 6, "--batch", 20, "--epochs", 1]
OWN_METHOD = '''
from coterie.methods.baseline import Baseline


class Halved(Baseline):
    """Cross-entropy, halved.

    Args:
        net: the network.
        factor: what the loss is multiplied by.
    """

    def __init__(self, net, factor: float = 0.5) -> None:
        super().__init__(net)
        self.factor = factor
'''


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--optimizer.lr", "abc"], "--optimizer.lr expects a number, not 'abc'."),
        (["--optimizer.lr", "nan"], "--optimizer.lr expects a number, not 'nan'."),
        (["--optimizer", "Adam", "--optimizer.lr", "abc"], "--optimizer.lr expects a number, not 'abc'."),
        ([*SMALL[1:], "--optimizer.lr", ".nan"], "--optimizer.lr must be a finite number."),
        (["--optimizer", "Adamm"], "There is no optimizer 'Adamm'; did you mean 'Adam'?"),
        (["--lr", "0.1"], "There is no option '--lr': the learning rate is --optimizer.lr."),
        (["--data.root"], "--data.root needs a value."),
        (["--method.help", "nowhere.Own"], "--method cannot be imported: No module named 'nowhere'."),
        (["--schedule.help", "Cosin"], "There is no schedule 'Cosin'; did you mean 'Cosine'?"),
        (["--data", "photos10"], "There is no data set or directory 'photos10'; did you mean 'photos'?"),
        (["--data", "./photos10"], "There is no folder or table './photos10'; did you mean 'photos'?"),
    ],
)
def test_train(arguments: list[object], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    assert refused("train", *arguments, "--out", "run", cwd=tmp_path) == sentence
    assert not (tmp_path / "run").exists()


def test_a_name_that_is_near_to_nothing_is_neither_a_set_nor_a_path(tmp_path: Path) -> None:
    sentence = refused("train", "--data", "photos10", "--out", "run", cwd=tmp_path)
    assert sentence.startswith(
        "There is no data set or directory 'photos10': it is none of cifar10, cifar100, digits"
    )
    assert sentence.endswith("and no folder or table of images has this path.")


def test_pretrained_points_to_the_option_of_the_network(tmp_path: Path) -> None:
    sentence = refused("train", "--pretrained", "true", "--out", "run", cwd=tmp_path)
    assert "--model_options.pretrained true" in sentence and "--init" in sentence
    parser = options.parser()
    assert parse(parser, ["--model_options.pretrained", "true"]).model_options == {"pretrained": True}


def test_a_bad_cut_is_refused_with_the_cuts_that_the_command_lists(tmp_path: Path) -> None:
    sentence = refused(*SMALL, "--cut", "layer9", "--out", "run", cwd=tmp_path)
    network = resnet8()
    listed = [cut["name"] for cut in describe_cuts("resnet8", network, example_for(network))["cuts"]]
    assert re.search(r"Good cuts: (.*)\.$", sentence)[1].split(", ") == listed  # type: ignore[index]
    assert json.loads(printed("cuts", "resnet8", "--json")[0])["cuts"][0]["name"] == listed[0]


def test_predict_takes_a_run_directory(tmp_path: Path) -> None:
    run, image = tmp_path / "run", tmp_path / "image.png"
    printed(*SMALL, "--method", "Baseline", "--out", run)
    Image.Image.save(picture(size=(8, 8)).convert("L"), image)
    assert printed("predict", run, image) == printed("predict", run / "student.safetensors", image)
    assert refused("predict", run) == "images is missing: see `coterie predict --help`."
    assert refused("predict") == "file and images are missing: see `coterie predict --help`."
    (run / "student.safetensors").unlink()
    assert "is not finished, so that it has no student.safetensors" in refused("predict", run, image)
    assert "is no run directory: name one, or a file that `coterie export` wrote" in refused(
        "predict", tmp_path, image
    )


def test_own_methods_are_shown_with_their_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_sentences.py").write_text(OWN_METHOD)
    monkeypatch.chdir(tmp_path)
    text = coterie("methods", "own_sentences.Halved", "PCL", cwd=tmp_path).stdout  # as users call it
    assert "own_sentences.Halved (one network): Cross-entropy, halved." in text
    assert re.search(r"--method.factor +│ 0.5 +│ what the loss is multiplied by. +│", text)
    assert "--method.ensemble_gradient" in text
    entry = json.loads(printed("methods", "own_sentences.Halved", "--json")[0])["own_sentences.Halved"]
    assert entry["options"] == {"factor": 0.5} and entry["trains"] == "one network"
    for words in (
        ["--method.help", "own_sentences.Halved"],
        ["--method", "own_sentences.Halved", "--method.help"],
    ):
        with pytest.raises(SystemExit) as ended:
            printed("train", *words)
        assert ended.value.code == 0
    assert "No module named 'nowhere'" in refused("methods", "nowhere.Own")
    assert refused("methods", "PLC") == "There is no method 'PLC'; did you mean 'PCL'?"


def test_help_of_a_class_is_that_of_the_class_named_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_help.py").write_text(OWN_METHOD)
    monkeypatch.syspath_prepend(tmp_path)
    cases = {"method": "own_help.Halved", "optimizer": "AdamW", "schedule": "Cosine"}
    words = {"method": "--method.factor", "optimizer": "--optimizer.amsgrad", "schedule": "--schedule.floor"}
    for part, name in cases.items():
        with pytest.raises(SystemExit):
            parse(options.parser(), [f"--{part}", name, f"--{part}.help"])
        assert words[part] in capsys.readouterr().out
    with pytest.raises(SystemExit):
        parse(options.parser(), ["--method.help"])
    assert "--method.peer_teacher" in capsys.readouterr().out  # of PCL, the default


def test_another_optimiser_has_its_own_defaults_unless_they_are_set(tmp_path: Path) -> None:
    parser, file = options.parser(), tmp_path / "options.yaml"
    own = {"lr": 0.001, "weight_decay": 0.01}

    def arguments(*words: str) -> dict[str, float]:
        spec = parse(parser, list(words)).optimizer
        assert spec.class_path == "torch.optim.AdamW"
        return {name: spec.init_args[name] for name in own}

    assert arguments("--optimizer", "AdamW") == own
    assert arguments("--optimizer", "AdamW", "--optimizer.lr", "0.02") == own | {"lr": 0.02}
    assert arguments("--optimizer.lr=0.02", "--optimizer=torch.optim.AdamW") == own | {"lr": 0.02}
    file.write_text("optimizer: {class_path: AdamW, init_args: {lr: 0.02}}\n")
    assert arguments("--config", str(file)) == own | {"lr": 0.02}
    assert arguments("--config", str(file), "--optimizer.weight_decay", "0") == {"lr": 0.02, "weight_decay": 0}
    for optimizer in ("AdamW", {"class_path": "AdamW"}):
        written = options.from_options({"optimizer": optimizer}).config["optimizer"]["init_args"]
        assert {name: written[name] for name in own} == own


def test_sgd_keeps_the_defaults_of_the_recipe() -> None:
    parser = options.parser()
    sgd = parse(parser, []).optimizer
    assert (sgd.init_args.lr, sgd.init_args.momentum, sgd.init_args.weight_decay) == (0.1, 0.9, 5e-4)
    assert parse(parser, ["--optimizer", "SGD"]).optimizer == sgd
    assert parse(parser, ["--optimizer.lr", "0.2"]).optimizer.init_args.weight_decay == 5e-4
    written = options.from_options({"optimizer": "SGD"}).config["optimizer"]
    assert written == options.from_options({}).config["optimizer"]


def test_a_path_in_a_yaml_file_is_a_data_set_as_with_the_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    parser = options.parser()
    for data in ("photos", "labels.csv"):
        (tmp_path / "options.yaml").write_text(f"data: {data}\nepochs: 7\n")
        config = parse(parser, ["--config", "options.yaml"])
        assert config.data == parse(parser, ["--data", data]).data and config.epochs == 7
    (tmp_path / "options.yaml").write_text("data: {class_path: photos, init_args: {size: 64}}\n")
    assert parse(parser, ["--config", "options.yaml"]).data.init_args.size == 64


def test_a_run_on_a_table_is_continued_and_evaluated_from_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos, elsewhere = tmp_path / "photos", tmp_path / "elsewhere"
    photos.mkdir()
    elsewhere.mkdir()
    rows = ["image,label"]
    for number in range(20):
        picture(number, (16, 16)).save(photos / f"{number}.png")
        rows.append(f"{number}.png,{'ab'[number % 2]}")
    (photos / "labels.csv").write_text("\n".join(rows) + "\n")
    monkeypatch.chdir(photos)
    common = ["--method", "Baseline", "--model", "resnet8", "--data.size", 16, "--data.workers", 0, "--batch", 4]
    run = tmp_path / "runs" / "first"
    printed("train", "--data", "labels.csv", *common, "--epochs", 1, "--out", run)
    data = yaml.safe_load((run / "config.yaml").read_text())["data"]["init_args"]
    assert (data["root"], data["file"]) == (str(photos), "labels.csv")
    monkeypatch.chdir(elsewhere)
    assert "peer1" in printed("evaluate", run)[0]
    shutil.rmtree(run / "checkpoint", ignore_errors=True)
    assert "trained" in printed("train", "--config", run / "config.yaml", "--out", run)[0]

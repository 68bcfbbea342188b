"""Help and typos are answered from the source files alone: fast, and as the full parser would."""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jsonargparse import ArgumentParser

from coterie.cli import main as cli
from coterie.cli.help import GROUPS, command_help
from coterie.cli.options import CONFIG_TEXT, FOLLOWS, command_options, recipe_options
from coterie.cli.typos import _flags
from coterie.config import options
from coterie.config.parsing import add_command
from coterie.config.recipe import Recipe
from coterie.config.schedule import Steps
from coterie.data import data_sets
from coterie.methods import available
from coterie.models import networks
from coterie.names import listed_names, subclass_names
from tests.helpers.common import printed, refused

QUICK = [
    ["--help"],
    ["train", "--help"],
    ["compare", "-h"],
    ["evaluate", "--help"],
    ["data", "--help"],
    ["data", "inspect", "--help"],
    ["trian"],
    ["train", "--epoch", "3"],
    ["train", "--method", "PLC"],
    ["train", "--method.help", "PLC"],
    ["train", "--model=resnet3"],
    ["train", "--data", "cifr10"],
    ["train", "--pretrained"],
    ["compare", "--methods", "Baseline,PLC"],
    ["compare", "--batch-size", "3"],
    ["cuts", "resnet3"],
    ["evaluate", "run", "--jsn"],
    ["data", "cifr10"],
]
SLOW_MODULES = ("torch", "torchvision", "timm", "numpy", "jsonargparse", "rich", "yaml")


def source(name: str) -> Path:
    return Path(cli.COMMANDS[name].__code__.co_filename)


@pytest.mark.parametrize("arguments", QUICK, ids=" ".join)
def test_help_and_typos_need_no_torch_and_less_than_a_second(arguments: list[str]) -> None:
    code = (
        "import sys; from coterie.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print('MODULES', *sys.modules, file=sys.stderr)"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1
    answer, _, modules = result.stderr.partition("MODULES")
    assert not set(SLOW_MODULES) & set(modules.split())
    if {"-h", "--help"} & set(arguments):
        assert result.returncode == 0 and "usage: coterie" in result.stdout and not answer
    else:
        assert result.returncode == 2 and answer.startswith("coterie: There is no ") and answer.count("\n") == 1


@pytest.mark.parametrize("name", ["train", "compare", *sorted({*cli.COMMANDS} - {"train", "compare", "data"})])
def test_help_fits_on_a_screen(name: str) -> None:
    lines = command_help(name, source(name)).splitlines()
    assert len(lines) < 90 and max(map(len, lines)) <= 80
    assert printed(name, "--help")[0].splitlines() == lines


def test_the_help_of_train_begins_with_what_one_needs_first() -> None:
    text = command_help("train", source("train"))
    flags = [line.split()[0] for line in text.splitlines() if line.startswith("  --")]
    assert flags[:6] == ["--out", "--method", "--model", "--data", "--epochs", "--batch"]
    assert "torch.utils.data" not in text and "IterDataPipe" not in text
    grouped = [f"--{name}" for names in GROUPS.values() for name in names]
    assert flags[: len(grouped)] == grouped
    assert {*flags} == {
        "--out",
        "--config",
        "--seeds",
        "--trust",
        "--restart",
        *(f"--{option.name}" for option in recipe_options()),
    }


def test_every_option_and_its_text_and_default_is_that_of_the_recipe() -> None:
    read = {option.name: option for option in recipe_options()}
    assert list(read) == [field.name for field in fields(Recipe) if field.name not in FOLLOWS]
    actions = {action.dest: action for action in options.parser()._actions}
    recipe = Recipe()
    for name, option in read.items():
        assert " ".join(actions[name].help.split()) == option.text
        default = getattr(recipe, name)
        if isinstance(default, int | float | str):  # False is not shown
            shown = option.default_text() or "False"
            assert shown == default if isinstance(default, str) else eval(shown.title()) == default
    assert read["data"].default_text() == type(recipe.data).__name__
    assert isinstance(recipe.schedule, Steps) and read["schedule"].default_text() == "Steps"
    optimizer = recipe.optimizer
    assert isinstance(optimizer, partial)
    named = ", ".join(f"{name} {value}".replace("True", "true") for name, value in optimizer.keywords.items())
    assert read["optimizer"].default_text() == f"{optimizer.func.__name__}, {named}"
    assert actions["config"].help == CONFIG_TEXT


def test_the_flags_that_pass_as_spelled_right_are_those_of_the_full_parsers() -> None:
    for name in cli.COMMANDS.keys() - {"data", "compare"}:
        parser = options.parser() if name == "train" else ArgumentParser()
        if name == "train":
            for flag in ("--out", "--seeds", "--trust", "--restart"):
                parser.add_argument(flag)
        else:
            add_command(parser, cli.COMMANDS[name])
        flags = {flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")}
        assert _flags(name, command_options(name, source(name))) == flags


def test_names_in_the_source_files_are_those_that_are_imported() -> None:
    assert subclass_names("methods", "Method") == list(available())
    assert listed_names("data") == list(data_sets())
    assert listed_names("models") == list(networks())


@pytest.mark.parametrize("arguments", [words for words in QUICK[5:] if words[0] in ("train", "compare", "cuts")])
def test_a_typo_gets_the_sentence_of_the_full_parser(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = [] if arguments[0] == "cuts" or "--pretrained" in arguments else ["--out", "run"]
    sentence = refused(*arguments, *out, cwd=tmp_path)
    checked: list[Any] = []
    monkeypatch.setattr(cli, "check_words", lambda *words: checked.append(words))
    assert refused(*arguments, *out, cwd=tmp_path) == sentence
    assert checked


def test_help_all_shows_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "--help-all"])
    text = capsys.readouterr().out
    assert ended.value.code == 0 and "--optimizer.help" in text and "--print_config" in text and "AdamW" in text
    assert all(f"--{field.name}" in text for field in fields(Recipe) if field.name not in FOLLOWS)

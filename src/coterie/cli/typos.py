"""Refuse misspelled options and names before torch is imported, with the sentence of the full parser.

Names that timm and torch define, and options of classes (--method.NAME), are left to the full parser, which takes
seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from ..errors import InputError, unknown
from ..names import (
    PARTS,
    listed_names,
    path_exists,
    subclass_names,
    unknown_data,
    unknown_model,
    unknown_option,
)
from .options import CommandOptions, command_options

MAY_BE_EMPTY = ("--only", "--against", "--shard", "--into")
"""Options for which nothing is a value, their default."""


def check_text(words: list[str]) -> None:
    """Refuse words that can be no value: one with a null character, and an empty one where a name is needed."""
    before = ""
    for word in words:
        if "\0" in word:
            raise InputError(f"'{word}' has a null character, which no name and no value has.")
        flag, equals, value = word.partition("=")
        option = before.replace("_", "-") if not word else flag.replace("_", "-") if equals and not value else None
        if option is not None and option not in MAY_BE_EMPTY:
            place = f"after {option}" if option.startswith("-") else "among the words"
            raise InputError(f"An empty value stands {place}: write one, or leave it out.")
        before = word


def check_words(name: str, file: Path, words: list[str]) -> None:
    """Refuse options that a command does not have, and methods, data sets and networks that do not exist."""
    options = command_options(name, file)
    flags = _flags(name, options)
    for flag, value in _pairs(words):
        if "." not in flag and flag not in flags:
            raise unknown_option(flag, sorted(flags))
        if options.shared and value is not None:
            _check_name(flag.removeprefix("--").removesuffix(".help"), value)
    if name == "cuts" and words and not words[0].startswith("-"):
        _check_name("model", words[0])


def _flags(name: str, options: CommandOptions) -> set[str]:
    """Return the options that the full parser of a command knows, apart from those of classes."""
    names = {option.name for option in (*options.own, *options.shared) if not option.is_word}
    if options.shared:
        names |= {"config", "print_config", "class_weights+", *(f"{part}.help" for part in PARTS)}
    if name == "compare":
        names |= {"method", "seed"}  # refused with a sentence of their own
    if "data" in names:
        names.add("data.help")
    return {f"--{name}" for name in (*names, "help")}


def _pairs(words: list[str]) -> Iterator[tuple[str, str | None]]:
    """Yield every flag, with underscores, and its value, if it has one."""
    for word, following in pairwise([*words, "--"]):
        if word.startswith("--") and word != "--":
            flag, equals, value = word.partition("=")
            flag = "--" + flag[2:].replace("-", "_")
            yield flag, value if equals else None if following.startswith("--") else following


def _check_name(option: str, value: str) -> None:
    """Refuse a short name that is none of ours; a path, a dotted name or a mapping is not judged here."""
    if option == "methods":
        for each in value.split(","):
            _check_name("method", each.strip())
    if option == "model" and ":" not in value and value not in (models := listed_names("models")):
        raise unknown_model(value, models)
    if not value.isidentifier():
        return
    if option == "method" and value not in ("Method", *(methods := sorted(subclass_names("methods", "Method")))):
        raise unknown("method", value, methods)
    if option == "data" and value not in (sets := listed_names("data")) and not path_exists(Path(value)):
        raise unknown_data(value, sets)

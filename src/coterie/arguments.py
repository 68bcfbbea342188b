"""Command-line arguments: jsonargparse's parsing, with one clear sentence where it fails."""

from __future__ import annotations

import argparse
import re
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from .errors import InputError, unknown


def parse(parser: ArgumentParser, arguments: list[str], defaults: bool = True) -> Namespace:
    """Parse, or raise an InputError. `--some-option` is `--some_option`; a bare switch means true."""
    try:
        return parser.parse_args(_normalise(parser, arguments), defaults=defaults)
    except (argparse.ArgumentError, TypeError, ValueError) as error:
        raise _explain(parser, str(error)) from None


def parse_object(parser: ArgumentParser, options: dict[str, Any], defaults: bool = True) -> Namespace:
    """The same for plain values, as a YAML file holds them."""
    try:
        return parser.parse_object(options, defaults=defaults)
    except (argparse.ArgumentError, TypeError, ValueError) as error:
        raise _explain(parser, str(error)) from None


def _normalise(parser: ArgumentParser, arguments: list[str]) -> list[str]:
    switches = {
        flag
        for action in parser._actions
        if getattr(action, "_typehint", None) is bool
        for flag in action.option_strings
    }
    found = []
    for i, argument in enumerate(arguments):
        if argument == "-o":
            argument = "--output"
        if argument.startswith("--"):
            name, equals, value = argument.partition("=")
            argument = name.replace("-", "_").replace("__", "--", 1) + equals + value
            following = arguments[i + 1] if i + 1 < len(arguments) else "--"
            if argument in switches and following.lower() not in ("true", "false", "yes", "no"):
                argument += "=true"
        found.append(argument)
    return found


def _explain(parser: ArgumentParser, message: str) -> InputError:
    """jsonargparse's message as one sentence that says what to do."""
    options = sorted({f.lstrip("-") for a in parser._actions for f in a.option_strings if f.startswith("--")})
    if match := re.search(r"unrecognized arguments: (\S+)", message):
        name = match[1].partition("=")[0]
        return unknown("option", name, [f"--{o}" for o in options]) if name.startswith("-") else _stray(name)
    keys = re.findall(r'[Pp]arser key "([^"]+)"', message)
    option = "--" + ".".join(keys) if keys else "an option"
    if match := re.search(r"Expected a dot import path string: (\S+)", message):
        return unknown(keys[0], match[1].rstrip("."), _known(parser, keys[0]))
    if match := re.search(r"Option '([^']+)' is not accepted|Key '([^']+)' is not expected", message):
        wrong = match[1] or match[2]
        path = re.search(r"class_path='([^']+)'", message)
        accepted = _accepted(path[1]) if path else options
        prefix = f"{option}." if path else "--"
        return unknown("option", f"{prefix}{wrong.split('.')[-1]}", [f"{prefix}{name}" for name in accepted])
    if match := re.search(
        r"(?:arguments are required|[Kk]ey \"?([\w.]+)\"? is required)[^\w]*([\w., -]*)", message
    ):
        return InputError(f"{match[1] or match[2].strip()} is missing: see --help.")
    if match := re.search(r"Unable to (?:load|parse) config .*?\"?([^\s\"]+)\"?[.:]", message):
        return InputError(f"{match[1]} is not a configuration file that can be read.")
    if match := re.search(r"Expected (.*?)\. Got value: ([^\n]*?)(?:\.? Got value|\n|$)", message):
        wanted = re.sub(r"<class '(\w+)'>", r"\1", match[1]).rstrip(".")
        return InputError(f"{option} expects {wanted}, not '{match[2].rstrip('.')}'.")
    return InputError(f"{option}: " + " ".join(message.split()))


def _stray(word: str) -> InputError:
    return InputError(f"'{word}' belongs to no option: see --help.")


def _known(parser: ArgumentParser, key: str) -> list[str]:
    """The short names that an option for a class takes."""
    from jsonargparse._typehints import get_all_subclass_paths

    action: Any = next(a for a in parser._actions if a.dest == key)
    names = [path.rpartition(".")[2] for path in get_all_subclass_paths(action._typehint)]
    return sorted(name for name in names if name not in ("Method", "Data", "InMemory", "Cifar", "Schedule"))


def _accepted(class_path: str) -> list[str]:
    import importlib
    import inspect

    module, _, name = class_path.rpartition(".")
    parameters: list[str] = []
    for cls in inspect.getmro(getattr(importlib.import_module(module), name)):
        if "__init__" in vars(cls) and cls is not object:
            parameters += [p for p in inspect.signature(cls).parameters if p not in ("net", "options", "kwargs")]
    return parameters

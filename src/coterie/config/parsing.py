"""Parse options with jsonargparse; turn its errors into one sentence."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from jsonargparse import ArgumentParser, Namespace

from ..compat import import_torchvision
from ..data import data_sets
from ..errors import InputError, unknown
from ..names import unknown_data, unknown_option
from .short_names import NAMED, expand_flags
from .specs import import_class


def parse(parser: ArgumentParser, arguments: list[str]) -> Namespace:
    """Parse arguments, or raise an InputError. `--some-option` is `--some_option`; a bare switch means true."""
    with _explained(parser, flags=True):
        _prepare_torchvision(arguments)
        return parser.parse_args(_normalise(parser, arguments))


def add_command(parser: ArgumentParser, command: Callable[..., None]) -> None:
    """Add the arguments of a command from its signature; a list takes several words, `--output` is also `-o`."""
    optional: set[str | int] = {p.name for p in inspect.signature(command).parameters.values() if p.default == ()}
    for name in optional:
        parser.add_argument(str(name), type=str, nargs="*", default=[])
    parser.add_function_arguments(command, as_positional=True, skip=optional)
    for action in parser._actions:
        if not action.option_strings and getattr(action, "_typehint", None) == list[str]:
            action.nargs, action.metavar = "+", action.dest.upper()
            action._typehint = str  # type: ignore[attr-defined]  # of each word
        if action.dest == "output":
            action.option_strings = ["-o", *action.option_strings]
            parser._option_string_actions["-o"] = action


def instantiate(parser: ArgumentParser, config: Namespace) -> Namespace:
    """Build the objects that parsed options name; if two types were tried, raise the InputError of our own."""
    try:
        return parser.instantiate(config)
    except ValueError as error:
        if isinstance(error.__cause__, InputError):
            raise error.__cause__ from None
        pattern = r"Does not validate.*?\n  - ([^\n]*).*Given value: \w+\(class_path='([^']*)"
        failed = re.search(pattern, str(error), re.S)
        if failed is None:
            raise
        raise InputError(f"{failed[2]} cannot be made of these options: {failed[1]}.") from None


def parse_object(parser: ArgumentParser, options: dict[str, Any]) -> Namespace:
    """Parse plain values, as a YAML file holds them, or raise an InputError."""
    with _explained(parser, flags=False):
        _prepare_torchvision(options)
        return parser.parse_object(options)


@contextmanager
def _explained(parser: ArgumentParser, flags: bool) -> Iterator[None]:
    """Turn errors of jsonargparse into an InputError, which names an option by its flag or as Python does."""
    try:
        yield
    except InputError:
        raise
    except (argparse.ArgumentError, TypeError, ValueError) as error:
        raise _explain(parser, str(error), flags) from None


def _prepare_torchvision(options: object) -> None:
    """Import torchvision, if it is named, before jsonargparse does: beside a CPU-only torch that would fail."""
    if "torchvision." in str(options):
        import_torchvision("torchvision")


def _normalise(parser: ArgumentParser, arguments: list[str]) -> list[str]:
    """Return arguments as jsonargparse takes them: underscores in flags, values for switches, full names."""
    switches, words = _switches(parser), list[str]()
    for i, argument in enumerate(arguments):
        if argument.startswith("--"):
            name, equals, value = argument.partition("=")
            name = name.replace("-", "_").replace("__", "--", 1)
            following = arguments[i + 1] if i + 1 < len(arguments) else "--"
            if "." in name and not equals and following.startswith("--") and not name.endswith(".help"):
                raise InputError(f"{name} needs a value.")
            argument = name + equals + value
            if argument in switches and following.lower() not in switches[argument]:
                argument += "=true"
        elif words and words[-1] in NAMED:
            words[-1] += f"={argument}"
            continue
        words.append(argument)
    defaults = {action.dest: action.default for action in parser._actions}
    return expand_flags(words, {name: spec["class_path"] for name, spec in defaults.items() if _is_spec(spec)})


def _is_spec(value: object) -> bool:
    return isinstance(value, dict | Namespace) and "class_path" in value


def _switches(parser: ArgumentParser) -> dict[str, set[str]]:
    """Return the options that mean true without a value, with the values that they take."""
    switches: dict[str, set[str]] = {}
    for action in parser._actions:
        kind = getattr(action, "_typehint", None)
        kinds = get_args(kind) or (kind,)
        if bool in kinds:  # perhaps beside a Literal
            words = {"true", "false", "yes", "no", *(word for k in kinds for word in get_args(k))}
            switches |= dict.fromkeys(action.option_strings, words)
    return switches


def _explain(parser: ArgumentParser, message: str, flags: bool) -> InputError:
    """Return an error that says jsonargparse's message in one sentence, and what to do."""
    if branch := re.search(
        r"- (Problem with given class_path .*?)(?=\n    - |\n  Given value type|\Z)", message, re.S
    ):
        message = f"{message.splitlines()[0]}\n{branch[1]}"  # of several types, the one whose class was found
    elif "mix.Mix is abstract" in message or re.search(r'[Pp]arser key "mix".*init_args', message, re.S):
        if not flags:
            return InputError("`mix` must be a CutMix or a MixUp: a mapping of `class_path` and `init_args`.")
        return InputError("--mix is CutMix or MixUp, named before its options: --mix CutMix --mix.probability 1.")
    keys = re.findall(r'[Pp]arser key "([^"]+)"', message) or re.findall(r"^--(\w+)\.help: ", message)
    prefix, mark = ("--", "") if flags else ("", "`")
    key = prefix + ".".join(keys)
    option = f"{mark}{key}{mark}"
    flag_names = {f for a in parser._actions for f in a.option_strings if f.startswith("--")}
    options = sorted(prefix + flag.removeprefix("--") for flag in flag_names)
    if (error := _explain_name(message, option)) is not None:
        return error
    if match := re.search(r"unrecognized arguments: (-\S+)", message):
        return unknown_option(match[1].partition("=")[0], options)
    if match := re.search(r"unrecognized arguments: (\S+)", message):
        return InputError(f"'{match[1]}' belongs to no option: see --help.")
    if match := re.search(r"argument (\S+): expected one argument", message):
        return InputError(f"{match[1]} needs a value.")
    match = re.search(r"Expected a dot import path string: (\S+)", message)
    if match and len(keys) == 1:
        if keys[0] == "data":
            return unknown_data(match[1], data_sets())
        return unknown(keys[0], match[1], _class_names(parser, keys[0]))
    if match := re.search(r"Option '([^']+)' is not accepted", message):
        path = re.search(r"class_path='?\\?'?([\w.]+)|class_path '([\w.]+)'", message)
        accepted = (
            [f"{key}.{name}" for name in accepted_options(import_class(path[1] or path[2]))] if path else options
        )
        return unknown_option(f"{key}.{match[1]}" if path else prefix + match[1], accepted)
    if match := re.search(r"arguments are required: ([\w, ]+)(?:\. Got value|\n)", message):  # of a class
        missing = ", ".join(f"{mark}{key}.{name}{mark}" for name in match[1].split(", "))
        hint = f": `{key}.help NAME` says what it is" if flags else ""
        return InputError(f"{missing} is missing{hint}.")
    if "Unexpected config" in message:
        return InputError("--config names a file that holds no options: it wants lines such as `epochs: 30`.")
    if match := re.search(r"(?:required: |[Kk]ey \"?)([\w.]+(?:, [\w.]+)*)\"?(?: is required|$)", message):
        hint = f": see `{parser.prog} --help`" if flags else ""
        words = match[1].replace(", ", " and ")
        return InputError(f"{words} {'are' if ',' in match[1] else 'is'} missing{hint}.")
    others = re.findall(r"Import path.* does not correspond to a subclass of (\w+)", message)
    if others and len(others) == max(1, len(re.findall(r"^ +- ", message, re.M))):  # all types that were tried
        named = re.search(r"Given value: (\S+)|Import path (\S+) does", message)
        name = (named[1] or named[2]) if named else "what was named"
        return InputError(f"{option}: {name} is not a subclass of {' or '.join(others)}.")
    if match := re.search(r"File does not exist: '?([^'\n]+)", message):
        return InputError(f"{option}: there is no file {Path(match[1]).name}.")
    if "Expected a" in message and (
        value := re.search(r"[Gg](?:ot|iven) value: ([^\n]*?)(?:\. Got value|\n|$)", message)
    ):
        return InputError(f"{option} expects {_expected(message)}, not '{value[1]}'.")
    return (
        _explain_import(message, option)
        or _explain_shape(message, option)
        or InputError(f"{option if keys else ''} {' '.join(message.split())}".strip())
    )


def _expected(message: str) -> str:
    """Name the types that jsonargparse has tried; a class is named only where there is no other."""
    kinds = re.findall(r"Expected an? (?!dot import|import path)([^\n]*?)(?:\. Got|\n|$)", message)
    return " or ".join(filter(None, dict.fromkeys(map(_plain, kinds)))) or "the import path of a class"


def _explain_name(message: str, option: str) -> InputError | None:
    """Return the error of a name that is none of a class or file."""
    if "surrogates not allowed" in message:
        return InputError(f"{option}: its name is not valid UTF-8, so that no file can hold it.")
    if match := re.search(
        r"Unexpected import object '?(.*?)'?(?:\. Got|\n)|Expected '?(.*?)'? to be a function", message
    ):
        named = re.search(r"[Gg](?:ot|iven) value: (\S+)", message)
        name = named[1] if named else match[1] or match[2]
        return InputError(f"{option}: {name} is not a class that can be used here.")
    if match := re.search(r"Unexpected import path format: (\S+)", message):
        return InputError(f"{option}: {match[1]} is not the import path of a class, such as my_module.MyClass.")
    if match := re.search(r"Path is not a file: '?([^'\n]+)", message):
        return InputError(f"{option}: {Path(match[1]).name} is not a file.")
    return None


def _explain_import(message: str, option: str) -> InputError | None:
    """Return the error of a class that cannot be imported, or is of another kind."""
    if match := re.search(r"(No module named '[^']+'|module '[^']+' has no attribute '[^']+')", message):
        return InputError(f"{option} cannot be imported: {match[1]}.")
    if match := re.search(r"Expected '([^']+)' to be a subclass of <class '(\w+)'", message):
        return InputError(f"{option}: {match[1]} is not a {match[2]}.")
    return None


def _explain_shape(message: str, option: str) -> InputError | None:
    """Return the error of a value that is neither a name nor the mapping of a class and its options."""
    if "has no attribute 'keys'" in message:
        return InputError(f"{option}: `init_args` must be a mapping such as '{{a: 1}}'.")
    if match := re.search(r"Does not validate.*Given value: ([^\n]*)", message, re.S):
        return InputError(
            f"{option} expects a name, or a mapping of `class_path` and `init_args`, not '{match[1]}'."
        )
    if "Empty nested key" in message:
        return InputError("An option ends in a dot: write what it names, such as --method.temperature.")
    return None


def _plain(kind: str) -> str:
    """Name a type in plain words."""
    names = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text", "NoneType": ""}
    names |= {
        "Sequence": "a list such as [a, b]",
        "tuple": "a list such as [a, b]",
        "dict": "a mapping such as '{a: 1}'",
    }
    if match := re.fullmatch(r"<class '(?:\w+\.)*(\w+)'>", kind):
        return names.get(match[1], match[1])
    if match := re.fullmatch(r"(?:typing\.)?Literal\[(.*)\]", kind):
        return "one of " + match[1].replace("'", "")
    return kind


def _class_names(parser: ArgumentParser, key: str) -> list[str]:
    """List the short names of the classes that an option takes."""
    from jsonargparse._typehints import get_all_subclass_paths

    action: Any = next(a for a in parser._actions if a.dest == key)
    paths = [p for p in get_all_subclass_paths(action._typehint) if not p.startswith("torch.utils.data")]
    bases = ("Method", "Data", "InMemory", "Loaded", "Cifar", "Schedule", "LRScheduler")
    return sorted(name for name in (path.rpartition(".")[2] for path in paths) if name not in bases)


def accepted_options(kind: type) -> list[str]:
    """List the parameters of a class, with those of its bases that it passes on."""
    parameters: list[str] = []
    for cls in inspect.getmro(kind):
        if "__init__" in vars(cls) and cls is not object:
            own = inspect.signature(cls).parameters
            parameters += [p for p in own if p not in ("net", "params", "options", "kwargs")]
            if not any(p.kind is p.VAR_KEYWORD for p in own.values()):
                break
    return parameters

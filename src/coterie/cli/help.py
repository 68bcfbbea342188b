"""Print the help of a command from its source: torch and the parser, which take seconds, are not needed for it."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from .options import Option, command_options

WIDTH, COLUMN = 80, 27
"""Columns of the text, and of the flags on its left."""
GROUPS = {
    "what to train": (
        "out",
        "method",
        "model",
        "data",
        "epochs",
        "batch",
        "peers",
        "cut",
        "task",
        "select",
        "patience",
        "seed",
        "seeds",
    ),
    "optimisation": (
        "optimizer",
        "schedule",
        "warmup",
        "mix",
        "label_smoothing",
        "class_weights",
        "ramp_up",
        "ema_horizon",
        "ema",
        "clip_norm",
        "decay_norm_and_bias",
    ),
    "initial weights": ("model_options", "init", "branch_noise"),
    "device, checkpoints and records": (
        "device",
        "precision",
        "compile",
        "accumulate",
        "checkpoint_activations",
        "sync_batch_norm",
        "evaluate_every",
        "checkpoint_every",
        "track",
        "config",
        "restart",
        "trust",
    ),
}
"""The options of a training in the order of the help; those that are not named here follow at its end."""
PARTS = (
    "--method, --data, --optimizer, --schedule and --mix name classes that have their own options: --method PCL "
    "--method.temperature 4. `coterie train --method.help PCL` lists them. `--help-all` shows the full text of "
    "every option, `--print_config` prints the options that would be used."
)
SHARED = (
    "All options of `coterie train` can be used too, and apply to all methods; --method.NAME applies to the "
    "methods that have this option. `--help-all` shows the full text of the options above."
)


def command_help(name: str, file: Path) -> str:
    """Return the help of a command whose function stands in a file, in lines of at most 80 columns."""
    options = command_options(name, file)
    words = [option for option in options.own if option.is_word]
    flags = [option for option in options.own if not option.is_word]
    if name == "train":
        usage, groups, end = f"coterie {name} --out DIR [OPTIONS]", _grouped([*flags, *options.shared]), PARTS
    elif name == "compare":
        first = next(iter(GROUPS))
        usage, end = f"coterie {name} --out DIR [OPTIONS]", SHARED
        groups = {"what to compare": flags, first: _grouped(options.shared)[first]}
    else:
        named = [f"[{w.name.upper()} ...]" if w.default else w.name.upper() for w in words]
        usage = " ".join(["coterie", name, *named, "[OPTIONS]"])
        groups, end = {"arguments": words, "options": flags}, ""
    return _page(usage, options.summary, groups, end)


def _grouped(options: list[Option]) -> dict[str, list[Option]]:
    by_name = {option.name: option for option in options}
    groups = {title: [by_name.pop(name) for name in names if name in by_name] for title, names in GROUPS.items()}
    return {**groups, "further options": list(by_name.values())}


def _page(usage: str, summary: str, groups: dict[str, list[Option]], end: str) -> str:
    lines = [f"usage: {usage}", "", *_wrap(summary)]
    for title, options in groups.items():
        if options:
            lines += ["", f"{title}:", *(line for option in options for line in _lines(option, brief=bool(end)))]
    return "\n".join([*lines, *(["", *_wrap(end)] if end else [])])


def _lines(option: Option, brief: bool) -> list[str]:
    """Return a flag, or a word without one, with its text beside it; `brief`: two lines of it, or one clause."""
    flag = f"--{option.name}" if option.is_switch else f"--{option.name} {option.metavar}"
    left = f"  {option.name.upper() if option.is_word else flag}"
    text = _with_values(option, option.text)
    if brief and len(_wrap(text, COLUMN)) > 2:
        text = _with_values(option, re.split(r"; |\. ", option.text)[0])
    lines = _wrap(text, COLUMN)
    if len(left) > COLUMN - 1:
        return [left, *lines]
    return [left + lines[0][len(left) :], *lines[1:]] if lines else [left]


def _with_values(option: Option, text: str) -> str:
    """Return the text with the values to choose from, if it does not name them, and with the default."""
    choices, default, text = option.choices, option.default_text(), text.removesuffix(".")
    if len(choices) > 1 and not all(choice in text for choice in choices):
        text += f": {', '.join(choices[:-1])} or {choices[-1]}"
    return f"{text} (default {default})" if default else text


def _wrap(text: str, indent: int = 0) -> list[str]:
    margin = " " * indent
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=margin,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )

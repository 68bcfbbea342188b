"""Writes docs/methods: a page per method, from its docstring, signature and picture. Run it after changing one."""

from __future__ import annotations

import inspect
import re
import textwrap
from itertools import zip_longest
from pathlib import Path

from docstring_parser import parse
from draw_methods import PICTURES
from formulas import FORMULAS
from method_advice import WHEN, cost, measured

from coterie.methods import Method, available

HERE = Path(__file__).parent / "methods"
TRAINS = {
    "one network": "a single network",
    "branches": "branches on a shared trunk (`--cut`, `--peers`)",
    "networks": "whole networks, also of different architectures (`--peers 3` or `--peers resnet32,resnet20`)",
}
SYMBOLS = """\
    ## Symbols

    | | |
    |---|---|
    | $`z`$ | logits; $`z_j`$ those of peer j |
    | $`f`$ | pooled features, the input of the classifier |
    | $`y`$ | the labels |
    | $`m`$ | the number of peers |
    | $`T`$ | the temperature |
    | $`\\sigma_T(z)`$ | softmax(z / T); `softmax_T` in docstrings |
    | $`w(e)`$ | the ramp-up: a weight that rises over the first epochs; e is the epoch |
    | CE | cross-entropy, averaged over the batch |
    | KL | Kullback-Leibler divergence, summed over the classes and averaged over the batch |
    | sg | stopped gradient: what follows is a constant for the backward pass |

    For [multi-label data](../recipes.md#several-labels-per-image), CE and KL use a sigmoid for each class.
    """
DEFAULTS = """\
    ## Defaults

    The defaults are those for 300 epochs of CIFAR. With `coterie train`, `ramp_up` and `beta` follow the length of
    the training (`--ramp_up` and `--ema_horizon` are fractions of it) unless you set them. `--ema` keeps and
    evaluates averaged weights (`mean1`, `mean2`, ...) for every method.
    """
SYMBOL = re.compile(r"(?<![\w`])(?P<letter>[A-Za-z])(?P<marks>(?:[_^][A-Za-z0-9]+)+)(?![\w`])")
"""A letter with subscripts or superscripts, as docstrings write it: z_j, L_ce^t."""
NOTE = "<!-- Written by docs/method_pages.py: change the docstring instead. -->\n"


def page(name: str, method: type[Method]) -> str:
    """The page of one method, in Markdown."""
    summary, _, body = inspect.cleandoc(method.__doc__ or "").partition("\n\nArgs:")[0].partition("\n\n")
    paragraphs = [p for p in body.split("\n\n") if not p.startswith("L = ")]  # FORMULAS has it as mathematics
    options = list(inspect.signature(method).parameters.values())[1:]
    lines = [
        f"# {name}",
        NOTE.strip(),
        summary,
        show_picture(name),
        "## When to use it",
        fill(WHEN[name]),
        fill(f"{cost(method)} {measured(name)}"),
        "## Formula",
        *FORMULAS[name],
        "[Symbols](README.md#symbols). The name under a brace is that of the loss term in `metrics.jsonl`.",
        *map(with_symbols, paragraphs),
        "## Usage",
        f"{name} trains {TRAINS[method.trains]}.",
    ]
    command = f"coterie train --method {name}"
    required = [p.name for p in options if p.default is p.empty]
    command += "".join(f" --method.{option} {option.upper()}" for option in required)
    lines += [f"```sh\n{command} --model resnet32 --data cifar100 --out DIR\n```"]
    if options:
        said = {p.arg_name: " ".join((p.description or "").split()) for p in parse(method.__doc__ or "").params}
        rows = ["| option | type | default | |", "|---|---|---|---|"]
        for p in options:
            kind = str(p.annotation).replace("|", "\\|")
            default = "" if p.default is p.empty else f"`{p.default}`"
            meaning = with_symbols(said[p.name]).replace("|", "\\|")
            rows.append(f"| `--method.{p.name}` | `{kind}` | {default} | {meaning} |")
        lines.append("\n".join(rows))
    return "\n\n".join(lines) + "\n"


def with_symbols(text: str) -> str:
    """Set the symbols of a text as formulas."""

    def formula(match: re.Match[str]) -> str:
        marks = re.findall(r"([_^])([A-Za-z0-9]+)", match["marks"])
        words = (f"{sign}{{\\text{{{word}}}}}" if len(word) > 2 else f"{sign}{{{word}}}" for sign, word in marks)
        return f"$`{match['letter']}{''.join(words)}`$"

    return SYMBOL.sub(formula, text)


def fill(text: str) -> str:
    """Wrap a paragraph, without breaking links."""
    return textwrap.fill(text, 115, break_long_words=False, break_on_hyphens=False)


def show_picture(name: str) -> str:
    """The line that shows a method's picture, and tells it in a sentence."""
    return f"![{PICTURES[name].sentence}]({name}.svg)"


def pages() -> dict[str, str]:
    """Every file of the folder by its name."""
    methods = dict(sorted(available().items(), key=lambda item: item[0].lower()))
    rows = "".join(
        f"| [{name}]({name}.md) | {inspect.cleandoc(method.__doc__ or '').splitlines()[0]} | {method.trains} |\n"
        for name, method in methods.items()
    )
    index = f"""\
    # The methods

    {NOTE.strip()}

    Coterie has eleven methods, and you can add [your own](../own_method.md). To choose one, see
    [When peers are worth their cost](../worth.md). *Branches* share the lower layers of the network; *networks*
    share nothing.

    | `--method` | description | trains |
    |---|---|---|
    """
    linked = [f"[{show_picture(name)}]({name}.md)" for name in methods]
    pairs = "".join(f"| {a} | {b} |\n" for a, b in zip_longest(linked[::2], linked[1::2], fillvalue=""))
    gallery = (
        f"\n{textwrap.dedent(DEFAULTS)}\n{textwrap.dedent(SYMBOLS)}\n## Pictures\n\n| | |\n|---|---|\n{pairs}"
    )
    return {"README.md": textwrap.dedent(index) + rows + gallery} | {
        f"{n}.md": page(n, m) for n, m in methods.items()
    }


if __name__ == "__main__":
    for file, text in pages().items():
        (HERE / file).write_text(text)

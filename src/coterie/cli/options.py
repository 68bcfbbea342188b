"""Read the options of a command from its source: a signature and a docstring, without importing what they name."""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
RECIPE = (PACKAGE / "config" / "recipe.py", "Recipe")
FOLLOWS = ("config", "objects")
"""Fields of a recipe that are no options."""
OUT_TEXT, CONFIG_TEXT = "the run directory (required).", "YAML file of options; flags after it override it."
TRUST_TEXT = "run Python code that the run of a teacher names, even if you did not train it on this machine."
RESTART_TEXT = "train from the start; the old contents of --out are moved to a directory next to it."
SEEDS_TEXT = "train this many seeds, beginning with --seed, each in its own directory in --out."


@dataclass(frozen=True)
class Option:
    """An option as its source states it; `default` is None where a value is required."""

    name: str
    kind: str = "str"
    default: ast.expr | None = None
    text: str = ""

    @property
    def is_word(self) -> bool:
        """Tell whether it is given without a flag: it is required, or one may name several or none."""
        return self.default is None or isinstance(self.default, ast.Tuple)

    @property
    def is_switch(self) -> bool:
        return self.kind.split(" | ")[0] == "bool"

    @property
    def metavar(self) -> str:
        """Return what stands for the value: N, X, the only choice, or the last word of the name in capitals."""
        if len(self.choices) == 1:
            return self.choices[0]
        first = self.kind.split(" | ")[0]
        return {"int": "N", "float": "X"}.get(first, self.name.rpartition("_")[2].upper())

    @property
    def choices(self) -> list[str]:
        """Return the values of a `Literal`."""
        match = re.search(r"Literal\[(.*?)\]", self.kind)
        return [word.strip(" '") for word in match[1].split(",")] if match else []

    def default_text(self) -> str:
        """Return the default as one would type it; nothing where that is no value, or too long for a line."""
        return "" if self.default is None else _as_typed(self.default)


def _as_typed(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        shown = node.value is not None and node.value is not False
        return str(node.value).replace("True", "true") if shown else ""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "field":
        return _as_typed(node.keywords[0].value)  # default_factory
    if isinstance(node, ast.Lambda):
        return _as_typed(node.body)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "partial":
        arguments = ", ".join(f"{k.arg} {_as_typed(k.value)}" for k in node.keywords)
        return f"{ast.unparse(node.args[0])}, {arguments}"
    if isinstance(node, ast.BinOp):
        return ast.unparse(node).replace(" ", "")  # 80/300
    if isinstance(node, ast.Subscript):  # SETS["digits"]
        return _as_typed(node.slice)
    name = ast.unparse(node)
    return name if name[0].isupper() and name.isidentifier() else ""


@functools.cache
def read_options(file: Path, name: str) -> tuple[str, tuple[Option, ...]]:
    """Return the first line of the docstring, and the options, of the function or dataclass of this name."""
    import docstring_parser

    tree = ast.parse(file.read_bytes())
    _inline_constants(tree)
    node = next(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name and ast.get_docstring(node)
    )
    docstring = docstring_parser.parse(ast.get_docstring(node) or "")
    texts = {p.arg_name: " ".join((p.description or "").split()) for p in docstring.params}
    options = [
        Option(field, ast.unparse(annotation) if annotation else "str", default, texts.get(field, ""))
        for field, annotation, default in _fields(node)
    ]
    return docstring.short_description or "", tuple(options)


def _inline_constants(tree: ast.Module) -> None:
    """Put what a module's own names stand for in their places: `Literal["32", "bf16"]` for `PrecisionName`."""
    values = {ast.unparse(n.targets[0]): n.value for n in tree.body if isinstance(n, ast.Assign)}
    plain = {name: value for name, value in values.items() if isinstance(value, ast.Constant | ast.Subscript)}

    class Inline(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return plain.get(node.id, node) if isinstance(node.ctx, ast.Load) else node

    Inline().visit(tree)


def _fields(node: ast.FunctionDef | ast.ClassDef) -> list[tuple[str, ast.expr | None, ast.expr | None]]:
    """Return name, annotation and default of each parameter of a function or field of a dataclass."""
    if isinstance(node, ast.ClassDef):
        items = [item for item in node.body if isinstance(item, ast.AnnAssign)]
        return [(ast.unparse(item.target), item.annotation, item.value) for item in items]
    parameters = node.args.args
    defaults = [None] * (len(parameters) - len(node.args.defaults)) + list(node.args.defaults)
    return [(p.arg, p.annotation, default) for p, default in zip(parameters, defaults, strict=True)]


def recipe_options() -> list[Option]:
    """Return the options of a training."""
    return [option for option in read_options(*RECIPE)[1] if option.name not in FOLLOWS]


@dataclass(frozen=True)
class CommandOptions:
    """A sentence about a command, its own options, and those of a training that it takes besides."""

    summary: str
    own: list[Option]
    shared: list[Option]


def command_options(name: str, file: Path) -> CommandOptions:
    """Return the options of a command whose function stands in a file, as far as its source has them."""
    if name == "train":
        config = Option("config", default=ast.Constant(None), text=CONFIG_TEXT)
        out = Option("out", default=ast.Constant(None), text=OUT_TEXT)
        seeds = Option("seeds", "int", ast.Constant(None), SEEDS_TEXT)
        trust = Option("trust", "bool", ast.Constant(False), TRUST_TEXT)
        restart = Option("restart", "bool", ast.Constant(False), RESTART_TEXT)
        shared = [*recipe_options(), config, restart, trust]
        return CommandOptions(read_options(file, name)[0], [out, seeds], shared)
    if name == "compare":
        own = read_options(file, "compare_methods")[1]
        replaced = {"method", "seed", *(option.name for option in own)}
        shared = [option for option in recipe_options() if option.name not in replaced]
        return CommandOptions(read_options(file, name)[0], list(own), shared)
    summary, options = read_options(file, name)
    return CommandOptions(summary, list(options), [])

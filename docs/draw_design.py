"""Draw docs/design.svg: the folders in the order of the import contract, and the way a batch takes through them.

Run it after changing the contract in pyproject.toml, the first line of a folder's docstring, or BATCH.
"""

from __future__ import annotations

import ast
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "coterie"
BATCH = {
    "data": ("sampler, in_memory, streaming, mix", "order, views, mixing"),
    "peers": ("net, shared, hooks", "m forward passes"),
    "methods": ("one file per method, losses", "loss terms"),
    "training": ("loop, step, distributed", "gradients, optimiser, averages"),
    "metrics": ("evaluate", "scores of every predictor"),
    "runs": ("directory, checkpoints", "record and checkpoint"),
}
"""What a batch passes: folder, modules, what leaves them. It is drawn in this order."""

WIDTH, ROW, TOP = 860, 34, 54
STYLE = """
svg { color-scheme: light dark; font: 14px system-ui, sans-serif; }
.paper { fill: light-dark(#ffffff, #14171c); } text { fill: light-dark(#1d2530, #e4e9f0); }
.box { fill: light-dark(#eef2f7, #232a34); stroke: light-dark(#c5cfdb, #3d4856); }
.way { fill: light-dark(#dbe9fb, #17375e); stroke: light-dark(#2f6fbf, #6aa5ee); }
.name { font: 600 14px ui-monospace, monospace; } .small { font-size: 12px; opacity: .78; }
.head { font-weight: 600; } .arrow { stroke: light-dark(#2f6fbf, #6aa5ee); fill: none; stroke-width: 1.6; }
.tip { fill: light-dark(#2f6fbf, #6aa5ee); }
"""


def folders() -> list[str]:
    """The layers of the import contract, the lowest first; the ground floor's modules are left out."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    return [name for name in reversed(contract["layers"]) if (PACKAGE / name).is_dir()]


def sentence(folder: str) -> str:
    """The first line of a folder's docstring."""
    docstring = ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text())) or ""
    return docstring.splitlines()[0]


def text(x: float, y: float, content: str, css: str = "") -> str:
    return f'<text x="{x}" y="{y}" class="{css}">{escape(content)}</text>'


def draw() -> str:
    """The picture as SVG."""
    names = folders()
    height = TOP + ROW * len(names) + 16
    place = {name: TOP + i * ROW for i, name in enumerate(names)}
    parts = [text(20, 30, "The folders: each imports only from those above it", "head")]
    parts += [text(560, 30, "The way of a batch", "head")]
    for name, y in place.items():
        css = "way" if name in BATCH else "box"
        parts.append(f'<rect class="{css}" x="20" y="{y}" width="124" height="26" rx="5"/>')
        parts += [text(30, y + 18, f"{name}/", "name"), text(156, y + 18, sentence(name), "small")]
    for number, (name, (modules, result)) in enumerate(BATCH.items(), 1):
        y = TOP + (number - 1) * 76
        parts.append(f'<rect class="way" x="560" y="{y}" width="280" height="50" rx="6"/>')
        parts.append(text(572, y + 20, f"{number}  {name}/", "name"))
        parts.append(text(572, y + 39, modules, "small"))
        if number < len(BATCH):
            parts.append(f'<path class="arrow" d="M590 {y + 50}V{y + 69}"/>')
            parts.append(f'<path class="tip" d="M585 {y + 68}h10l-5 7z"/>')
        parts.append(text(604, y + 64, result, "small"))
    title = "<title>The folders of Coterie and the way of a batch</title>"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">{title}'
        f'<style>{STYLE}</style><rect class="paper" width="{WIDTH}" height="{height}"/>{"".join(parts)}</svg>\n'
    )


if __name__ == "__main__":
    (ROOT / "docs" / "design.svg").write_text(draw())

"""Boxes on the grid of a method's picture: networks, logits, views, frames, and the text in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, FIRST_ROW, ROW = 640, 122, 84
COLUMNS = {
    "view": (16, 44),
    "trunk": (92, 80),
    "branch": (204, 92),
    "network": (92, 204),
    "logits": (324, 48),
    "teacher": (512, 112),
}
"""Left edge and width."""
CROPS = {1: "", 2: "translate(44 0) scale(-1 1)", 3: "translate(-14 -9) scale(1.4)"}
"""How the views of an image differ: as it is, flipped, a part of it."""


@dataclass(frozen=True)
class Box:
    """A rectangle with lines of text; arrows refer to it by its name.

    `kind` is how it looks: a `trained`, `deployed` or `frozen` network, a `module` that only training has, a
    `pill` for logits, a `frame` around others, or `view1` to `view3`.
    """

    name: str
    kind: str
    x: float
    y: float
    width: float
    height: float
    lines: tuple[str, ...] = ()

    @property
    def middle(self) -> tuple[float, float]:
        return self.x + self.width / 2, self.y + self.height / 2

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height


def centre(row: float) -> float:
    """The height of a row's middle; rows may lie between two others."""
    return FIRST_ROW + ROW * row


def box(
    name: str,
    column: str,
    row: float,
    *lines: str,
    kind: str = "trained",
    last: float | None = None,
    height: float = 58,
) -> Box:
    """Place a box in a column, from its row to the `last` one."""
    x, width = COLUMNS[column]
    end = row if last is None else last
    return Box(name, kind, x, centre(row) - height / 2, width, centre(end) - centre(row) + height, lines)


def pill(name: str, row: float, symbol: str, column: str = "logits") -> Box:
    """Place logits, or their mean."""
    left, width = COLUMNS[column]
    return Box(name, "pill", left + (width - 48) / 2, centre(row) - 15, 48, 30, (symbol,))


def view(number: int, row: float, size: float = 44) -> Box:
    """Place view `number` of the image."""
    return Box(f"x{number}", f"view{number}", 16 + (44 - size) / 2, centre(row) - size / 2, size, size)


def frame(name: str, boxes: Sequence[Box], top: float = 12, bottom: float = 12, side: float = 10) -> Box:
    """Surround boxes; an arrow to or from the frame means each of them."""
    x, y = min(b.x for b in boxes) - side, min(b.y for b in boxes) - top
    right, end = max(b.right for b in boxes) + side, max(b.bottom for b in boxes) + bottom
    return Box(name, "frame", x, y, right - x, end - y)


def write(x: float, y: float, content: str, css: str = "") -> str:
    """Write a line; in formulas (`sym`) z_1 and z^t become subscripts and superscripts."""
    pieces = re.split(r"([_^][A-Za-z0-9]+)", content) if "sym" in css else [content]
    parts, height = [], 0
    for piece in filter(None, pieces):
        level = {"_": 4, "^": -6}.get(piece[0], 0)
        size = ' class="sym mini"' if level else ""
        parts.append(f'<tspan dy="{level - height}"{size}>{escape(piece[1:] if level else piece)}</tspan>')
        height = level
    if len(parts) == 1:
        parts = [escape(content)]
    return f'<text x="{x:g}" y="{y:g}" class="{css}">{"".join(parts)}</text>'


def draw_box(b: Box) -> str:
    """Draw a box with its lines in the middle; a line that is a formula is set as one."""
    if b.kind.startswith("view"):
        return _draw_view(b, int(b.kind.removeprefix("view")))
    radius = 15 if b.kind == "pill" else 11 if b.kind == "frame" else 7
    place = f'x="{b.x:g}" y="{b.y:g}" width="{b.width:g}" height="{b.height:g}" rx="{radius}"'
    parts = [f'<rect class="{b.kind}" {place}/>']
    x, y = b.middle
    for i, line in enumerate(b.lines):
        css = "sym" if re.search(r"[_^=]|^.$", line) else "small" if i or b.kind == "pill" else ""
        css += " inverse" if b.kind == "deployed" else ""
        parts.append(write(x, y + 5 + 19 * (i - (len(b.lines) - 1) / 2), line, css.strip()))
    return "".join(parts)


def _draw_view(b: Box, number: int) -> str:
    scene = (
        '<rect class="sky" width="44" height="44"/><circle class="sun" cx="32" cy="12" r="5" opacity=".55"/>'
        '<path class="hill" opacity=".45" d="M-4 44L14 18L32 44z"/><path class="hill" d="M14 44L30 26L48 44z"/>'
    )
    return (
        f'<svg x="{b.x:g}" y="{b.y:g}" width="{b.width:g}" height="{b.height:g}" viewBox="0 0 44 44">'
        f'<g clip-path="url(#corner)"><g transform="{CROPS[number]}">{scene}</g></g></svg>'
    )

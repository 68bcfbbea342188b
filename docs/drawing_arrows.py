"""Arrows between the boxes of a method's picture, and the ways they take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from drawing_boxes import Box, write

STOP = "M-5.5 6l4 -12m3 12l4 -12"


@dataclass(frozen=True)
class Arrow:
    """From one box to another, by their names."""

    source: str
    target: str
    kind: str = "flow"
    """`flow` of data; `teach`: the target learns from the source; `average` of weights."""
    term: str = ""
    """The name of its loss term."""
    lane: float = 0
    """How far off the middle of the smaller box it runs."""
    symbol: str = ""
    """What flows."""
    stopped: bool = True
    """Whether no gradient reaches a teacher."""
    both: bool = False
    """Whether both teach each other."""
    arc: float = 0
    """How far it reaches to the right, if it leaves and arrives there."""
    bend: float = 0
    """Where it turns up or down, if it does."""


def draw_arrow(arrow: Arrow, boxes: dict[str, Box]) -> str:
    """Draw an arrow with its name; two strokes near its source say that no gradient flows back."""
    a, b = boxes[arrow.source], boxes[arrow.target]
    path, (x, y, angle), (name_x, name_y), side = _route(arrow, a, b)
    start = f' marker-start="url(#{arrow.kind})"' if arrow.both else ""
    parts = [f'<path class="line {arrow.kind}" d="{path}" marker-end="url(#{arrow.kind})"{start}/>']
    if arrow.kind == "teach" and arrow.stopped:
        turn = f"translate({x:g} {y:g}) rotate({angle:g})"
        parts.append(f'<path class="line stop" transform="{turn}" d="{STOP}"/>')
    css = f"term {arrow.kind}" if arrow.term else "sym soft"
    if name := arrow.term or arrow.symbol:
        parts.append(write(name_x, name_y, name, f"{css} left" if side else css))
    return "".join(parts)


class Route(NamedTuple):
    """The way of an arrow."""

    path: str
    stop: tuple[float, float, float]
    """Where the stop sign is, and its angle."""
    name: tuple[float, float]
    beside: bool
    """Whether the name begins at its place; else its middle is there."""


def _route(arrow: Arrow, a: Box, b: Box) -> Route:
    """Choose a way: an arc, a line sideways, one with two turns, a line up or down, a diagonal."""
    if arrow.arc:
        return _arc(arrow, a, b)
    small, lane = a if a.height < b.height else b, arrow.lane
    level = small.middle[1] + lane
    if max(a.y, b.y) <= level <= min(a.bottom, b.bottom):
        right = a.x < b.x
        start, end = (a.right, b.x - 3) if right else (a.x, b.right + 3)
        sign = start + (11 if right else -11)
        name = (sign + end) / 2, level - 9  # clear of the sign
        return Route(f"M{start:g} {level:g}H{end:g}", (sign, level, 0), name, False)
    if arrow.bend:
        start, end = a.middle[1] + lane, b.middle[1] + (7 if lane else 0)
        path = f"M{a.right:g} {start:g}H{arrow.bend:g}V{end:g}H{b.x - 3:g}"
        return Route(path, (a.right + 11, start, 0), (arrow.bend + 8, (start + end) / 2), True)
    down = b.y > a.y
    start, end = (a.bottom, b.y - 3) if down else (a.y, b.bottom + 3)
    if a.right < b.x or b.right < a.x:
        x, to = (a.right, b.x) if a.x < b.x else (a.x, b.right)
        sign = x + (to - x) * 0.27, start + (b.y - a.bottom) * 0.27
        angle = 55 if a.x < b.x else 125
        return Route(f"M{x:g} {start:g}L{to:g} {b.y:g}", (*sign, angle), (to, end), True)
    small = a if a.width < b.width else b
    x = small.middle[0] + lane
    sign_y = start + (11 if down else -11)
    return Route(f"M{x:g} {start:g}V{end:g}", (x, sign_y, 90), (x + 12, (start + end) / 2 + 5), True)


def _arc(arrow: Arrow, a: Box, b: Box) -> Route:
    """Leave and arrive on the right side; an arrow in both directions has its stop sign half-way."""
    down, right = (1 if b.y > a.y else -1), max(a.right, b.right)
    start, end = a.middle[1] + down * arrow.lane, b.middle[1] - down * arrow.lane
    reach, tip = right + arrow.arc, right + 0.75 * arrow.arc
    path = f"M{a.right + 3:g} {start:g}C{reach:g} {start:g} {reach:g} {end:g} {b.right + 3:g} {end:g}"
    half = (start + end) / 2
    return Route(path, (tip, half, 90) if arrow.both else (a.right + 13, start, 0), (tip + 12, half + 4), True)

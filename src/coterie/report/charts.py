"""Series become SVG pictures: static lines, bands and points, with text for those who cannot see them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

WIDTH, HEIGHT = 560, 320
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 12, 46
COLOURS = 8
DASHES = ("", "dash", "dot")


@dataclass
class Line:
    """A series of points with an optional band around it; `look` chooses its colour, `dash` its stroke."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    look: int = 0
    dash: int = 0

    @property
    def css(self) -> str:
        return f"c{self.look % COLOURS} {DASHES[self.dash % len(DASHES)]}".strip()


@dataclass
class Point:
    """A dot with whiskers, and what a reader is told about it."""

    name: str
    x: float
    y: float
    tip: str
    spread: float = 0.0
    look: int = 0


@dataclass
class Axis:
    """A scale from values to a stretch of pixels."""

    label: str
    low: float
    high: float
    start: float = 0.0
    end: float = 1.0
    log: bool = False
    marks: list[float] = field(default_factory=list)

    @classmethod
    def over(cls, label: str, values: Sequence[float], start: float, end: float, log: bool = False) -> Axis:
        """Round limits that hold all values; a linear axis that comes near zero starts there."""
        values = [v for v in values if math.isfinite(v) and (v > 0 or not log)] or [1.0]
        low, high = min(values), max(values)
        if log:
            first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
            last = max(last, first + 1)
            marks = [10.0**k for k in range(first, last + 1, max(1, (last - first) // 5))]
            return cls(label, 10.0**first, 10.0**last, start, end, True, marks)
        if 0 < low < 0.5 * high:
            low = 0.0
        step = _step((high - low) or abs(high) or 1.0)
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
        if low == high:
            high = low + step
        marks = [low + i * step for i in range(round((high - low) / step) + 1)]
        return cls(label, low, high, start, end, False, marks)

    def place(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, self.low))
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def _step(length: float) -> float:
    """1, 2 or 5 times a power of ten, so that some four to seven steps make the length."""
    rough = length / 5
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * k for k in (1, 2, 5, 10) if rough <= power * k * 1.0001)


def brief(value: float) -> str:
    """A number as short as four digits of it allow."""
    if not math.isfinite(value):
        return "–"
    for size, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.4g} {letter}"
    if abs(value) >= 10000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def lines(title: str, series: Sequence[Line], x: str, y: str, log: bool = False) -> Markup:
    """Lines with bands over a common x axis; the values under the pointer are read from the data attributes."""
    across = Axis.over(x, [v for s in series for v in s.x], LEFT, WIDTH - RIGHT)
    if across.low < min((v for s in series for v in s.x), default=0) <= 1:
        across.low = 1.0 if across.high > 1 else 0.0  # epochs count from 1
        across.marks = [across.low, *[m for m in across.marks if m > across.low]]
    up = Axis.over(y, [v for s in series for v in (*s.y, *s.low, *s.high)], HEIGHT - BOTTOM, TOP, log)
    parts = []
    for s in series:
        if s.low:
            there = [(a, b) for a, b in zip(s.x, s.high, strict=True)]
            back = [(a, b) for a, b in zip(s.x, s.low, strict=True)][::-1]
            parts.append(f'<path class="band {s.css}" d="{_path([*there, *back], across, up)}Z"/>')
    for s in series:
        points = list(zip(s.x, s.y, strict=True))
        data = (
            f'data-name="{escape(s.name)}" data-x="{" ".join(f"{v:g}" for v in s.x)}" '
            f'data-y="{" ".join(brief(v).replace(" ", "_") for v in s.y)}"'
        )
        parts.append(f'<path class="line {s.css}" {data} d="{_path(points, across, up)}"/>')
        if len(points) == 1:
            a, b = points[0]
            parts.append(f'<circle class="dot {s.css}" cx="{across.place(a):.1f}" cy="{up.place(b):.1f}" r="4"/>')
    told = "; ".join(f"{s.name}: {brief(s.y[-1])} at the end" for s in series if s.y)
    plot = f"{LEFT} {WIDTH - RIGHT} {TOP} {HEIGHT - BOTTOM}"
    scale = f'data-plot="{plot}" data-unit="{escape(x)}" data-x0="{across.low:g}" data-x1="{across.high:g}"'
    return _frame(title, f"{y} over {x}. {told}.", across, up, parts, scale)


def scatter(title: str, points: Sequence[Point], x: str, y: str) -> Markup:
    """Points with whiskers and their names beside them."""
    across = Axis.over(x, [0.0, *(p.x * 1.12 for p in points)], LEFT, WIDTH - RIGHT)
    ends = [v for p in points for v in (p.y - p.spread, p.y + p.spread)]
    up = Axis.over(y, ends, HEIGHT - BOTTOM, TOP)
    parts, used = [], list[tuple[float, float]]()
    for p in points:
        a, b, css = across.place(p.x), up.place(p.y), f"c{p.look % COLOURS}"
        if p.spread:
            top, low = up.place(p.y + p.spread), up.place(p.y - p.spread)
            parts.append(f'<path class="whisker {css}" d="M{a:.1f} {top:.1f}V{low:.1f}"/>')
        parts.append(
            f'<circle class="dot {css}" cx="{a:.1f}" cy="{b:.1f}" r="5.5" tabindex="0" '
            f'data-tip="{escape(p.tip)}"><title>{escape(p.tip)}</title></circle>'
        )
        label = b + 5
        while any(abs(label - v) < 15 and abs(a - u) < 130 for u, v in used):
            label += 15  # names of near points go below each other
        used.append((a, label))
        end = a > WIDTH * 0.72
        parts.append(
            f'<text class="name" x="{a - 10 if end else a + 10:.1f}" y="{label:.1f}" '
            f'text-anchor="{"end" if end else "start"}">{escape(p.name)}</text>'
        )
    told = "; ".join(p.tip for p in points)
    return _frame(title, f"{y} over {x}. {told}.", across, up, parts)


def reliability(title: str, bins: Sequence[tuple[float, float, int]], look: int = 0) -> Markup:
    """Accuracy over confidence in equal bins (confidence, accuracy, images); the diagonal is perfect."""
    across = Axis("confidence", 0, 1, LEFT, WIDTH - RIGHT, False, [0, 0.2, 0.4, 0.6, 0.8, 1])
    up = Axis("accuracy", 0, 1, HEIGHT - BOTTOM, TOP, False, [0, 0.2, 0.4, 0.6, 0.8, 1])
    total = sum(count for _, _, count in bins) or 1
    diagonal = _path([(0, 0), (1, 1)], across, up)
    parts, told = [f'<path class="diagonal" d="{diagonal}"/>'], []
    for i, (confidence, accuracy, count) in enumerate(bins):
        if not count:
            continue
        left, right = across.place(i / len(bins)), across.place((i + 1) / len(bins))
        top = up.place(accuracy)
        tip = (
            f"confidence {confidence:.3f}: accuracy {accuracy:.3f} ({count:,} images, {100 * count / total:.1f} %)"
        )
        parts.append(
            f'<rect class="bar c{look % COLOURS}" x="{left + 1:.1f}" y="{top:.1f}" width="{right - left - 2:.1f}" '
            f'height="{up.start - top:.1f}" fill-opacity="{0.25 + 0.75 * math.sqrt(count / total):.2f}" '
            f'tabindex="0" data-tip="{escape(tip)}"><title>{escape(tip)}</title></rect>'
        )
        told.append(tip)
    return _frame(title, "Accuracy over confidence. " + "; ".join(told) + ".", across, up, parts)


def _path(points: Sequence[tuple[float, float]], across: Axis, up: Axis) -> str:
    """Straight pieces; a value that is not finite leaves a gap."""
    parts, pen = [], "M"
    for a, b in points:
        if math.isfinite(b):
            parts.append(f"{pen}{across.place(a):.1f} {up.place(b):.1f}")
            pen = "L"
        else:
            pen = "M"
    return "".join(parts)


def _frame(title: str, desc: str, across: Axis, up: Axis, parts: Sequence[str], extra: str = "") -> Markup:
    marks = []
    for value in up.marks:
        y = up.place(value)
        marks.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        marks.append(f'<text x="{LEFT - 7}" y="{y + 4.5:.1f}" text-anchor="end">{brief(value)}</text>')
    for value in across.marks:
        x = across.place(value)
        marks.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 19}" text-anchor="middle">{brief(value)}</text>')
    base = HEIGHT - BOTTOM
    marks.append(f'<path class="axis" d="M{LEFT} {base}H{WIDTH - RIGHT}"/>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    marks.append(
        f'<text class="label" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(across.label)}</text>'
        f'<text class="label" transform="translate(14 {(TOP + base) / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(up.label)}</text>"
    )
    return Markup(
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" {extra}>'
        f"<title>{escape(title)}</title><desc>{escape(desc)}</desc>" + "".join(marks) + "".join(parts) + "</svg>"
    )

"""Curves and values become SVG charts: static lines, bands and points, with a description in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from ..metrics.seeds import NOTHING

WIDTH, HEIGHT = 560, 320
LEFT, RIGHT, TOP, BOTTOM = 88, 14, 12, 46
COLOURS = 8
DASHES = ("", "dash", "dot")


@dataclass
class Curve:
    """Points with an optional band around them; `colour` and `dash` are indices of its colour and stroke."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    colour: int = 0
    dash: int = 0

    def after(self, start: float) -> Curve:
        """Return the part beyond `start`."""
        first = sum(x <= start for x in self.x)
        x, y, low, high = (values[first:] for values in (self.x, self.y, self.low, self.high))
        return Curve(self.name, x, y, low, high, self.colour, self.dash)

    @property
    def css(self) -> str:
        return f"c{self.colour % COLOURS} {DASHES[self.dash % len(DASHES)]}".strip()


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
        """Choose round limits that hold all values; a linear axis that comes near zero starts at zero."""
        values = [v for v in values if math.isfinite(v) and (v > 0 or not log)] or [1.0]
        low, high = min(values), max(values)
        if log:
            tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            fine = [10.0**k * m for k in tens for m in (1, 2, 5)]
            below = [m for m in fine if m <= low * 1.0001][-1:]
            above = [m for m in fine if m >= high * 0.9999 and m > below[0]][:1] or [below[0] * 10]
            marks = [m for m in fine if below[0] <= m <= above[0]]
            if len(marks) > 8:
                marks = [m for m in marks if math.log10(m).is_integer()]
                marks = marks[:: math.ceil(len(marks) / 8)]
            return cls(label, below[0], above[0], start, end, True, marks)
        if 0 < low < 0.5 * high:
            low = 0.0
        step = _step((high - low) or abs(high) or 1.0)
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
        if low == high:
            high = low + step
        marks = [i * step for i in range(round(low / step), round(high / step) + 1)]  # so that zero is 0.0
        return cls(label, low, high, start, end, False, marks)

    def place(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, self.low))
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def _step(length: float) -> float:
    """Return 1, 2 or 5 times a power of ten, so that some four to seven steps make the length."""
    rough = length / 5
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * k for k in (1, 2, 5, 10) if rough <= power * k * 1.0001)


def brief(value: float) -> str:
    """Write a number with at most four digits."""
    if not math.isfinite(value):
        return NOTHING
    for size, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.4g} {letter}"
    if abs(value) >= 10000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def line_chart(
    title: str, curves: Sequence[Curve], x: str, y: str, log: bool = False, beside: Sequence[Curve] = ()
) -> Markup:
    """Draw lines with bands, each ending in a dot; the page's script reads values from the data attributes.

    The y axis also holds the values of `beside`, so that two charts can have the same one.
    """
    positions = [v for curve in curves for v in curve.x]
    across = Axis.over(x, positions, LEFT, WIDTH - RIGHT)
    if max(positions) > across.low:  # nothing comes after the last point
        across.high = max(positions)
    if x == "epoch":  # they are whole, and count from 1
        across.low = max(1.0, across.low) if across.high > 1 else 0.0
        across.high = across.high if across.high > 1 else 2.0
        across.marks = sorted({max(1.0, across.low), *(m for m in map(round, across.marks) if m > across.low)})
    across.marks = [m for m in across.marks if m <= max(positions) * (1 + 1e-9)]
    values = [v for curve in (*curves, *beside) for v in (*curve.y, *curve.low, *curve.high)]
    up = Axis.over(y, values, HEIGHT - BOTTOM, TOP, log)
    if log:
        up.label += " (log scale)"
    parts = []
    for c in curves:
        if c.low:
            outline = [*zip(c.x, c.high, strict=True), *reversed(list(zip(c.x, c.low, strict=True)))]
            parts.append(f'<path class="band {c.css}" d="{_path(outline, across, up)}Z"/>')
    for c in curves:
        points = list(zip(c.x, c.y, strict=True))
        data = (
            f'data-name="{escape(c.name)}" data-x="{" ".join(f"{v:.6g}" for v in c.x)}" '
            f'data-y="{" ".join(brief(v).replace(" ", "_") for v in c.y)}"'
        )
        parts.append(f'<path class="line {c.css}" {data} d="{_path(points, across, up)}"/>')
        a, b = points[-1]
        parts.append(f'<circle class="dot {c.css}" cx="{across.place(a):.1f}" cy="{up.place(b):.1f}" r="3.5"/>')
    plot = f"{LEFT} {WIDTH - RIGHT} {TOP} {HEIGHT - BOTTOM}"
    scale = f'data-unit="{escape(x)}" data-plot="{plot}" data-x0="{across.low:.6g}" data-x1="{across.high:.6g}"'
    return _frame(title, in_words(curves, x, y), across, up, parts, scale)


def in_words(curves: Sequence[Curve], x: str, y: str) -> str:
    """Say what a reader of `line_chart` sees first."""
    ends = "; ".join(f"{c.name}: {brief(c.y[-1])} at {brief(c.x[-1])}" for c in curves)
    return f"{y} over {x}. At the end: {ends}."


@dataclass(frozen=True)
class Dot:
    """A value with the interval around it, and the `points` it was computed from; `colour` is an index."""

    value: float
    low: float | None = None
    high: float | None = None
    colour: int = 0
    points: Sequence[float] = ()


DOT_ROW = 42
"""Height of a row of `dot_chart`."""


def dot_chart_height(rows: int) -> int:
    return TOP + DOT_ROW * rows + BOTTOM


def dot_chart(
    title: str,
    rows: Sequence[tuple[str, Sequence[Dot]]],
    x: str,
    left: int = LEFT,
    width: int = WIDTH,
    right: int = RIGHT,
    results: Sequence[str] = (),
    through: Sequence[float] = (),
) -> Markup:
    """Draw named rows of dots with their intervals over one axis; `left` is the room for the names.

    A name's lines after its first are smaller. `results` are texts beside the rows; their room is on the
    `right`. The axis need not begin at zero; it holds the values `through`.
    """
    values = [v for _, row in rows for d in row for v in (d.value, d.low, d.high, *d.points) if v is not None]
    across = Axis.over(x, [*values, *through], left, width - right)
    height = dot_chart_height(len(rows))
    parts = _x_axis(across, height, grid=True)
    for number, (name, row) in enumerate(rows):
        middle = TOP + DOT_ROW * (number + 0.5)
        parts += _lines(name, left - 9, middle, "end")
        parts += _lines(results[number], width - right + 14, middle, "start") if results else []
        for i, dot in enumerate(row):
            y = middle + 12 * (i - (len(row) - 1) / 2) - (6 if dot.points else 0)
            parts += _dot(dot, across, y)
    texts = results or [", ".join(brief(dot.value) for dot in row) for _, row in rows]
    words = "; ".join(f"{' '.join(name.split())}: {text}" for (name, _), text in zip(rows, texts, strict=True))
    return _svg(title, f"{x}. {words}.".replace("\n", ", "), parts, height, width=width)


def _lines(content: str, x: float, middle: float, anchor: str) -> list[str]:
    """Write lines around the middle of a row, those after the first smaller."""
    texts, parts = content.split("\n"), []
    for i, line in enumerate(texts):
        y, css = middle + 4.5 + 15 * (i - (len(texts) - 1) / 2), "detail" if i else "name"
        parts.append(f'<text class="{css}" x="{x}" y="{y:.1f}" text-anchor="{anchor}">{escape(line)}</text>')
    return parts


def _dot(dot: Dot, across: Axis, y: float) -> list[str]:
    """Draw a value with its interval and, smaller and below, its points."""
    colour, parts = f"c{dot.colour % COLOURS}", []
    if dot.low is not None and dot.high is not None:
        a, b = across.place(dot.low), across.place(dot.high)
        ends = f"M{a:.1f} {y:.1f}H{b:.1f}M{a:.1f} {y - 4:.1f}v8M{b:.1f} {y - 4:.1f}v8"
        parts.append(f'<path class="whisker {colour}" d="{ends}"/>')
    parts.append(f'<circle class="dot {colour}" cx="{across.place(dot.value):.1f}" cy="{y:.1f}" r="4"/>')
    for value in dot.points:
        place = f'cx="{across.place(value):.1f}" cy="{y + 13:.1f}"'
        parts.append(f'<circle class="dot {colour}" {place} r="2.6" fill-opacity=".5"/>')
    return parts


def reliability_chart(title: str, bins: Sequence[tuple[float, float, int]], colour: int = 0) -> Markup:
    """Draw accuracy over confidence in equal bins (confidence, accuracy, images); the diagonal is perfect."""
    across = Axis("confidence", 0, 1, LEFT, WIDTH - RIGHT, False, [0, 0.2, 0.4, 0.6, 0.8, 1])
    up = Axis("accuracy", 0, 1, HEIGHT - BOTTOM, TOP, False, [0, 0.2, 0.4, 0.6, 0.8, 1])
    total = sum(count for _, _, count in bins) or 1
    parts, tips = [], []
    for i, (confidence, accuracy, count) in enumerate(bins):
        if not count:
            continue
        left, right = across.place(i / len(bins)), across.place((i + 1) / len(bins))
        top = up.place(accuracy)
        tip = (
            f"confidence {confidence:.3f}: accuracy {accuracy:.3f} ({count:,} images, {100 * count / total:.1f} %)"
        )
        parts.append(
            f'<rect class="bar c{colour % COLOURS}" x="{left + 1:.1f}" y="{top:.1f}" '
            f'width="{right - left - 2:.1f}" height="{up.start - top:.1f}" '
            f'fill-opacity="{0.25 + 0.75 * math.sqrt(count / total):.2f}" '
            f'tabindex="0" data-tip="{escape(tip)}"><title>{escape(tip)}</title></rect>'
        )
        tips.append(tip)
    parts.append(f'<path class="diagonal" d="{_path([(0, 0), (1, 1)], across, up)}"/>')
    return _frame(title, "Accuracy over confidence. " + "; ".join(tips) + ".", across, up, parts)


def _path(points: Sequence[tuple[float, float]], across: Axis, up: Axis) -> str:
    """Join points by straight lines; a value that is not finite leaves a gap."""
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
    marks += _x_axis(across, HEIGHT)
    marks.append(
        f'<text class="label" transform="translate(13 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" '
        f'text-anchor="middle">{escape(up.label)}</text>'
    )
    return _svg(title, desc, [*marks, *parts], HEIGHT, extra)


def _x_axis(across: Axis, height: int, grid: bool = False) -> list[str]:
    """Draw the axis at the bottom, with its marks and label, and with `grid` a line up from each mark."""
    base, parts = height - BOTTOM, []
    for value in across.marks:
        x = f"{across.place(value):.1f}"
        if grid:
            parts.append(f'<path class="{"axis" if value == 0 else "grid"}" d="M{x} {TOP}V{base}"/>')
        parts.append(f'<text x="{x}" y="{base + 19}" text-anchor="middle">{brief(value)}</text>')
    parts.append(f'<path class="axis" d="M{across.start} {base}H{across.end}"/>')
    middle = (across.start + across.end) / 2
    parts.append(
        f'<text class="label" x="{middle}" y="{height - 6}" text-anchor="middle">{escape(across.label)}</text>'
    )
    return parts


def _svg(title: str, desc: str, parts: Sequence[str], height: int, extra: str = "", width: int = WIDTH) -> Markup:
    role = "group" if any("tabindex" in part for part in parts) else "img"  # an image has no parts to focus
    return Markup(
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="{role}" {extra}>'
        f"<title>{escape(title)}</title><desc>{escape(desc)}</desc>" + "".join(parts) + "</svg>"
    )

"""Charts become an SVG file that stands alone, with a title, a legend and the page's colours, light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap

from markupsafe import Markup, escape

from ..errors import printable
from .charts import HEIGHT, WIDTH
from .content import Figure

PALETTES = (
    ("#5b6675", "#d1490c", "#0b6bb8", "#11805a", "#9a3fb5", "#a16207", "#c2185b", "#0f7f8c"),
    ("#a9b4c3", "#ff8a50", "#5eb1ff", "#45c796", "#d58bea", "#dba63b", "#ff79a8", "#4cc3d0"),
)
"""The page's colours c0 to c7, for light and dark. Written out, as not every SVG reader knows CSS variables."""
SHAPES = """text { font: 13px system-ui, "DejaVu Sans", sans-serif; }
.title { font-size: 16px; font-weight: 600; } .detail { font-size: 11.5px; }
.line { fill: none; stroke-width: 2.2; stroke-linejoin: round; }
.line.dash { stroke-dasharray: 7 4; } .line.dot { stroke-dasharray: 2 4; }
.band { fill-opacity: .16; stroke: none; } .whisker { fill: none; stroke-width: 2; }"""


def _colours(paper: str, text: str, soft: str, rule: str, palette: Sequence[str]) -> str:
    """Return the rules of one colour scheme."""
    return (
        f".paper {{ fill: {paper}; }} text {{ fill: {soft}; }} .title, .heading, .name {{ fill: {text}; }}\n"
        f".grid {{ stroke: {rule}; }} .axis {{ stroke: {soft}; }}\n"
    ) + "\n".join(
        f".line.c{i}, .whisker.c{i} {{ stroke: {colour}; }} .band.c{i}, circle.dot.c{i} {{ fill: {colour}; }}"
        for i, colour in enumerate(palette)
    )


LIGHT = _colours("#fff", "#1c2330", "#566070", "#d9dee6", PALETTES[0])
DARK = _colours("#11151c", "#e8ecf2", "#a5b0c0", "#323c4b", PALETTES[1])
STYLE = f"{SHAPES}\n{LIGHT}\n@media (prefers-color-scheme: dark) {{\n{DARK}\n}}"


def _bars(text: str, palette: Sequence[str]) -> str:
    """Return the rules of a reliability diagram in one colour scheme."""
    bars = (f".bar.c{i} {{ fill: {colour}; }}" for i, colour in enumerate(palette))
    return "\n".join([f".diagonal {{ fill: none; stroke: {text}; stroke-dasharray: 4 4; }}", *bars])


LIGHT_BARS, DARK_BARS = _bars("#1c2330", PALETTES[0]), _bars("#e8ecf2", PALETTES[1])
BARS = f"{LIGHT_BARS}\n@media (prefers-color-scheme: dark) {{\n{DARK_BARS}\n}}"
CHARACTER = 7.2
"""Width of a character of the legend, about."""
LINE = 72
"""So many characters of a heading fit into a chart's width."""


@dataclass(frozen=True)
class Panel:
    """A chart of `charts.py` with its size and what stands above it."""

    svg: Markup
    height: int = HEIGHT
    width: int = WIDTH
    heading: str = ""


def picture(title: str, panels: Sequence[Panel], legend: Sequence[tuple[str, str]] = ()) -> str:
    """Return an SVG file of panels side by side; `legend` has names with the CSS classes that draw them."""
    width = sum(panel.width for panel in panels)
    marks, top = _legend(legend, width, 50)
    if any(panel.heading for panel in panels):
        top += 22
    x = 0
    for panel in panels:
        if panel.heading:
            left = x + 88 if len(panels) > 1 else 16
            marks.append(f'<text class="heading" x="{left}" y="{top - 8}">{escape(panel.heading)}</text>')
        place = f'<svg x="{x}" y="{top}" width="{panel.width}" height="{panel.height}" '
        marks.append(str(panel.svg).replace("<svg ", place, 1))
        x += panel.width
    height = top + max(panel.height for panel in panels) + 8
    return _file(title, width, height, marks)


def stacked_picture(title: str, figures: Sequence[Figure]) -> str:
    """Return an SVG file of a report's figures below each other, each with its own heading and legend."""
    marks: list[str] = []
    y = 28
    for figure in figures:
        for line in wrap(figure.title, LINE):
            y += 20
            marks.append(f'<text class="heading" x="16" y="{y + 4}">{escape(line)}</text>')
        legend, top = _legend(figure.legend, WIDTH, y + 24)
        chart = str(figure.svg).replace("<svg ", f'<svg x="0" y="{top}" width="{WIDTH}" height="{HEIGHT}" ', 1)
        marks += [*legend, chart]
        y = top + HEIGHT
    return _file(title, WIDTH, y + 8, marks, f"{STYLE}\n{BARS}")


def _file(title: str, width: int, height: int, marks: Sequence[str], style: str = STYLE) -> str:
    size = f'width="{width}" height="{height}"'
    content = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size}>\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}\n</style>\n"
        f'<rect class="paper" {size}/>\n<text class="title" x="16" y="28">{escape(title)}</text>\n'
        + "\n".join(marks)
        + "\n</svg>\n"
    )
    return printable(content, lines=True)  # XML may hold no control characters


def _legend(entries: Sequence[tuple[str, str]], width: int, top: int) -> tuple[list[str], int]:
    """Return the legend in as many lines as it needs, and where it ends."""
    marks: list[str] = []
    x = 16.0
    for name, css in entries:
        needed = 34 + CHARACTER * len(name) + 22
        if x > 16 and x + needed > width:
            x, top = 16.0, top + 21
        marks.append(f'<path class="line {css}" d="M{x:.1f} {top}h26"/>')
        marks.append(f'<text x="{x + 34:.1f}" y="{top + 4.5}">{escape(name)}</text>')
        x += needed
    return marks, top + 16 if entries else top - 10

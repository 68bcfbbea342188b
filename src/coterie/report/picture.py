"""Charts become an SVG file that stands alone, with a title, a legend and the page's colours, light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from .charts import HEIGHT, WIDTH

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
CHARACTER = 7.2
"""Width of a character of the legend, about."""


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
    size = f'width="{width}" height="{height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size}>\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}\n</style>\n"
        f'<rect class="paper" {size}/>\n<text class="title" x="16" y="28">{escape(title)}</text>\n'
        + "\n".join(marks)
        + "\n</svg>\n"
    )


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
    return marks, top + 16 if entries else 40

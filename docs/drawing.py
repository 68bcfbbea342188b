"""A method's picture as SVG, for light and dark: its boxes and arrows, the labels, the notes and the legend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from drawing_arrows import STOP, Arrow, draw_arrow
from drawing_boxes import WIDTH, Box, centre, draw_box, write

COLOURS = {  # for light and dark; written out, as not every SVG reader knows CSS variables or light-dark()
    "paper": ("#ffffff", "#14171c"),
    "ink": ("#1d2530", "#e4e9f0"),
    "soft": ("#566070", "#a3aebb"),
    "rule": ("#c5cfdb", "#3d4856"),
    "module": ("#eef2f7", "#232a34"),
    "net": ("#dbe9fb", "#17375e"),
    "net_edge": ("#2f6fbf", "#6aa5ee"),
    "deployed": ("#1f5fb0", "#7ab0f2"),
    "on_deployed": ("#ffffff", "#0d1420"),
    "distil": ("#bf4a06", "#ff9d5c"),
    "label": ("#0f7350", "#4cc38a"),
}
SHAPES = """text { font: 14px system-ui, "DejaVu Sans", sans-serif; text-anchor: middle; }
.title { font-size: 19px; font-weight: 650; } .left, .title, .legend { text-anchor: start; }
.sym { font: italic 16px Georgia, "DejaVu Serif", serif; } .mini { font-size: 11.5px; }
.y { font-size: 15px; } .small { font-size: 12.5px; }
.term { font: 12.5px ui-monospace, "DejaVu Sans Mono", monospace; paint-order: stroke; stroke-width: 4px; }
.line { fill: none; stroke-width: 1.7; stroke-linejoin: round; } .line.teach { stroke-dasharray: 6 4; }
.line.average { stroke-dasharray: 1.5 4; stroke-linecap: round; stroke-width: 2.2; }
.frame { fill: none; stroke-width: 1.2; } .trained, .deployed, .frozen, .module, .pill { stroke-width: 1.3; }
.frozen { stroke-dasharray: 3 3; }"""
TINTS = """.paper {{ fill: {paper}; }} text {{ fill: {ink}; }} .soft, .small {{ fill: {soft}; }}
.trained {{ fill: {net}; stroke: {net_edge}; }} .deployed {{ fill: {deployed}; stroke: {deployed}; }}
.inverse {{ fill: {on_deployed}; }} .module, .frozen {{ fill: {module}; stroke: {soft}; }}
.pill {{ fill: {paper}; stroke: {soft}; }} .frame, .rule {{ stroke: {rule}; }} .term {{ stroke: {paper}; }}
.line.flow, .line.average {{ stroke: {soft}; }} .tip.flow, .tip.average {{ fill: {soft}; }}
.line.teach, .stop {{ stroke: {distil}; }} .tip.teach, .term.teach {{ fill: {distil}; }}
.line.label, .chip {{ stroke: {label}; }} .tip.label, .term.label, .y {{ fill: {label}; }}
.chip {{ fill: {paper}; }} .sky {{ fill: {net}; }} .hill, .sun {{ fill: {net_edge}; }}"""


class Label(NamedTuple):
    """The label y below a box that learns from it; the loss term's name stands beside the last of a group."""

    target: str
    term: str = ""
    beside: float = 15
    """How far from the middle of y the name stands."""


class Note(NamedTuple):
    """Free text; `css` is that of `small left` text, of a `term` or of a formula (`sym`)."""

    x: float
    row: float
    lines: tuple[str, ...]
    css: str = "small left"


@dataclass(frozen=True)
class Picture:
    """A method's picture: what it shows in a sentence, its boxes and its arrows."""

    title: str
    sentence: str
    boxes: Sequence[Box]
    arrows: Sequence[Arrow]
    labels: Sequence[Label] = ()
    notes: Sequence[Note] = ()
    terms: frozenset[str] = frozenset()
    """Loss terms that stand in the notes; the others are those of arrows and labels."""
    label_loss: str = "CE"
    """The losses with the label, for the legend."""

    @property
    def all_terms(self) -> set[str]:
        return {mark.term for mark in (*self.arrows, *self.labels) if mark.term} | self.terms


def draw_label(label: Label, boxes: dict[str, Box]) -> str:
    """Draw y in a circle with an arrow up to its box; the name is to its left where the right has no room."""
    b = boxes[label.target]
    x, y = b.middle[0], b.bottom + 27
    parts = [f'<path class="line label" d="M{x:g} {y - 9:g}V{b.bottom + 3:g}" marker-end="url(#label)"/>']
    parts.append(f'<circle class="line chip" cx="{x:g}" cy="{y:g}" r="10"/>' + write(x, y + 3.5, "y", "sym y"))
    if label.term:
        length = 7.6 * len(label.term)
        start = x + label.beside if x + label.beside + length < WIDTH - 4 else x - label.beside - length
        parts.append(write(start, y + 4.5, label.term, "term label left"))
    return "".join(parts)


def draw_legend(picture: Picture, top: float) -> tuple[str, float]:
    """Say what the marks of a picture mean, those that it has; return where the legend ends."""
    kinds, arrows = {b.kind for b in picture.boxes}, {arrow.kind for arrow in picture.arrows}
    stopped = any(arrow.kind == "teach" and arrow.stopped for arrow in picture.arrows)
    stop = f'<path class="line stop" transform="translate(12 0)" d="{STOP}"/>'
    line = '<path class="line {0}" d="M0 0H23" marker-end="url(#{0})"/>'
    square = '<rect class="{}" x="3" y="-7" width="18" height="14" rx="4"/>'
    entries = [
        (line.format("flow"), "forward pass"),
        (line.format("label"), f"label: {picture.label_loss}") if picture.labels else None,
        (line.format("teach"), "distillation: KL") if "teach" in arrows else None,
        (stop, "gradient stopped") if stopped else None,
        (line.format("average"), "running average") if "average" in arrows else None,
        (square.format("frozen"), "frozen") if "frozen" in kinds else None,
        (square.format("module"), "only in training") if "module" in kinds else None,
        (square.format("deployed"), "deployed"),
    ]
    parts, x, y = [f'<path class="rule" d="M16 {top:g}H{WIDTH - 16}"/>'], 16.0, top + 22
    for mark, words in filter(None, entries):
        needed = 30 + sum(4.3 if letter in "iltfrj:., " else 7.6 for letter in words)
        if x + needed > WIDTH - 12:
            x, y = 16.0, y + 23
        parts.append(f'<g transform="translate({x:g} {y:g})">{mark}{write(30, 4.5, words, "small legend")}</g>')
        x += needed + 16
    return "".join(parts), y + 18


def style() -> str:
    """The same rules for light and dark; `prefers-color-scheme` works in an <img> too."""
    light, dark = ({name: pair[i] for name, pair in COLOURS.items()} for i in range(2))
    return f"{SHAPES}\n{TINTS.format(**light)}\n@media (prefers-color-scheme: dark) {{\n{TINTS.format(**dark)}\n}}"


def draw(name: str, picture: Picture) -> str:
    """The picture as an SVG file."""
    boxes = {b.name: b for b in picture.boxes}
    low = max([b.bottom for b in picture.boxes] + [boxes[label.target].bottom + 36 for label in picture.labels])
    low = max([low] + [centre(n.row) + 19 * (len(n.lines) - 1) for n in picture.notes])
    legend, height = draw_legend(picture, low + 18)
    parts = [draw_box(b) for b in picture.boxes if b.kind == "frame"]
    parts += [draw_arrow(arrow, boxes) for arrow in picture.arrows]
    parts += [draw_box(b) for b in picture.boxes if b.kind != "frame"]
    parts += [draw_label(label, boxes) for label in picture.labels]
    parts += [
        write(note.x, centre(note.row) + 19 * i, line, note.css)
        for note in picture.notes
        for i, line in enumerate(note.lines)
    ]
    tips = "".join(
        f'<marker id="{kind}" viewBox="0 0 8 8" refX="6" refY="4" markerUnits="userSpaceOnUse" markerWidth="10" '
        f'markerHeight="10" orient="auto-start-reverse"><path class="tip {kind}" d="M0 0L8 4L0 8z"/></marker>'
        for kind in ("flow", "teach", "label", "average")
    )
    corner = '<clipPath id="corner"><rect width="44" height="44" rx="7"/></clipPath>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" '
        f'height="{height:g}" role="img">\n<title>{escape(f"{name}: {picture.title}")}</title>\n'
        f"<desc>{escape(picture.sentence)}</desc>\n<style>\n{style()}\n</style>\n<defs>{tips}{corner}</defs>\n"
        f'<rect class="paper" width="{WIDTH}" height="{height:g}" rx="10"/>\n'
        + write(16, 34, name, "title")
        + write(16, 56, picture.title, "small left")
        + "\n"
        + "\n".join([*parts, legend])
        + "\n</svg>\n"
    )

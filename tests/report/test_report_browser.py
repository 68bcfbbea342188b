"""The report's page in a real Chromium: it looks right where people open it, and does what it says."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.report import page
from tests.helpers.browser import Browser, is_installed
from tests.helpers.report import EVIL, records

pytestmark = pytest.mark.skipif(not is_installed(), reason="chromium and chromedriver are not installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = Browser()
    yield chromium
    chromium.close()


@pytest.fixture(scope="module")
def file(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file_path = tmp_path_factory.mktemp("page") / "report.html"
    page.write_report(
        [trained],
        file_path,
        f"A very long title with {EVIL} and a_word_that_is_much_longer_than_a_telephone_is_wide",
    )
    return file_path


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_console_errors_no_network_no_overflow(browser: Browser, file: Path, width: int, scheme: str) -> None:
    browser.open(file, width, scheme=scheme)
    assert browser.console() == []
    assert browser.run("return performance.getEntriesByType('resource').map(r => r.name)"
                       ".filter(name => !name.startsWith('data:'))") == []  # fmt: skip
    wide = "return [innerWidth, document.documentElement.scrollWidth - document.documentElement.clientWidth]"
    assert browser.run(wide) == [width, 0]
    beyond = """return [...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll, svg, #tip")
      && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + ' ' + e.className)"""
    assert browser.run(beyond) == []
    cut = """return [...document.querySelectorAll("caption")].filter(
      c => c.getBoundingClientRect().right > innerWidth).map(c => c.textContent)"""
    assert browser.run(cut) == []  # the names of wide tables are read without scrolling
    small = """return Math.min(...[...document.querySelectorAll("svg.chart")].map(svg => parseFloat(
      getComputedStyle(svg.querySelector("text")).fontSize) * svg.getBoundingClientRect().width / 560))"""
    assert browser.run(small) > 9  # pixels, of the labels in the charts
    crossed = """return [...document.querySelectorAll("svg.chart")].filter(svg => {
      const up = svg.querySelector("text.label[transform]").getBoundingClientRect();
      return [...svg.querySelectorAll("text:not(.label)")].some(t => t.getBoundingClientRect().left < up.right);
    }).map(svg => svg.ariaLabel)"""
    assert browser.run(crossed) == []  # an axis is not written over its numbers


CONTRAST = """
const channel = v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
const light = c => .2126 * channel(c[0]) + .7152 * channel(c[1]) + .0722 * channel(c[2]);
const colour = text => text.match(/[\\d.]+/g).map(Number);
const back = e => { for (; e; e = e.parentElement) {
  const c = colour(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } };
const ratio = (a, b) => {
  const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
const found = [];
for (const e of document.querySelectorAll("body *")) {
  const style = getComputedStyle(e), own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
  if (["SCRIPT", "STYLE", "desc", "title"].includes(e.tagName) || !e.getClientRects().length) continue;
  const ink = e.closest("svg") ? style.fill : style.color;
  if (own) found.push([e.textContent.slice(0, 40), ratio(colour(ink), back(e)), 4.5]);
  if (e.matches("path.line")) found.push(["line", ratio(colour(style.stroke), back(e)), 3]);
  if (e.matches("circle.dot")) found.push(["dot", ratio(colour(style.fill), back(e)), 3]);
}
return found;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_meets_wcag_aa(browser: Browser, file: Path, scheme: str) -> None:
    browser.open(file, scheme=scheme)
    back = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (max(json.loads(back.replace("rgb(", "[").replace(")", "]"))) < 60) == (scheme == "dark")
    measured = browser.run(CONTRAST)
    assert len(measured) > 100 and {least for _, _, least in measured} == {3, 4.5}
    assert [m for m in measured if m[1] < m[2]] == []


def test_every_colour_of_the_palette_has_contrast(browser: Browser, file: Path) -> None:
    for scheme in ("light", "dark"):
        browser.open(file, scheme=scheme)
        browser.run("""for (let i = 0; i < 8; i++) document.querySelector("figure svg.chart").insertAdjacentHTML(
          "beforeend", `<path class="line c${i}" data-name="" data-x="" data-y="" d="M0 ${i}H9"/>`)""")
        lines = [m for m in browser.run(CONTRAST) if m[0] == "line"]
        assert min(ratio for _, ratio, _ in lines) >= 3 and len({round(ratio, 3) for _, ratio, _ in lines}) >= 7


SORT = """
const table = [...document.querySelectorAll("table")].find(t => t.caption.textContent.startsWith("Classes: PCL"));
const heads = [...table.tHead.rows[0].cells], column = heads.findIndex(c => c.textContent === arguments[0]);
if (arguments[1]) heads[column].querySelector("button").click();
return [heads[column].ariaSort, [...table.tBodies[0].rows].map(r => r.cells[column].textContent)];
"""


def test_sorting(browser: Browser, file: Path) -> None:
    browser.open(file)
    _, before = browser.run(SORT, "images", False)
    order, up = browser.run(SORT, "images", True)
    assert order == "ascending" and [int(v) for v in up] == sorted(int(v) for v in before)
    order, down = browser.run(SORT, "images", True)
    assert order == "descending" and [int(v) for v in down] == sorted((int(v) for v in before), reverse=True)
    order, names = browser.run(SORT, "class", True)
    assert order == "ascending" and names == [EVIL, *map(str, range(1, 10))]


def test_a_class_called_like_a_script_stays_text(browser: Browser, file: Path) -> None:
    browser.open(file)  # an alert would make every further command fail
    assert browser.run("return document.scripts.length") == 1
    assert EVIL in browser.run("return document.body.innerText")
    assert EVIL in browser.run("return document.title")


def test_hovering_and_arrow_keys_tell_the_values(browser: Browser, file: Path, trained: Path) -> None:
    def mean(epoch: int) -> float:
        last = [records(trained / f"PCL-{seed}")[epoch - 1] for seed in (0, 1)]
        return float(np.mean([r["predictors"]["mean1"]["error"] for r in last]))

    browser.open(file)
    box: dict[str, Any] = browser.run("""const svg = document.querySelector("figure svg.chart");
      svg.scrollIntoView({block: "center"}); return svg.getBoundingClientRect().toJSON()""")
    browser.move(box["x"] + box["width"] * 0.96, box["y"] + box["height"] / 2)
    tip = "return document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText"
    said = browser.run(tip)
    assert said.startswith("epoch 3") and f"PCL: {mean(3):.4g}" in said.split("\n")
    browser.move(2, 2)
    assert browser.run(tip) == ""
    browser.run("document.querySelector('figure svg.chart').focus()")
    browser.devtools("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft", code="ArrowLeft")
    assert f"PCL: {mean(2):.4g}" in browser.run(tip).split("\n")


def test_a_click_and_a_tap_tell_the_values_where_they_are(browser: Browser, file: Path) -> None:
    tip = "return document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText"
    where = """const svg = document.querySelector("figure svg.chart"); svg.scrollIntoView({block: "center"});
      return svg.getBoundingClientRect().toJSON()"""
    browser.open(file)
    box: dict[str, Any] = browser.run(where)
    x, y = box["x"] + box["width"] * 0.14, box["y"] + box["height"] / 2
    browser.move(x, y)
    for kind in ("mousePressed", "mouseReleased"):
        browser.devtools("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    assert browser.run(tip).startswith("epoch 1\n")  # not the last one, though the click gave it the focus
    browser.open(file, 360)
    box = browser.run(where)
    point = {"x": box["x"] + box["width"] * 0.14, "y": box["y"] + box["height"] / 2}
    browser.devtools("Input.dispatchTouchEvent", type="touchStart", touchPoints=[point])
    browser.devtools("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    assert browser.run(tip).startswith("epoch 1\n")  # stays when the finger is gone


def test_charts_have_accessible_names_and_descriptions(browser: Browser, file: Path) -> None:
    browser.open(file)
    charts = browser.run("""return [...document.querySelectorAll("svg.chart")].map(
      svg => [svg.ariaLabel, svg.querySelector("desc").textContent, svg.getAttribute("role")])""")
    assert len(charts) > 8
    assert all(label and " over " in text and role in ("img", "group") for label, text, role in charts)
    assert browser.run("return [...document.images].every(i => i.alt && i.complete && i.naturalWidth > 0)")


def test_it_prints_in_black_on_white(browser: Browser, file: Path) -> None:
    browser.open(file, scheme="dark")
    pdf = base64.b64decode(browser.devtools("Page.printToPDF", printBackground=True)["data"])
    assert pdf.startswith(b"%PDF") and len(pdf) > 20_000
    browser.devtools("Emulation.setEmulatedMedia", media="print")
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    browser.devtools("Emulation.setEmulatedMedia", media="")

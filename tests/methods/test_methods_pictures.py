"""The pictures of the methods show the methods as they are, and can be read."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from PIL import Image

from coterie.methods import available
from coterie.peers.net import PeerNet
from tests.helpers.browser import Browser, is_installed
from tests.helpers.common import TinyNet, script

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "methods"
SVG = "{http://www.w3.org/2000/svg}"
needs_browser = pytest.mark.skipif(not is_installed(), reason="chromium and chromedriver are not installed")


def test_every_method_has_its_picture_as_the_script_draws_it() -> None:
    pictures, drawing = script("draw_methods", "docs").PICTURES, script("drawing", "docs")
    drawn = {f"{name}.svg": drawing.draw(name, picture) for name, picture in pictures.items()}
    assert {file.name: file.read_text() for file in FOLDER.glob("*.svg")} == drawn, (
        "run `python docs/draw_methods.py`"
    )
    assert set(pictures) == set(available())


@pytest.mark.parametrize("name", available())
def test_a_picture_names_the_loss_terms_of_its_method(name: str) -> None:
    """Those that a step returns, and no other; the number of views too."""
    cls: Any = available()[name]
    peers, cut = (1 if cls.trains == "one network" else 3), ("stage3" if cls.trains == "branches" else None)
    method = cls(PeerNet(TinyNet, peers, cut), **({"teacher": TinyNet()} if name == "KD" else {}))
    views = [torch.randn(4, 3, 8, 8) for _ in range(method.views)]
    terms = set(method(views, torch.tensor([0, 0, 1, 1]), 1)) - {"loss"}
    picture = script("draw_methods", "docs").PICTURES[name]
    assert picture.all_terms == terms
    shown = {"".join(text.itertext()) for text in ElementTree.parse(FOLDER / f"{name}.svg").iter(f"{SVG}text")}
    assert terms <= shown
    names = {box.name for box in picture.boxes}
    assert len(names & {"x1", "x2", "x3"}) == method.views
    assert ("trunk" in names) == (cls.trains == "branches")


@pytest.mark.parametrize("name", available())
def test_a_picture_has_a_title_and_a_description(name: str) -> None:
    picture = ElementTree.parse(FOLDER / f"{name}.svg").getroot()
    assert picture.get("role") == "img" and (picture.findtext(f"{SVG}title") or "").startswith(f"{name}: ")
    description = picture.findtext(f"{SVG}desc")
    assert description and f"![{description}]({name}.svg)" in (FOLDER / f"{name}.md").read_text()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = Browser()
    yield chromium
    chromium.close()


@needs_browser
def test_no_text_is_cut_off_or_over_another(browser: Browser) -> None:
    for name in available():
        browser.open(FOLDER / f"{name}.svg", 700, 760)
        outside = browser.run("""const page = document.documentElement.getBoundingClientRect();
          return [...document.querySelectorAll("text")].filter(t => { const b = t.getBoundingClientRect();
            return b.left < page.left + 8 || b.right > page.right - 4 || b.bottom > page.bottom;
          }).map(t => t.textContent)""")
        overlapping = browser.overlapping_texts()
        too_wide = browser.run("""const boxes = [...document.querySelectorAll("rect:not(.paper, .frame)")].map(
            r => r.getBoundingClientRect());
          return [...document.querySelectorAll("text")].filter(t => { const b = t.getBoundingClientRect();
            const x = (b.left + b.right) / 2, y = (b.top + b.bottom) / 2;
            return boxes.some(r => r.left < x && x < r.right && r.top < y && y < r.bottom
              && (b.left < r.left || b.right > r.right));
          }).map(t => t.textContent)""")
        assert (name, outside, overlapping, too_wide) == (name, [], [], [])


@needs_browser
def test_an_image_on_a_page_follows_light_and_dark(browser: Browser, tmp_path: Path) -> None:
    """As GitHub shows it: in an <img>, which gets the page's colour scheme."""
    page = tmp_path / "page.html"
    style = "<style>:root { color-scheme: light dark } body { margin: 0 }</style>"
    page.write_text(f'{style}<img src="{(FOLDER / "PCL.svg").as_uri()}">')
    brightness = {}
    for scheme in ("light", "dark"):
        browser.open(page, 640, 700, scheme)
        browser.run("return document.querySelector('img').decode().then(() => 1)")
        shot = base64.b64decode(browser.devtools("Page.captureScreenshot", format="png")["data"])
        pixels = Image.open(io.BytesIO(shot)).convert("L")
        brightness[scheme] = (
            pixels.getpixel((300, 20)),
            pixels.getpixel((130, 122 + 40)),
        )  # paper, a trained trunk
    (paper, trunk), (dark_paper, dark_trunk) = brightness["light"], brightness["dark"]
    assert paper == 255 and trunk > 200 and dark_paper < 40 and dark_trunk < 80

"""No picture of the documentation has text that is cut off or lies over other text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.browser import Browser, is_installed

ROOT = Path(__file__).parents[2]
PICTURES = [file for folder in ("docs", "results") for file in (ROOT / folder).rglob("*.svg")]
CHARTS = sorted(file for file in PICTURES if file.parent.name != "methods")
"""Those of the methods have a stricter test of their own."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = Browser()
    yield chromium
    chromium.close()


@pytest.mark.skipif(not is_installed(), reason="chromium and chromedriver are not installed")
@pytest.mark.parametrize("file", CHARTS, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_text_of_a_chart_is_whole(browser: Browser, file: Path) -> None:
    browser.open(file, 1100, 900)
    outside = browser.run("""const page = document.documentElement.getBoundingClientRect();
      return [...document.querySelectorAll("text")].filter(t => { const b = t.getBoundingClientRect();
        return b.left < page.left || b.right > page.right || b.top < page.top || b.bottom > page.bottom;
      }).map(t => t.textContent)""")
    overlapping = browser.overlapping_texts()
    assert (outside, overlapping) == ([], [])

"""The documentation site builds without a warning, and is whole without a network."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import coterie
from coterie.methods import available
from tests.helpers.browser import Browser, is_installed
from tests.helpers.common import script

ROOT = Path(__file__).parents[1]
MKDOCS = shutil.which("mkdocs", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
needs_mkdocs = pytest.mark.skipif(MKDOCS is None, reason='mkdocs is not installed: pip install -e ".[docs]"')
LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}
"""What a page loads by itself, unlike a link."""


class Page(HTMLParser):
    """The ids of a page, its links, and what it loads."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADED and LOADED[tag] in values:
            self.loaded.append(values[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert MKDOCS is not None
    folder = tmp_path_factory.mktemp("site")
    command = [MKDOCS, "build", "--strict", "--site-dir", str(folder), "--config-file", str(ROOT / "mkdocs.yml")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert result.returncode == 0 and "WARNING" not in result.stderr, result.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {file: Page(file) for file in sorted(site.rglob("*.html")) if file.name != "404.html"}


@needs_mkdocs
def test_every_link_within_the_site_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for file, page in pages.items():
        for link in [*page.links, *page.loaded]:
            address = urlsplit(link)
            if address.scheme in ("https", "http", "mailto", "data") or link.startswith("javascript:"):
                continue
            target = (file.parent / unquote(address.path)).resolve() if address.path else file
            if target.is_dir():
                target /= "index.html"
            known = pages.get(target)
            if not target.is_file() or (address.fragment and known and unquote(address.fragment) not in known.ids):
                broken.append(f"{file.relative_to(site)}: {link}")
    assert len(pages) > 35 and broken == []


@needs_mkdocs
def test_a_page_loads_nothing_from_another_host(site: Path, pages: dict[Path, Page]) -> None:
    loaded = {address for page in pages.values() for address in page.loaded}
    assert len(loaded) > 10 and not [a for a in loaded if re.match(r"(\w+:)?//", a)]
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import\s+['\"]?http", style.read_text(encoding="utf-8")), (
            style
        )


@needs_mkdocs
def test_the_search_finds_words_of_the_pages_and_no_copies_of_files(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    matches = {entry["location"].split("#")[0] for entry in index if "torchrun" in entry["text"]}
    assert "training.html" in matches and not [name for name in matches if name.startswith("repository/")]
    assert (site / "search" / "search_index.js").is_file()  # what a page opened from a disk reads


@needs_mkdocs
def test_every_public_name_is_in_the_reference(pages: dict[Path, Page], site: Path) -> None:
    ids = pages[site / "reference.html"].ids
    methods = set(available())
    assert {f"coterie.{name}" for name in set(coterie.__all__) - methods} <= {
        name for name in ids if name.startswith("coterie.")
    }
    assert {f"methods/{name}.html" for name in methods} == {
        file.relative_to(site).as_posix() for file in (site / "methods").glob("*.html") if file.stem != "index"
    }


@needs_mkdocs
def test_every_method_page_shows_its_formula_as_a_picture(site: Path) -> None:
    for name in available():
        text = (site / "methods" / f"{name}.html").read_text(encoding="utf-8")
        assert '<div class="formula"><svg' in text and "$`" not in text and "```" not in text, name


@needs_mkdocs
@pytest.mark.skipif(not is_installed(), reason="chromium and chromedriver are not installed")
def test_the_search_works_in_a_page_opened_from_a_disk(site: Path) -> None:
    browser = Browser()
    try:
        browser.open(site / "index.html")
        titles = browser.run("""
          const field = document.querySelector(".md-search__input");
          field.focus();
          field.value = "torchrun";
          field.dispatchEvent(new KeyboardEvent("keyup", { bubbles: true }));
          return new Promise((resolve) => {
            const timer = setInterval(() => {
              const headings = [...document.querySelectorAll(".md-search-result__item h1")];
              if (headings.length) { clearInterval(timer); resolve(headings.map((h) => h.textContent)); }
            }, 100);
            setTimeout(() => resolve([]), 15000);
          });""")
        failures = [entry["message"] for entry in browser.send("/se/log", {"type": "browser"})]
    finally:
        browser.close()
    assert titles and failures == []


def test_every_method_has_its_formula_with_its_terms() -> None:
    """The terms that its picture has, which another test compares with those of a step."""
    formulas, pictures = script("formulas", "docs").FORMULAS, script("draw_methods", "docs").PICTURES
    assert set(formulas) == set(available())
    for name, parts in formulas.items():
        named = set(re.findall(r"\\texttt\{(.*?)\}", "\n".join(parts)))
        assert {term.replace(r"\_", "_") for term in named} == pictures[name].all_terms, name


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r"[\w/]+\.md", text.split("\nnav:")[1]))
    generated = {"contribute.md", "changes.md", "security.md"}  # of files in the root
    docs = {file.relative_to(ROOT / "docs").as_posix() for file in (ROOT / "docs").rglob("*.md")}
    assert listed == docs | generated

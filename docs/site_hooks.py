"""Hooks of mkdocs: pages made of files outside docs/, links to such files, and formulas as pictures.

On GitHub the files in docs/ are read as they are; in the site, links that leave docs/ lead to a copy of the file.
"""

from __future__ import annotations

import html
import posixpath
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from ziamath import Latex
from ziamath import config as ziamath_config

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"CONTRIBUTING.md": "contribute.md", "CHANGELOG.md": "changes.md", "SECURITY.md": "security.md"}
"""Files of the repository's root that are pages of the site, so that nothing is written twice."""
PAGES_OF_GITHUB = {"README.md": "index.md"}
"""What is shown in another file's place: the first page of the repository is not the first page of the site."""
SHOWN_AS_CODE = {".py": "python", ".sh": "sh", ".yml": "yaml", ".yaml": "yaml"}
LINK = re.compile(r"(?<=\]\()(?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^```math\n(?P<latex>.*?)\n```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"\$`(?P<latex>[^`]+)`\$")
CODE = re.compile(r"<code>(?P<text>[^<]*)</code>")
FLAG = re.compile(r"(?<!\S)--[\w.-]+")
ziamath_config.svg2 = False  # glyphs as paths: ids of shared ones would clash between formulas


def on_files(files: Files, config: Any) -> Files:
    """Add the pages made of root files, and every file outside docs/ that a page links to."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        add_linked_files(text, "", files, config)
        files.append(File.generated(config, page, content=rewrite_links(text, "", page)))
    for file in list(files.documentation_pages()):
        if not file.generated_by:
            add_linked_files(
                file.content_string, posixpath.join("docs", posixpath.dirname(file.src_uri)), files, config
            )
    return files


def add_linked_files(text: str, folder: str, files: Files, config: Any) -> None:
    """Add every file outside docs/ that a text in a folder of the repository links to."""
    for match in LINK.finditer(text):
        add_linked_file(posixpath.normpath(posixpath.join(folder, match["path"])), files, config)


def add_linked_file(target: str, files: Files, config: Any) -> None:
    """Add a file outside docs/ to the site: code as a page, others as they are."""
    file, name = ROOT / target, site_path(target)
    if target.startswith(("docs/", "../")) or name in files.src_uris or target in PAGES or not file.is_file():
        return
    if file.suffix in SHOWN_AS_CODE:
        code = file.read_text(encoding="utf-8")
        block = f"````{SHOWN_AS_CODE[file.suffix]}\n{code}\n````"
        content = f"---\nsearch: {{exclude: true}}\n---\n\n# {file.name}\n\n`{target}`\n\n{block}\n"
        files.append(File.generated(config, name, content=content))
    else:
        files.append(File.generated(config, name, abs_src_path=str(file)))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links that leave docs/ lead to the copies in the site, and draw formulas."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))
    markdown = FENCE.sub(lambda m: draw_formula(m["latex"], display=True), markdown)
    markdown = INLINE.sub(lambda m: draw_formula(m["latex"], display=False), markdown)
    return rewrite_links(markdown, folder, page.file.src_uri)


def on_page_content(content: str, **_: Any) -> str:
    """Keep options on one line, and show the `\\|` of a table's cell as `|`, which Python-Markdown does not."""

    def replace(match: re.Match[str]) -> str:
        text = match["text"].replace(r"\|", "|")
        return "<code>" + FLAG.sub(r'<span class="flag">\g<0></span>', text) + "</code>"

    return CODE.sub(replace, content)


def draw_formula(latex: str, display: bool) -> str:
    """Draw a formula as SVG at build time: browsers need neither a script nor a font of mathematics for it."""
    latex = latex.replace(r"\_", "_")
    if "\\" in convert(latex):
        raise PluginError(f"latex2mathml does not know a command of this formula: {latex}")
    formula = Latex(latex, size=20 if display else 16, color="currentColor", inline=not display)
    depth = "" if display else f"vertical-align:{formula.getyofst():.1f}px"
    image = formula.svg().replace(
        "<svg ", f'<svg role="img" aria-label="{html.escape(latex)}" style="{depth}" ', 1
    )
    tag = "div" if display else "span"
    return f'<{tag} class="formula">{image}</{tag}>'


def rewrite_links(text: str, folder: str, page: str) -> str:
    """Replace links to files outside docs/, relative to a folder of the repository, by links within the site."""

    def replace(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match["path"]))
        inside = target.startswith("docs/")
        if (inside and folder.startswith("docs")) or target.startswith("../") or not (ROOT / target).is_file():
            return match[0]
        destination = target.removeprefix("docs/") if inside else site_path(target)
        return posixpath.relpath(destination, posixpath.dirname(page) or ".") + (match["anchor"] or "")

    parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else LINK.sub(replace, part) for part in parts)


def site_path(target: str) -> str:
    """Where a file outside docs/ stands in the site's sources."""
    special = PAGES | PAGES_OF_GITHUB
    if target in special:
        return special[target]
    return f"repository/{target}" + (".md" if Path(target).suffix in SHOWN_AS_CODE else "")

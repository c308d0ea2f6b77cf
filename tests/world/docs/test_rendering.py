"""Defects of rendering that `sphinx-build -W` doesn't see, on each page of the built site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

_ARTICLE = re.compile(r"<article.*?</article>", re.DOTALL)
_PARAGRAPH = re.compile(r"<p>(.*?)</p>", re.DOTALL)
_SIGNATURE = re.compile(r'<dl class="py class">\s*<dt class="sig.*?</dt>', re.DOTALL)
_FIELD = re.compile(
    r'<dt class="field-\w+">([\w -]+)<span.*?</dt>\s*<dd class="field-\w+">(.*?)</dd>', re.DOTALL
)
_CELL = re.compile(r"<td\b[^>]*>(.*?)</td>", re.DOTALL)
_CODE = re.compile(r"<(pre|code|script|style)\b.*?</\1>", re.DOTALL)

UPSTREAM = (  # first words of docstrings that aren't ours
    "Alias for field number",
    "Initialize self",
    "attrgetter(",
    "itemgetter(",
    "Create and return a new object",
    "Built-in mutable sequence",
    "Built-in immutable sequence",
    "Abstract base class for",
    "Return key,value pair",
    "Exception.add_note(note)",
    "with_traceback(tb)",
    "Get an attribute or a key",
    "Base class for protocol classes",
    "Functional API",
)
ROLES = re.compile(r":(?:py:)?\w+:`|\{(?:term|py:\w+|doc|ref)\}|^\s*(?:\.\. \w+::|:::|```)")


def plain(html: str) -> str:
    """The text of a piece of a page, on one line."""
    return " ".join(unescape(re.sub(r"<[^>]+>", "", html)).split())


def defects(html: str) -> Iterator[str]:
    """Yield the defects of a page."""
    found = _ARTICLE.search(html)
    text = found[0] if found else html
    for paragraph in _PARAGRAPH.findall(text):
        words = plain(_CODE.sub("x", paragraph))
        if words.startswith("|") or re.search(r"={4,}|\+-{3,}|-{5,}", words):
            yield f"a table that is a paragraph: {words[:60]}"
        if ROLES.search(words):
            yield f"markup that is text: {words[:60]}"
    for cell in _CELL.findall(text):
        if plain(_CODE.sub("", cell)).count("`") % 2:
            yield f"a cell that was cut: {plain(cell)[:60]}"
    for signature in _SIGNATURE.findall(text):
        if re.search(r"\(\s*\*args,\s*\*\*kwargs,?\s*\)", plain(signature)):
            yield f"a class without a signature: {plain(signature)[:60]}"
    for name, field in _FIELD.findall(text):
        if name not in ("Example", "Source") and "<pre" in field:
            yield f"code under {name}: {plain(field)[:60]}"
    words = plain(_CODE.sub("", text))
    for each in UPSTREAM:
        if each in words:
            yield f"a docstring of others: {each}"


def test_pages_are_rendered_as_they_are_meant(site: Path) -> None:
    pages = {file: file.read_text("utf-8") for file in site.rglob("*.html")}
    found = [f"{file.name}: {each}" for file, text in pages.items() for each in defects(text)]
    assert len(pages) > 50
    assert found == []


@pytest.mark.parametrize(
    "html",
    [
        "<article><p>| law | what it says |\n| - | - |</p></article>",
        "<p>name   value\n====== =====</p>",
        "<table><tr><td><p>algebra</p></td><td><p>`</p></td></tr></table>",
        "<p>Alias for field number 0</p>",
        "<dd><p>attrgetter(attr, /) --&gt; attrgetter object</p></dd>",
        '<dl class="py class">\n<dt class="sig sig-object py">class Scan(<span>*args</span>, '
        "<span>**kwargs</span>)</dt></dl>",
        '<dt class="field-odd">Raises<span>:</span></dt>\n<dd class="field-odd"><p>An error.</p>'
        "<pre>x = 1</pre></dd>",
        "<p>See {term}`state`.</p>",
        "<p>See :py:func:`batch`.</p>",
    ],
)
def test_a_defect_is_noticed(html: str) -> None:
    assert [*defects(html)] != []


def test_what_is_right_is_no_defect() -> None:
    html = """<article><table><tr><td>a</td></tr></table><p><code>a | b</code> joins.</p>
    <dl class="py class"><dt class="sig">class Run(state)</dt></dl>
    <dt class="field-odd">Raises<span>:</span></dt> <dd class="field-odd"><p>An error.</p></dd>
    <pre>x = {term}</pre></article>"""
    assert [*defects(html)] == []


def test_names_of_the_catalogue_are_links_in_groups(site: Path) -> None:
    text = (site / "reference/catalogue.html").read_text("utf-8")
    rows = re.findall(r"<tr[^>]*><td>(.*?)</td>", text, re.DOTALL)
    assert len(rows) > 50
    assert [row for row in rows if not re.search(r'href="\w+\.html#lazyckpt\.\w+"', row)] == []
    assert len(re.findall(r"<h2>", text)) >= 6


def test_the_reference_stands_above_the_notebooks(site: Path) -> None:
    text = (site / "index.html").read_text("utf-8")
    captions = [plain(each) for each in re.findall(r'<p class="caption".*?</p>', text, re.DOTALL)]
    assert captions.index("Reference") < captions.index("Notebooks")


def test_how_to_guides_link_the_reference(site: Path) -> None:
    alone = []
    for file in sorted((site / "how-to").glob("*.html")):
        found = _ARTICLE.search(file.read_text("utf-8"))
        if file.stem != "index" and found and "../reference/" not in found[0]:
            alone.append(file.stem)
    assert alone == []

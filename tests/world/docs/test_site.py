"""Every link within the built site leads to a page, and to a place on it; the index finds words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest


class Page(HTMLParser):
    """The links of a page, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.append(value)
            elif value and name in ("id", "name"):
                self.anchors.add(value)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {file: Page(file.read_text("utf-8")) for file in site.rglob("*.html")}


def dead(pages: dict[Path, Page]) -> Iterator[str]:
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            to = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            is_whole = not parts.fragment or to not in pages
            if not to.exists():
                yield f"{file.name}: no {link}"
            elif not is_whole and unquote(parts.fragment) not in pages[to].anchors:
                yield f"{file.name}: no place {link}"


def test_every_internal_link_leads_somewhere(pages: dict[Path, Page]) -> None:
    assert len(pages) > 50
    assert sum(len(page.links) for page in pages.values()) > 1000
    assert [*dead(pages)] == []


def test_a_dead_link_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "a.html"
    text = '<p id="x"><a href="#x"></a><a href="#y"></a><a href="b.html"></a><img src="c.png">'
    file.write_text(text)
    assert len([*dead({file.resolve(): Page(text)})]) == 3


def test_nothing_comes_from_elsewhere(pages: dict[Path, Page]) -> None:
    """Pages look the same without a network: scripts, styles and pictures are local."""
    for file, page in pages.items():
        text = file.read_text("utf-8")
        for link in page.links:
            if link.startswith(("http:", "https:", "//")):
                assert f'src="{link}"' not in text, f"{file.name}: {link}"
                assert f'rel="stylesheet" type="text/css" href="{link}"' not in text


def test_the_index_finds_what_one_looks_for(site: Path) -> None:
    text = (site / "searchindex.js").read_text("utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    names = index["docnames"]
    for word, page in (("resum", "tutorial"), ("shuffl", "reference/ordering")):
        found = [index[where].get(word, []) for where in ("terms", "titleterms")]
        numbers = {n for each in found for n in ([each] if isinstance(each, int) else each)}
        assert page in [names[number] for number in numbers]


def test_each_reader_links_to_what_all_share(site: Path) -> None:
    text = (site / "reference" / "io.html").read_text("utf-8")
    readers = re.findall(r'<dt [^>]*id="lazyckpt\.io\.read_', text)
    link = r'href="#lazyckpt\.io\.Rows"[^<]*<code[^<]*<span[^<]*</span></code></a> for what all'
    assert len(re.findall(link, text)) == len(readers) > 10

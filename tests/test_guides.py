"""Quotes in pages exist: error texts, extras, versions, files."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import lazyckpt as lz
from tests.pages import NOTEBOOKS, ROOT, without_blocks

PACKAGE = ROOT / "lazyckpt"
NOT_FOR_USERS = {"test", "test-world", "docs", "bench", "dev"}
FILE = re.compile(r"`((?:\w+/)*\w+\.py)`")
ERROR = re.compile(r"^\| `(\w+)` \| `(.+?)` \|", re.MULTILINE)


@cache
def strings() -> str:
    """Every text that the package can print, f-strings without their values."""
    nodes = [
        node for file in PACKAGE.rglob("*.py") for node in ast.walk(ast.parse(file.read_text()))
    ]
    found = [node.value for node in nodes if isinstance(node, ast.Constant)]
    return "\0".join([each for each in found if isinstance(each, str)])


def unknown(page: str) -> list[str]:
    """The error texts on a page that the package hasn't; dots stand for what differs."""
    return [
        text
        for _, text in ERROR.findall(page)
        if not all(part.strip() in strings() for part in text.split("..."))
    ]


def test_the_package_raises_the_errors_that_are_quoted() -> None:
    page = (NOTEBOOKS / "how-to/troubleshooting.md").read_text("utf-8")
    assert unknown(page) == []
    kinds = {kind for kind, _ in ERROR.findall(page)}
    assert len(ERROR.findall(page)) >= 20
    assert not [kind for kind in kinds if not hasattr(lz.errors, kind) and kind[-5:] != "Error"]


def test_an_error_text_that_is_gone_is_noticed() -> None:
    assert unknown("| `InvalidState` | `the state is ... as it never was` | no |\n") != []


def test_every_extra_is_listed() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = {*known["project"]["optional-dependencies"]} - NOT_FOR_USERS
    page = (NOTEBOOKS / "installation.md").read_text("utf-8")
    section = page.partition("\n## Extras\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert sorted(listed) == sorted(extras)


def test_the_changelog_begins_with_this_version() -> None:
    page = (NOTEBOOKS / "changelog.md").read_text("utf-8")
    assert re.findall(r"^## (\S+)$", page, re.MULTILINE)[0] == lz.__version__


def missing(page: str) -> list[str]:
    """The files that a page names and that there are not."""
    names = FILE.findall(without_blocks(page))
    return [name for name in names if not any(each.exists() for each in places(name))]


def places(name: str) -> list[Path]:
    return [ROOT / name, PACKAGE / name, PACKAGE / "executors" / name]


def test_contributors_are_led_to_files_that_exist() -> None:
    page = (NOTEBOOKS / "contributing.md").read_text("utf-8")
    assert len(FILE.findall(page)) > 10
    assert missing(page) == []
    drawing = page.partition("```text\n")[2].partition("```")[0]
    folders = re.findall(r"(\w+)/", drawing)
    known = {each.name for each in PACKAGE.rglob("*") if each.is_dir()}
    assert set(folders) <= known


def test_a_file_that_is_gone_is_noticed() -> None:
    assert missing("In `core/never.py` and `core/call.py`.") == ["core/never.py"]


def test_each_term_of_the_glossary_is_linked_from_a_page() -> None:
    glossary = (NOTEBOOKS / "glossary.md").read_text("utf-8")
    terms = re.findall(r"^([a-z][a-z -]*)$", glossary, re.MULTILINE)
    pages = [page.read_text("utf-8") for page in NOTEBOOKS.rglob("*.md")]
    linked = {
        long or short
        for page in pages
        for short, long in re.findall(r"{term}`([^`<]+?)(?: <([^>]+)>)?`", page)
    }
    assert len(terms) > 25
    assert sorted(set(terms) - linked) == []
    assert linked - set(terms) == set()

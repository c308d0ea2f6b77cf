"""No page or docstring has turns of phrase that readers stumble over."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import lazyckpt as lz
from tests.dialect import IN_DOCSTRINGS, PHRASES, dialect
from tests.pages import NOTEBOOKS, README

NAME = re.compile(r"\{[a-z_][a-z_.0-9]*(?:![rs])?\}")
PACKAGE = Path(lz.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
PAGES = [README, *sorted(NOTEBOOKS.rglob("*.md")), *sorted(NOTEBOOKS.glob("*.ipynb"))]


def text_of(page: Path) -> str:
    """What people wrote on a page, of a notebook too."""
    if page.suffix == ".md":
        return page.read_text("utf-8")
    cells = json.loads(page.read_text("utf-8"))["cells"]
    return "\n\n".join(
        ["".join(each["source"]) for each in cells if each["cell_type"] == "markdown"]
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_written_as_people_speak(page: Path) -> None:
    assert [*dialect(text_of(page))] == []


def docstrings(module: Path) -> Iterator[str]:
    """The docstrings of a module, of private functions too, without their examples."""
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            text, _, _ = (ast.get_docstring(node) or "").partition("\n>>> ")
            yield text


def test_docstrings_are_written_as_people_speak() -> None:
    for module in MODULES:
        text = "\n\n".join(docstrings(module))
        assert [*dialect(text, PHRASES | IN_DOCSTRINGS)] == [], module


def unfilled(module: str) -> Iterator[str]:
    """Texts, except docstrings, with a name in braces: of an f-string that isn't one."""
    tree = ast.parse(module)
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    texts = [node.value for node in nodes if id(node) not in bare and isinstance(node.value, str)]
    yield from filter(NAME.search, texts)


def test_each_name_in_braces_is_filled_in() -> None:
    for module in MODULES:
        assert [*unfilled(module.read_text("utf-8"))] == [], module


def test_a_name_in_braces_is_noticed() -> None:
    assert [*unfilled('f(f"{name} of", f" {size}")')] == []
    assert [*unfilled('f(f"{name}" " of {size}")')] == [" of {size}"]

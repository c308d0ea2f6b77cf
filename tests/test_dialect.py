"""No page or docstring has turns of phrase that readers stumble over."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import lazyckpt as lz
from tests.dialect import IN_DOCSTRINGS, PHRASES, dialect, prose
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


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(PACKAGE)))
def test_a_docstring_is_written_as_people_speak(module: Path) -> None:
    text = "\n\n".join(docstrings(module))
    assert [*dialect(text, PHRASES | IN_DOCSTRINGS)] == []


def unfilled(module: str) -> Iterator[str]:
    """Texts, except docstrings, with a name in braces: of an f-string that isn't one."""
    tree = ast.parse(module)
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    texts = [node.value for node in nodes if id(node) not in bare and isinstance(node.value, str)]
    yield from filter(NAME.search, texts)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(PACKAGE)))
def test_each_name_in_braces_is_filled_in(module: Path) -> None:
    assert [*unfilled(module.read_text("utf-8"))] == []


def test_a_name_in_braces_is_noticed() -> None:
    assert [*unfilled('f(f"{name} of", f" {size}")')] == []
    assert [*unfilled('f(f"{name}" " of {size}")')] == [" of {size}"]


@pytest.mark.parametrize(
    "said",
    [
        "What comes of an item is kept.",
        "- Who makes the items is an argument.",
        "It is read. Where the data have indices, it seeks.",
        "Get any item at once.",
        "The rows are shuffled anew.",
        "Behind `shard`, each rank is alone.",
        "It goes on where it is.",
        "None where only reading tells.",
        "a training that was killed",
        "`map` is rank-free.",
        "It resumes on another number of ranks.",
    ],
)
def test_a_turn_of_phrase_is_noticed(said: str) -> None:
    assert [*dialect(f"# A page\n\n{said}\n")] != []


@pytest.mark.parametrize(
    "said",
    [
        "Items behind the window are read.",
        "Tell who reads it.",
        "Return the items that it gave.",
        "The length, as of `batch`.",
        "It is a table made of rows.",
        "Otherwise nobody reads it.",
    ],
)
def test_a_turn_of_phrase_is_noticed_in_a_docstring(said: str) -> None:
    assert [*dialect(said, IN_DOCSTRINGS)] != []


@pytest.mark.parametrize(
    "said",
    [
        "What does a resume cost? It depends.",
        "Three questions: which stage, where it runs, and why.",
        "a training run, a training script",
        "Where the file is: `index_dir`.",
        "```python\nwhat = 'anew'  # What goes on at once.\n```",
    ],
)
def test_plain_words_are_fine(said: str) -> None:
    assert [*dialect(f"# What a resume costs\n\n{said}\n")] == []


def test_prose_is_what_is_no_code() -> None:
    assert "y" not in prose("---\ny: 1\n---\n# y\n\n```\ny\n```\n\nSee [it](y.md).\n")

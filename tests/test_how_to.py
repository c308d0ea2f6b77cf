"""The how-to guides: the names in prose and tables exist. Sphinx runs their code."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lazyckpt as lz
from tests.pages import blocks

FOLDER = Path(__file__).parents[1] / "notebooks" / "how-to"
PAGES = sorted(FOLDER.glob("*.md"))
GUIDES = [page for page in PAGES if page.stem != "index"]
CELL = re.compile(r"^```\{code-cell\} ipython3\n(?::.*\n)*(.*?)^```\n", re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"^```.*?^```\n", re.DOTALL | re.MULTILINE)


def is_of_world(page: Path) -> bool:
    """Whether a page names a framework's part of the package, which imports the framework."""
    return (
        re.search(r"\blz\.(accelerate|grain|jax|torch|transformers)\b", page.read_text("utf-8"))
        is not None
    )


def cells(page: Path) -> list[str]:
    return CELL.findall(page.read_text("utf-8"))


def named(name: str) -> Any:
    """The object that `lz.` and the name stand for."""
    found: Any = lz
    for part in name.split("."):
        found = getattr(found, part)
    return found


def expressions(text: str) -> Iterator[ast.expr]:
    """The code within lines of prose and tables, if it is Python."""
    for code in re.findall(r"`([^`\n]+)`", FENCE.sub("", text)):
        whole = re.sub(r"=(?=[,)])", "=...", code.replace("\\|", "|").strip(" |"))
        try:
            yield ast.parse(whole, mode="eval").body
        except SyntaxError:
            continue


def wrong(text: str) -> list[str]:
    """The calls of ours with arguments that aren't ours; `...` stands for some."""
    found = []
    for node in (node for each in expressions(text) for node in ast.walk(each)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("lz."):
            parameters = inspect.signature(named(ast.unparse(node.func)[3:])).parameters
            open_ended = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
            given = {each.arg for each in node.keywords}
            if not open_ended and given - set(parameters):
                found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_it_is_one_page_that_the_build_runs(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text.startswith("---\nfile_format: mystnb\nkernelspec:\n  name: python3\n")
    assert len(re.findall(r"^# ", FENCE.sub("", text), re.MULTILINE)) == 1
    assert cells(page)
    for code in (*cells(page), *blocks(text, "python")):
        ast.parse(code)


@pytest.mark.parametrize(
    "page", [page for page in GUIDES if not is_of_world(page)], ids=lambda page: page.stem
)
def test_what_it_names_exists(page: Path) -> None:
    names_what_exists(page)


def names_what_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    for name in re.findall(r"\blz\.((?:\w+\.)*\w+)", text):
        named(name)
    assert wrong(text) == []


def test_a_wrong_argument_is_noticed() -> None:
    assert wrong("| `lz.batch(4, drop_remainder=True)` |") == ["lz.batch(4, drop_remainder=True)"]
    assert wrong("`x \\| lz.batch(4, drop_last=True)`, `lz.shard(..., index=)`") == []


def test_the_index_has_every_page() -> None:
    listed = re.findall(r"^[a-z-]+$", (FOLDER / "index.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == [page.stem for page in GUIDES]

"""Quotes in pages exist: error texts, extras, versions, files."""

from __future__ import annotations

import ast
import builtins
import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import lazyckpt as lz
from tests.pages import NOTEBOOKS, ROOT, blocks, without_blocks

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
    assert all(hasattr(lz.errors, kind) or hasattr(builtins, kind) for kind in kinds)


def test_an_error_text_that_is_gone_is_noticed() -> None:
    assert unknown("| `InvalidState` | `the state is ... as it never was` | no |\n") != []


def test_every_extra_is_listed() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = {*known["project"]["optional-dependencies"]} - NOT_FOR_USERS
    page = (NOTEBOOKS / "installation.md").read_text("utf-8")
    section = page.partition("\n## Extras\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert sorted(listed) == sorted(extras)


NEEDS = {  # the code of a page, by the extra that it needs
    "accelerate": r"\baccelerate import\b|\blz\.accelerate\b",
    "arrow": r"\bimport pyarrow\b|\b(?:read_arrow|read_parquet|to_parquet)\(",
    "datasets": r"^import datasets\b|\b(?:read|stream)_dataset\(",
    "grain": r"\bimport grain\b|\blz\.grain\b",
    "image": r"\bfrom PIL\b",
    "jax": r"\bimport jax\b|\blz\.jax\b",
    "lightning": r"\bimport lightning\b|\blz\.lightning\b",
    "mlflow": r"\bimport mlflow\b",
    "plot": r"\bimport matplotlib\b",
    "processes": r"\blz\.processes\(",
    "progress": r"\blz\.progress\(",
    "ray": r"\blz\.ray\(",
    "tensorboard": r"\btorch\.utils\.tensorboard\b",
    "testing": r"\b(?:from hypothesis|testing import strategies)\b",
    "torch": r"\b(?:import|from) torch\b|\blz\.torch\b",
    "transformers": r"\bfrom transformers\b|\blz\.transformers\b",
    "wandb": r"\bimport wandb\b",
}
INCLUDED = {"torch": ["accelerate", "lightning", "transformers"], "processes": ["ray"]}
WITH_CODE = [*sorted(NOTEBOOKS.rglob("*.md")), *sorted(NOTEBOOKS.glob("*.ipynb"))]


def unsaid(code: str, words: str) -> Iterator[str]:
    """The extras that code needs, and that the words beside it don't name."""
    for extra, uses in NEEDS.items():
        any_of = "|".join([extra, *INCLUDED.get(extra, ())])
        named = rf"\bextras?\b[^.]*`(?:{any_of})`|\[(?:\w+,)*(?:{any_of})(?:,\w+)*\]"
        if re.search(uses, code, re.MULTILINE) and not re.search(named, words):
            yield extra


def read(page: Path) -> tuple[str, str]:
    """The code of a page, and its words."""
    text = page.read_text("utf-8")
    if page.suffix == ".md":
        code = [*blocks(text, "{code-cell} ipython3"), *blocks(text, "python")]
        return "".join(code), without_blocks(text)
    cells = json.loads(text)["cells"]
    code, words = (
        ["".join(each["source"]) for each in cells if each["cell_type"] == kind]
        for kind in ("code", "markdown")
    )
    return "\n".join(code), "\n".join(words)


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_a_page_names_the_extras_that_its_code_needs(page: Path) -> None:
    assert [*unsaid(*read(page))] == []


def test_an_extra_that_is_not_named_is_noticed() -> None:
    code = "import torch\nlz.progress(run)\n"
    assert [*unsaid(code, "Nothing extra.")] == ["progress", "torch"]
    assert [*unsaid(code, 'The extra is `progress`. `pip install "lazyckpt[jax,torch]"`')] == []


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


COINED = ("accumulator", "anchor", "global state", "lane", "random access", "rank-invariant")
TERM = re.compile(r"{term}`([^`<]+?)(?: <([^>]+)>)?`")


def unlinked(page: str) -> Iterator[str]:
    """The terms of lazyckpt's own that a page uses before it links to the glossary."""
    text = re.sub(r"^[#|].*", "", without_blocks(page), flags=re.MULTILINE)
    text = TERM.sub(lambda found: f"<{found[2] or found[1]}>", text)
    text = re.sub(r"`[^`\n]*`|\]\([^)]*\)|\[[^\]\n]*\]", "", text)
    for term in COINED:
        first = re.search(rf"(?<!-)\b{term}s?\b", text, re.IGNORECASE)
        if first and text[first.start() - 1] != "<":
            yield term


PROSE = [
    page
    for folder in ("explanation", "how-to", "reference")
    for page in sorted((NOTEBOOKS / folder).glob("*.md"))
    if page.name != "catalogue.md"  # its tables are docstrings
]


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.name)
def test_the_first_use_of_a_term_links_to_the_glossary(page: Path) -> None:
    assert [*unlinked(page.read_text("utf-8"))] == []


def test_a_term_without_a_link_is_noticed() -> None:
    assert [*unlinked("# A lane\n\nTwo lanes, then {term}`lanes <lane>`.\n")] == ["lane"]
    assert [*unlinked("`lane` {term}`lanes <lane>`, and a lane; {term}`random access`.")] == []


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

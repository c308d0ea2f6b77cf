"""Pages of the documentation, without building them: the catalogue, the names, the evidence.

`python -m tests.test_docs` writes the catalogue again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.__main__ import main
from lazyckpt.core.call import Combinator
from lazyckpt.pictures.chains import ACCESS, OWNS, RANK_INVARIANT
from lazyckpt.testing import check_combinator
from tests.docstrings import FACTS, parsed, sentence
from tests.pages import NOTEBOOKS, blocks, cells, links

CATALOGUE = NOTEBOOKS / "reference/catalogue.md"
WRITING = NOTEBOOKS / "how-to/write-a-combinator.md"
PEERS = NOTEBOOKS / "explanation/peers.md"
PAGES = sorted(NOTEBOOKS.rglob("*.md"))

GROUPS = ("sources", "mapping", "selecting", "grouping", "ordering", "joining")  # pages
TABLES = re.compile(r"^## .*", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"^\| {py:func}`(\w+) <lazyckpt\.\w+>` \|", re.MULTILINE)


def with_catalogue(text: str) -> str:
    """The page with the tables of all combinators as their docstrings have it."""
    return TABLES.sub(lambda _: catalogue(), text)


def catalogue() -> str:
    """A table for each page of the reference, in its order, with a row for every combinator."""
    head = ["name", "yields", "state", "on a resume", "random access", "rank-invariant"]
    parts = []
    for group in GROUPS:
        page = (NOTEBOOKS / f"reference/{group}.md").read_text("utf-8")
        names = [name for name in automatic(page, "lazyckpt") if name in lz.registry]
        rows = [head, ["---"] * len(head), *[row(lz.registry[name]) for name in names]]
        lines = [f"| {' | '.join(cells)} |\n" for cells in rows]
        parts.append(f"## {title(page)}\n\n{''.join(lines)}")
    return "\n".join(parts)


def title(page: str) -> str:
    return page.partition("\n")[0].removeprefix("# ")


def automatic(page: str, module: str) -> list[str]:
    """The names of a module that a page has out of their docstrings, in order."""
    return [
        name
        for block in blocks(page, "{eval-rst}")
        if f".. currentmodule:: {module}\n" in block
        for name in re.findall(r"^\.\. auto(?:function|class|data):: (\w+)$", block, re.M)
    ]


def row(combinator: Combinator) -> list[str]:
    found = parsed(combinator.public)
    cells = [found.summary.removesuffix("."), *(sentence(found.sections[fact]) for fact in FACTS)]
    name = f"{{py:func}}`{combinator.name} <lazyckpt.{combinator.name}>`"
    return [name, *(cell.replace("|", "\\|") for cell in cells)]


def executors() -> set[str]:
    """The functions that make executors."""
    modules = {name: getattr(getattr(lz, name), "__module__", "") for name in lz.__all__}
    found = [name for name, each in modules.items() if each.startswith("lazyckpt.executors.")]
    return {*found} - {"Executor"}


def documented(module: str) -> set[str]:
    """The names of a module that the reference has out of their docstrings."""
    pages = (NOTEBOOKS / "reference").glob("*.md")
    return {name for page in pages for name in automatic(page.read_text("utf-8"), module)}


def examples() -> dict[str, str]:
    """The source of each combinator that a page defines."""
    code = "".join(cells(WRITING))
    found = [node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)]
    lines = code.splitlines()
    return {
        node.name: "\n".join(lines[node.decorator_list[0].lineno - 1 : node.end_lineno])
        for node in found
        if [ast.unparse(each).partition("(")[0] for each in node.decorator_list]
        == ["lz.combinator"]
    }


@pytest.fixture
def combinators() -> Iterator[Mapping[str, Callable[..., Any]]]:
    """The page's combinators, by the cells that define them."""
    names: dict[str, Any] = {"__name__": "train", "lz": lz}
    known = set(lz.registry)
    for cell in cells(WRITING):
        if "@lz.combinator" in cell or cell.startswith(("import", "from")):
            exec(compile(cell, "train.py", "exec"), names)
    yield names
    for name in set(lz.registry) - known:
        del lz.registry[name]


def test_the_catalogue_is_that_of_the_docstrings() -> None:
    text = CATALOGUE.read_text("utf-8")
    assert len(re.findall(r"^## ", text, re.MULTILINE)) == len(GROUPS)
    assert with_catalogue(text) == text


def test_exports_registry_and_catalogue_agree() -> None:
    functions = {"add_cu_seqlens", "mix_counts", "schedule"}
    functions |= {"kfold", "plan_packing", "split", "stack"}
    exported = {name for name in lz.__all__ if is_combinator(getattr(lz, name))}
    listed = NAME.findall(CATALOGUE.read_text("utf-8"))
    assert exported - functions == set(lz.registry) == set(listed)
    assert len(listed) == len(set(listed))


def is_combinator(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).startswith("lazyckpt.combinators.")


MODULES = [
    "lazyckpt",
    "lazyckpt.errors",
    "lazyckpt.io",
    "lazyckpt.testing",
    "lazyckpt.types",
    "lazyckpt.integrations.prometheus",
    "lazyckpt.integrations.trackers",
    *(f"lazyckpt.compat.{name}" for name in ("emloop", "gluon", "infinibatch", "seqtools")),
]
ERRORS = {
    name
    for name, found in vars(lz.errors).items()
    if isinstance(found, type) and issubclass(found, lz.PipelineError)
} - {*lz.__all__}
NO_DOCSTRING = {"registry", "LAWS", "datasets", "iterators", "instrument"}  # a dict, modules


@pytest.mark.parametrize("module", MODULES)
def test_the_reference_has_every_public_name(module: str) -> None:
    has_every_public_name(module)


def has_every_public_name(module: str) -> None:
    found = import_module(module)
    public = {*getattr(found, "__all__", ERRORS)} - NO_DOCSTRING
    assert executors() >= {"inline", "threads", "processes", "futures", "ray", "to_device"}
    assert public ^ documented(module) == set()


def test_every_command_has_its_help_on_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    commands = re.findall(r"^    (\w+)(?:  |$)", capsys.readouterr().out, re.MULTILINE)
    assert {"demo", "index"} <= set(commands)
    page = (NOTEBOOKS / "reference/command-line.md").read_text("utf-8")
    assert re.findall(r"^%run -m lazyckpt -- (\w+) --help$", page, re.MULTILINE) == commands


def test_the_marks_of_a_diagram_are_on_a_page() -> None:
    text = (NOTEBOOKS / "explanation/values.md").read_text("utf-8")
    for mark in (ACCESS, OWNS, RANK_INVARIANT):
        assert re.search(rf"^\| `{re.escape(mark.sign)}`.* \| {mark.word}: ", text, re.MULTILINE)


def test_links_between_pages_lead_to_files() -> None:
    dead = [
        f"{page.name}: {link}"
        for page in PAGES
        for link in links(page.read_text("utf-8"))
        if not link.startswith(("https://", "#"))
        and not any(
            (page.parent / (link.partition("#")[0] + end)).exists() for end in ("", ".md", ".ipynb")
        )
    ]
    assert dead == []


EVIDENCE = re.compile(r"\]\((\S+/tests/\S+\.py) \"(\w+)\"\)")


def without_test(text: str) -> list[str]:
    """The tests that a comparison names and that there are not."""
    return [
        f"{file}: {name}"
        for file, name in EVIDENCE.findall(text)
        if not (found := PEERS.parent / file).exists()
        or f"\ndef {name}(" not in found.read_text("utf-8")
    ]


def test_each_cell_of_the_comparison_has_its_evidence() -> None:
    text = PEERS.read_text("utf-8")
    assert without_test(text) == []
    assert len(EVIDENCE.findall(text)) >= 15
    said = text.partition("<!-- end of peers -->")[2]
    for line in re.findall(r"^\| (?!---|library|claim).*", said, re.MULTILINE):
        known = ("](https://", "/tests/", "measured above", "not found in its documentation")
        *_, last = line.strip(" |").split(" | ")
        assert any(each in last for each in known), line


def test_evidence_that_is_gone_is_noticed() -> None:
    text = '[laws](../../tests/testing/test_laws.py "test_of_nothing") [a](b/tests/c.py "d")'
    assert len(without_test(text)) == 2


def test_its_combinators_have_fewer_than_20_lines() -> None:
    found = examples()
    assert set(found) == {"lines", "lookahead", "unseen", "smoothed"}
    for name, source in found.items():
        lines = [line for line in source.splitlines() if line.strip()]
        assert len(lines) - 1 < 20, f"{name}: {len(lines)} lines, the docstring's among them"


def test_its_combinators_show_the_fast_way() -> None:
    """A flow, which an iterator's speed bounds; a step makes a position for each item."""
    for name, source in examples().items():
        given = {word.arg for node in ast.walk(ast.parse(source)) for word in keywords(node)}
        assert "flow" in given, name
        assert "step" not in given, name


def keywords(node: ast.AST) -> list[ast.keyword]:
    return node.keywords if isinstance(node, ast.Call) else []


WORDS = st.lists(st.text("abc", max_size=4), max_size=8)
NUMBERS = st.lists(st.integers(-9, 9), max_size=8)


@pytest.mark.parametrize(
    ("name", "arguments", "data"),
    [
        ("lines", (1,), WORDS),
        ("lines", (5,), WORDS),
        ("lookahead", (0,), NUMBERS),
        ("lookahead", (3,), NUMBERS),
        ("unseen", (len, 1), WORDS),
        ("unseen", (str, 4), WORDS),
        ("smoothed", (0.5,), NUMBERS),
        ("smoothed", (1,), NUMBERS),
    ],
)
def test_its_combinators_keep_all_laws(
    combinators: Mapping[str, Callable[..., Any]],
    name: str,
    arguments: tuple[Any, ...],
    data: st.SearchStrategy[list[Any]],
) -> None:
    @settings(max_examples=max(2, settings.default.max_examples // 20))
    @given(data)
    def holds(items: list[Any]) -> None:
        check_combinator(combinators[name](*arguments), items, model=MODELS[name](*arguments))

    holds()


def batched(max_tokens: int) -> Callable[[list[str]], list[list[str]]]:
    def model(items: list[str]) -> list[list[str]]:
        found: list[list[str]] = []
        for item in items:
            if found and sum(map(len, found[-1])) + len(item) <= max_tokens:
                found[-1].append(item)
            else:
                found.append([item])
        return found

    return model


def ahead(n: int) -> Callable[[list[Any]], list[Any]]:
    return lambda items: [
        (item, tuple(items[place : place + n])) for place, item in enumerate(items, 1)
    ]


def fresh(key: Callable[[Any], Any], window: int) -> Callable[[list[Any]], list[Any]]:
    def model(items: list[Any]) -> list[Any]:
        found: list[Any] = []
        for item in items:
            if key(item) not in map(key, found[-window:]):
                found.append(item)
        return found

    return model


def averaged(alpha: float) -> Callable[[list[float]], list[float]]:
    return lambda items: list(accumulate(items, lambda mean, item: mean + alpha * (item - mean)))


MODELS: dict[str, Callable[..., Callable[[list[Any]], list[Any]]]] = {
    "lines": batched,
    "lookahead": ahead,
    "unseen": fresh,
    "smoothed": averaged,
}


if __name__ == "__main__":
    CATALOGUE.write_text(with_catalogue(CATALOGUE.read_text("utf-8")), "utf-8")

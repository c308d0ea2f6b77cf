"""The README: its code runs and prints what it shows, its catalogue is that of the docstrings.

`python -m tests.test_readme` writes results and catalogue anew.
"""

from __future__ import annotations

import ast
import io
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.core.call import Combinator
from lazyckpt.testing import check_combinator
from tests.docstrings import FACTS, parsed, sentence

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
COMMANDS = ["pip install -e . && lazyckpt demo", 'pip install -e ".[test]" && pytest']

CODE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n.*?^```\n)?", re.DOTALL | re.MULTILINE)
TABLE = re.compile(r"^\| name \|.*\n(?:\|.*\n)+", re.MULTILINE)
NAME = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


def with_results(text: str) -> str:
    """The README with what its code prints today after each block, run in order as one module."""
    names: dict[str, Any] = {"__name__": "train"}
    known = set(lz.registry)

    def ran(block: re.Match[str]) -> str:
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(block[1], "train.py", "exec"), names)
        result = f"\n```text\n{printed.getvalue()}```\n" if printed.getvalue() else ""
        return f"```python\n{block[1]}```\n{result}"

    try:
        return CODE.sub(ran, text)
    finally:
        for name in set(lz.registry) - known:
            del lz.registry[name]


def with_catalogue(text: str) -> str:
    """The README with the table of all combinators as their docstrings have it."""
    table = catalogue(NAME.findall(text))
    return TABLE.sub(lambda _: table, text)


def catalogue(order: list[str]) -> str:
    """A row for every combinator, in that order; those that it lacks come last."""
    places = {name: place for place, name in enumerate(order)}
    found = sorted(lz.registry.values(), key=lambda each: places.get(each.name, len(places)))
    head = ["name", "gives", "state", "a resume", "random access", "rank-free"]
    rows = [head, ["---"] * len(head), *map(row, found)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def row(combinator: Combinator) -> list[str]:
    found = parsed(combinator.public)
    cells = [found.summary.removesuffix("."), *(sentence(found.sections[fact]) for fact in FACTS)]
    return [f"`{combinator.name}`", *(cell.replace("|", "\\|") for cell in cells)]


def blocks(text: str, language: str) -> Iterator[str]:
    for block in BLOCK.finditer(text):
        if block[1] == language:
            yield block[2]


def orphans(text: str) -> list[str]:
    """The outputs, by their first line, that no code stands before."""
    alone = CODE.sub("", text)
    return [body.partition("\n")[0] for body in blocks(alone, "text")]


def headings(text: str) -> list[str]:
    return re.findall(r"^## (.*)$", BLOCK.sub("", text), re.MULTILINE)


def contents(text: str) -> list[str]:
    """The headings that the table of contents names, each with the right anchor."""
    table = text.partition("## Contents\n")[2].partition("\n## ")[0]
    found = re.findall(r"^- \[(.*)\]\(#(.*)\)$", table, re.MULTILINE)
    return [name for name, to in found if to == anchor(name)]


def anchor(heading: str) -> str:
    """What GitHub makes of a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def shown(text: str) -> set[str]:
    """What stands behind `lz.` in code, and the words of code in tables."""
    code = "".join(blocks(text, "python"))
    tables = "".join(re.findall(r"^\|.*\n", text, re.MULTILINE))
    words = " ".join(re.findall(r"`[^`]*`", tables)).replace("lz.", "")
    return {*re.findall(r"\blz\.([\w.]*\w)", code), *re.findall(r"[\w.]*\w", words)}


def executors() -> set[str]:
    """The functions that make executors."""
    modules = {name: getattr(getattr(lz, name), "__module__", "") for name in lz.__all__}
    found = [name for name, each in modules.items() if each.startswith("lazyckpt.executors.")]
    return {*found, "jax.device_put"} - {"Executor", "explain"}


def examples() -> dict[str, str]:
    """The source of each combinator that the README defines."""
    code = "".join(blocks(README.read_text("utf-8"), "python"))
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
    """The README's combinators, by the blocks that define them."""
    names: dict[str, Any] = {"__name__": "train", "lz": lz}
    known = set(lz.registry)
    with redirect_stdout(io.StringIO()):
        for block in blocks(README.read_text("utf-8"), "python"):
            if "@lz.combinator" in block:
                exec(compile(block, "train.py", "exec"), names)
    yield names
    for name in set(lz.registry) - known:
        del lz.registry[name]


def test_the_code_prints_what_the_readme_shows() -> None:
    text = README.read_text("utf-8")
    assert len(CODE.findall(text)) == text.count("```python")
    assert with_results(text) == text


def test_a_wrong_result_is_noticed() -> None:
    wrong = "```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n"
    assert with_results(wrong) == wrong.replace("3", "2")
    assert with_results("```python\nprint(1)\n```\n") != "```python\nprint(1)\n```\n"


def test_no_output_stands_without_code() -> None:
    text = README.read_text("utf-8")
    assert orphans(text) == []
    for lost in CODE.finditer(text):
        if "```text" in lost[0]:
            left = lost[0].partition(f"```python\n{lost[1]}```\n")[2]
            assert orphans(text.replace(lost[0], left)), f"not noticed:\n{left}"


def test_the_table_of_contents_names_the_sections() -> None:
    text = README.read_text("utf-8")
    assert contents(text) == [name for name in headings(text) if name != "Contents"]
    anchors = {anchor(name) for name in headings(text)}
    assert set(re.findall(r"\]\(#(.*?)\)", text)) <= anchors


def test_a_section_lost_or_new_is_noticed() -> None:
    text = README.read_text("utf-8")
    for name in contents(text):
        for other in (
            text.replace(f"## {name}\n", ""),
            text.replace(f"- [{name}](#{anchor(name)})\n", ""),
            text.replace(f"](#{anchor(name)})\n", "](#elsewhere)\n"),
        ):
            assert contents(other) != [each for each in headings(other) if each != "Contents"]


def test_every_stage_and_executor_is_shown() -> None:
    text = README.read_text("utf-8")
    assert executors() >= {"inline", "threads", "processes", "futures", "ray", "to_device"}
    assert {*lz.registry, *executors()} - shown(text) == set()


def test_a_stage_or_executor_that_is_not_shown_is_noticed() -> None:
    text = README.read_text("utf-8")
    for name in (
        "futures",
        "ray",
        "to_device",
        "jax.device_put",
        "group_by",
        "once",
        "sliding_window",
    ):
        rows = [line for line in text.splitlines() if not re.search(rf"`[^`]*\b{name}\b", line)]
        assert name not in shown("\n".join(rows)), name
    code = "```python\nlz.threads(2)\nmap(str, [])\n```\n| `lz.jax.device_put(x)` | zip |\n"
    assert shown(code) == {"threads", "jax.device_put", "x"}


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


def test_the_catalogue_is_that_of_the_docstrings() -> None:
    text = README.read_text("utf-8")
    assert len(TABLE.findall(text)) == 1
    assert with_catalogue(text) == text


def test_exports_registry_and_catalogue_agree() -> None:
    functions = {"add_cu_seqlens", "kfold", "mix_counts", "plan_packing", "split", "stack"}
    beside = {"PackingPlan", *functions}
    exported = {name for name in lz.__all__ if is_combinator(getattr(lz, name))}
    listed = NAME.findall(README.read_text("utf-8"))
    assert exported - beside == set(lz.registry) == set(listed)
    assert len(listed) == len(set(listed))


def is_combinator(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).startswith("lazyckpt.combinators.")


def test_the_commands_are_the_two_and_name_what_there_is() -> None:
    text = README.read_text("utf-8")
    assert [block.strip() for block in blocks(text, "sh")] == COMMANDS
    assert set(re.findall(r"^```(\w+)", text, re.MULTILINE)) == {"python", "text", "sh"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "lazyckpt" in project["scripts"]
    assert "pytest>=8" in project["optional-dependencies"]["test"]


def test_the_first_screen_is_twelve_lines_of_code() -> None:
    first = next(blocks(README.read_text("utf-8"), "python"))
    assert len([line for line in first.splitlines() if line]) == 12


if __name__ == "__main__":
    README.write_text(with_catalogue(with_results(README.read_text("utf-8"))), "utf-8")

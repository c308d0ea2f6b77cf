"""The README: its code runs and prints what it shows, its catalogue is that of the docstrings.

`python tests/test_readme.py` writes results and catalogue anew.
"""

from __future__ import annotations

import inspect
import io
import re
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import lazyckpt as lz
from lazyckpt.core.call import Combinator

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
COMMANDS = ["pip install -e . && lazyckpt demo", 'pip install -e ".[test]" && pytest']

FIELDS = {
    "State": "state",
    "Resume": "a resume",
    "Random access": "random access",
    "Rank-free": "rank-free",
}

CODE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n.*?^```\n)?", re.DOTALL | re.MULTILINE)
TABLE = re.compile(r"^\| name \|.*\n(?:\|.*\n)+", re.MULTILINE)
NAME = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)


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
    head = ["name", "gives", *FIELDS.values()]
    rows = [head, ["---"] * len(head), *map(row, found)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def row(combinator: Combinator) -> list[str]:
    text = inspect.cleandoc(combinator.public.__doc__ or "")
    first = text.partition("\n")[0].removesuffix(".")
    return [f"`{combinator.name}`", first, *(field(combinator.name, text, f) for f in FIELDS)]


def field(name: str, text: str, label: str) -> str:
    """What stands after `label: ` in a docstring, to the next label or blank line."""
    found = re.search(
        rf"^{label}: (.*?)(?=\n[A-Z][\w -]*: |\n\n|\Z)", text, re.DOTALL | re.MULTILINE
    )
    assert found, f"the docstring of {name} has no line '{label}: ...'"
    return " ".join(found[1].split()).removesuffix(".").replace("|", "\\|")


def blocks(text: str, language: str) -> Iterator[str]:
    for block in re.finditer(r"^```(\w*)\n(.*?)^```\n", text, re.DOTALL | re.MULTILINE):
        if block[1] == language:
            yield block[2]


def test_the_code_prints_what_the_readme_shows() -> None:
    text = README.read_text("utf-8")
    assert len(CODE.findall(text)) == text.count("```python")
    assert with_results(text) == text


def test_a_wrong_result_is_noticed() -> None:
    wrong = "```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n"
    assert with_results(wrong) == wrong.replace("3", "2")
    assert with_results("```python\nprint(1)\n```\n") != "```python\nprint(1)\n```\n"


def test_the_catalogue_is_that_of_the_docstrings() -> None:
    text = README.read_text("utf-8")
    assert len(TABLE.findall(text)) == 1
    assert with_catalogue(text) == text


def test_exports_registry_and_catalogue_agree() -> None:
    exported = {name for name in lz.__all__ if is_combinator(getattr(lz, name))}
    listed = NAME.findall(README.read_text("utf-8"))
    assert exported - {"mix_counts", "stack"} == set(lz.registry) == set(listed)
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

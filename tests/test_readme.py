"""The README: its code runs and prints what it shows, and what it links to is there.

`python -m tests.test_readme` writes results anew.
"""

from __future__ import annotations

import io
import re
import tomllib
from contextlib import redirect_stdout
from typing import Any

import pytest

import lazyckpt as lz
from tests.pages import NOTEBOOKS, README, ROOT, blocks, links

COMMANDS = [
    "pip install -e . && lazyckpt demo",
    'pip install -e ".[test]" && pytest',
    'pip install -e ".[test-world]" && pytest tests/world',
    'pip install -e ".[docs]" && sphinx-build -W -j auto notebooks build/docs',
]

PEERS = NOTEBOOKS / "explanation/peers.md"
CODE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n.*?^```\n)?", re.DOTALL | re.MULTILINE)


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


def orphans(text: str) -> list[str]:
    """The outputs, by their first line, that no code stands before."""
    alone = CODE.sub("", text)
    return [body.partition("\n")[0] for body in blocks(alone, "text")]


def test_the_code_prints_what_the_readme_shows() -> None:
    for package in ("torch", "sklearn"):
        pytest.importorskip(package, reason=f"an example of the README wants {package}")
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


def test_it_is_a_page_of_sixty_seconds() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= 150


def figures(text: str) -> dict[str, dict[str, str]]:
    """The cells of the tables between the marks, by row and by column."""
    found: dict[str, dict[str, str]] = {}
    head: list[str] = []
    for line in (
        text.partition("<!-- peers -->")[2].partition("<!-- end of peers -->")[0].split("\n")
    ):
        name, *cells = line.strip("| ").split(" | ")
        if name == "measured":
            head = cells
        elif line.startswith("|") and name != "---":
            found[name] = dict(zip(head, cells, strict=True))
    return found


def test_its_figures_are_those_of_the_comparison() -> None:
    few, all_rows = (figures(each.read_text("utf-8")) for each in (README, PEERS))
    assert len(few) >= 8
    for name, cells in few.items():
        said = {library: cell for library, cell in cells.items() if cell != "-"}
        assert said.items() <= all_rows[name].items()
    assert any("**" not in cells["lazyckpt"] for cells in few.values())  # where others are ahead


def test_what_it_links_to_is_there() -> None:
    found = links(README.read_text("utf-8"))
    assert {"notebooks/tutorial.md", "notebooks/images/demo.svg"} <= set(found)
    assert [link for link in found if not (ROOT / link).exists()] == []


def test_the_commands_are_the_four_and_name_what_there_is() -> None:
    text = README.read_text("utf-8")
    assert [block.strip() for block in blocks(text, "sh")] == COMMANDS
    assert set(re.findall(r"^```(\w+)", text, re.MULTILINE)) == {"python", "text", "sh"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "lazyckpt" in project["scripts"]
    extras = project["optional-dependencies"]
    assert "pytest>=8" in extras["test"]
    assert "torch==2.13.0" in extras["test-world"]
    assert "sphinx>=8.1" in extras["docs"]


def test_a_whole_training_script_is_short() -> None:
    first = next(blocks(README.read_text("utf-8"), "python"))
    assert len([line for line in first.splitlines() if line]) <= 23


if __name__ == "__main__":
    README.write_text(with_results(README.read_text("utf-8")), "utf-8")

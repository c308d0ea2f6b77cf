"""No page has turns of phrase that readers stumble over, but for a few that are known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.dialect import dialect, prose
from tests.pages import NOTEBOOKS, README

KNOWN = {  # how many there may be; docstrings of the package are not looked at yet
    "explanation/values.md": 2,  # the words of a diagram's mark
    "reference/catalogue.md": 10,  # docstrings
}
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
    found = [*dialect(text_of(page))]
    name = str(page.relative_to(NOTEBOOKS)) if page != README else page.name
    assert len(found) <= KNOWN.get(name, 0), found


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

"""Tables as text of any width, and as HTML."""

from __future__ import annotations

import pytest

from lazyckpt.pictures.tables import Table
from tests.pictures.test_figures import Page

COUNTS = Table(
    ("stage", "items", "what"),
    [("source", "1,000", "a"), ("  map", "2", "b <i>"), ("batch", "30", "some words that go on")],
    right=("items",),
)


def test_columns_are_as_wide_as_what_is_in_them() -> None:
    assert COUNTS.to_text(margin="> ").splitlines() == [
        "> stage   items  what",
        "> source  1,000  a",
        ">   map       2  b <i>",
        "> batch      30  some words that go on",
    ]


def test_the_last_column_is_cut_while_there_is_room() -> None:
    lines = COUNTS.to_text(32).splitlines()
    assert lines[-1] == "batch      30  some words tha..."
    assert COUNTS.to_text(31).splitlines()[-1] == "batch      30  some words th..."


def test_a_narrow_table_has_a_block_for_each_row() -> None:
    assert COUNTS.to_text(30).splitlines() == [
        "source",
        "  items 1,000, what a",
        "  map",
        "    items 2, what b <i>",
        "batch",
        "  items 30, what some words",
        "  that go on",
    ]


def test_rows_have_headings() -> None:
    table = Table(("stage", "state"), ["here", ("map", "3 B"), "there", ("batch", "")])
    assert table.to_text().splitlines() == [
        "stage  state", "here:", "map    3 B", "there:", "batch",
    ]  # fmt: skip
    assert table.to_text(9).splitlines() == [
        "here:", "  map", "    state 3 B", "there:", "  batch",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [1, 16, 40, 100])
def test_text_that_is_rude_stays_in_its_place(width: int) -> None:
    rude = Table(("name", "value"), [("a\nb\x1b[31m", "\u202e" + "x" * 999)])
    lines = rude.to_text(width).splitlines()
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) <= max(width, 24)


def test_html_has_the_same_texts_and_a_bar_for_each_share() -> None:
    found = Table(COUNTS.names, COUNTS.rows, ("items",), shares=[0.25, 0.5, 0]).to_html("stage")
    page = Page(found)
    assert [text for text in page.texts if text.strip()] == [
        "stage", "items", "what", "source", "1,000", "a", "map", "2", "b <i>",
        "batch", "30", "some words that go on",
    ]  # fmt: skip
    assert [found.count(f"width:{each}%") for each in ("25.0", "50.0", "0.0")] == [1, 1, 1]
    assert "<i>" not in found

"""Figures by rich, and what tells that it isn't there."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

import lazyckpt as lz
from tests.helpers import printed_without
from tests.pictures.cases import PIPELINES, mixture


def printed(value: Any, width: int) -> str:
    file = StringIO()
    Console(width=width, file=file).print(value)
    return file.getvalue()


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("width", [40, 100])
def test_rich_shows_the_stages(name: str, width: int) -> None:
    text = printed(PIPELINES[name](), width)
    assert text.startswith("Pipeline")
    assert max(map(len, text.split("\n"))) <= width
    assert all(char.isprintable() for char in text.replace("\n", ""))


def test_rich_shows_states_runs_and_differences() -> None:
    pipeline = lz.source(range(40), name="[red]web[/red]") | lz.batch(4)
    run = lz.run(pipeline)
    before = run.state
    next(run)
    assert "Run  1 item  epoch 0" in printed(run, 80)
    assert "10%" in printed(run, 80)
    assert "[red]web[/red]" in printed(run, 80)
    assert "item 0 → 4" in printed(lz.diff(before, run.state), 80)
    assert "epoch 0 · item 4" in printed(run.state, 80)
    assert "0.7" in printed(mixture(), 80)


def test_nothing_needs_rich() -> None:
    before = (
        "p = lz.source([1]) | lz.map(str)\n"
        "assert p._repr_html_(); print(lz.tree(p)); print(lz.head(p))"
    )
    found = printed_without("rich", "p.__rich__()", before)
    assert "map(str)" in found
    assert 'pip install "lazyckpt[rich]"' in found

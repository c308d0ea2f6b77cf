"""Results that are printed fit the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import lazyckpt as lz
from tests.pictures.cases import PIPELINES

RUN = [name for name in PIPELINES if name != "doubled"]  # which has millions of stages


def results(pipeline: lz.Pipeline[Any]) -> Iterator[Any]:
    run = lz.run(pipeline)
    before = run.state
    run.advance(1)
    yield run.state
    yield lz.diff(before, run.state)
    yield lz.resume_cost(pipeline, run.state)
    yield lz.head(pipeline)
    yield lz.profile(pipeline, 2)
    yield lz.tree(pipeline)
    yield lz.explain(pipeline)
    yield lz.explain(pipeline, lz.processes(2), ranks=8)


@pytest.mark.parametrize("name", RUN)
@pytest.mark.parametrize("width", [40, 80])
def test_printed_results_fit_a_terminal(
    monkeypatch: pytest.MonkeyPatch, name: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for each in results(PIPELINES[name]()):
        assert [line for line in str(each).split("\n") if len(line) > width] == [], type(each)


def test_a_line_that_fits_is_as_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = lz.source(range(9)) | lz.shuffle(4, seed=0) | lz.batch(2)
    wide = [str(each) for each in (lz.init(pipeline), lz.diff(*states(pipeline)))]
    monkeypatch.setenv("COLUMNS", "50")
    assert [str(each) for each in (lz.init(pipeline), lz.diff(*states(pipeline)))] == wide


def states(pipeline: lz.Pipeline[Any]) -> tuple[lz.State, lz.State]:
    return lz.init(pipeline), lz.state_at(pipeline, 2)


def test_a_stage_too_long_for_the_terminal_has_its_position_below(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    assert repr(lz.state_at(lz.source(range(9)) | lz.shuffle(4, seed=0), 3)).split("\n") == [
        "State(items=3)",
        "  source(length=9)",
        "    epoch 0 · item 0",
        "  shuffle(buffer_size=4,",
        "      seed=0)",
        "    3",
    ]

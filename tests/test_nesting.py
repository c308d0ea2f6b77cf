"""Pipelines within pipelines, as deep as they may be."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lazyckpt as lz

pytestmark = pytest.mark.usefixtures("_limit")
MOST = 1000 // 15


@pytest.fixture
def _limit() -> Iterator[None]:
    """Python's own, whatever has been imported."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


def nested(join: Callable[..., lz.Pipeline[Any]], depth: int) -> lz.Pipeline[Any]:
    parts = [lz.source(range(number, number + 2)) for number in range(depth + 1)]
    return functools.reduce(join, parts)


@pytest.mark.parametrize("join", [lz.concat, lz.zip])
def test_as_deep_as_the_recursion_limit_allows(join: Callable[..., lz.Pipeline[Any]]) -> None:
    pipeline = nested(join, MOST)
    items = list(pipeline)
    state = lz.state_at(pipeline, 1).to_json()
    assert list(lz.run(pipeline, state)) == items[1:]
    assert list(lz.run(pipeline, on_error="skip")) == items
    assert hash(pipeline) == hash(nested(join, MOST))
    for shown in (pipeline, lz.explain(pipeline)):
        assert str(shown).count("source(") == MOST + 1
    profiled = lz.profile(pipeline)
    assert sum(stage.name.startswith("source(") for stage in profiled.stages) == MOST + 1
    remarks = str(profiled).count("source(") - (MOST + 1)
    assert remarks in (0, 1)  # which names the slowest
    with pytest.raises(lz.ArgumentError, match=f"pipelines nested {MOST + 1} deep are too many"):
        join(pipeline, lz.source([1]))


def test_skipping_behind_the_end_asks_each_pipeline_once() -> None:
    pipeline = nested(lz.zip, MOST)
    assert pipeline.machine.skip is not None
    position, passed = pipeline.machine.skip(pipeline.machine.init(0), 9)
    assert passed == 2
    run = lz.run(pipeline)
    assert len(list(run)) == 2
    assert run.state.position == position

"""`Explanation`: each stage with its modes, place and bytes, as text and HTML."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from rich.console import Console

import lazyckpt as lz
from lazyckpt.state.codec import layers
from tests.helpers import Streamed, Unread, may_not_be_read, workers

EXECUTORS = (None, lz.threads(1), lz.threads(3), lz.processes(2))
STREAM = lz.source(Streamed(may_not_be_read))


def long() -> lz.Pipeline[Any]:
    found = lz.source(Unread())
    for _ in range(200):
        found = found | lz.map(abs)
    return found


def wide() -> lz.Pipeline[Any]:
    branches = [lz.source(Unread()) | lz.map(str) | lz.shuffle(9, seed=n) for n in range(50)]
    return lz.mix(branches, [1] * 50, seed=50) | lz.batch(8)


def have_numbers_and_places(pipeline: lz.Pipeline[Any], executors: Iterable[Any]) -> None:
    state = lz.init(pipeline)
    numbers = {each.stage for each in layers(state.stages, state.position)}
    for executor in executors:
        found = lz.explain(pipeline, executor)
        inner = [each.stage for each in found.stages]  # a digest stands for all of a pipeline
        assert all(any(f"{each}.".startswith(f"{n}.") for each in inner) for n in numbers)
        assert all(each.where for each in found.stages)
        parts = {line.partition("  in ")[2] for line in found.layout.splitlines()}
        assert {each.where.partition("in ")[2] for each in found.stages} <= {*parts}
        top = [each for each in found.stages if "[" not in each.stage]
        assert [each.name for each in top] == [call.name for call in pipeline.calls]
        assert sum(each.state_bytes for each in top) <= len(state.to_json())


@pytest.mark.parametrize("made", [long, wide])
def test_it_reads_nothing_and_starts_nothing(made: Any) -> None:
    reads_and_starts_nothing(made, EXECUTORS)


def reads_and_starts_nothing(made: Any, executors: Iterable[Any]) -> None:
    before = {*workers()}
    for pipeline in (made(), STREAM | lz.shuffle(9, seed=0), lz.zip(STREAM, STREAM) | lz.batch(2)):
        for executor in executors:
            found = lz.explain(pipeline, executor)
            assert str(found)
            assert found._repr_html_()
    assert {*workers()} <= before


def test_modes_are_those_that_a_stage_has_there() -> None:
    table = lz.source(range(9)) | lz.shuffle(1000, seed=0) | lz.block_shuffle(4, seed=1)
    modes = [each.modes for each in lz.explain(table | lz.filter(bool)).stages]
    assert modes == [("flow", "seek", "vectorized")] * 3 + [("flow",)]
    assert [each.modes for each in lz.explain(STREAM | lz.batch(2)).stages] == [("flow",)] * 2


@pytest.mark.parametrize("width", [40, 79, 80, 99, 100, 200])
def test_it_fits(width: int) -> None:
    for made in (long, wide):
        found = lz.explain(made(), lz.threads(2))
        lines = found.to_text(width).splitlines()
        assert max(map(len, lines)) <= width
        assert len(lines) < 600
        assert "more stages" in found.to_text(width)


def test_html_escapes_what_users_write() -> None:
    pipeline = lz.source([1], name="<script>alert(1)</script>") | lz.filter(bool)
    found = lz.explain(pipeline | lz.shard(num_shards=2, index=0))._repr_html_()
    assert "<script>" not in found
    assert "&lt;script&gt;" in found
    assert "every rank" in found


def test_rich_prints_it_in_as_many_columns_as_there_are() -> None:
    console = Console(width=40, no_color=True)
    with console.capture() as capture:
        console.print(lz.explain(lz.source([[1]]) | lz.map(sum)))
    assert capture.get().endswith(lz.explain(lz.source([[1]]) | lz.map(sum)).to_text(40) + "\n")
    assert "[[1]]" in capture.get()

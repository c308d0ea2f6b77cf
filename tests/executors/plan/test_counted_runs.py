"""Runs whose positions are counted, beside those whose positions are taken one by one."""

from __future__ import annotations

import pickle
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.executors.plan import runs
from lazyckpt.executors.plan.counted_runs import CountedPositions
from lazyckpt.executors.plan.handlers import Outcome
from lazyckpt.executors.plan.runs import ItemRun, RunReader
from lazyckpt.executors.plan.segments import split_pipeline
from tests.executors.plan.test_runs import inside, lazily, number, pair, some, third

STAGES: list[Any] = [
    lz.filter(third),
    lz.flat_map(some),
    lz.flat_map(lazily),
    lz.map(pair) | lz.unbatch(),
    lz.map(number),
]
stages = st.lists(st.sampled_from(STAGES), min_size=1, max_size=4)
ends = st.sampled_from([lz.filter(bool), lz.flat_map(some), lz.unbatch()])


def reader_of(pipeline: lz.Pipeline[Any]) -> RunReader:
    (segment,) = split_pipeline(pipeline, workers=2, can_stream=True)
    assert segment.kind == "runs"
    return RunReader(segment.calls, segment.seekable)


def parts(reader: RunReader, run: ItemRun, *, is_anew: bool) -> list[Outcome]:
    """A run in its parts, each with its own reader where it `is_anew`."""
    found = [reader(run)]
    while found[-1].left:
        assert found[-1].positions
        run = run._replace(position=found[-1].positions[-1], upstream=found[-1].left)
        found.append((reader.fresh() if is_anew else reader)(run))
    return found


def told(outcomes: list[Outcome]) -> list[Any]:
    return [(each.items, [*(each.positions or ())], each.left, each.behind) for each in outcomes]


def joined_up(several: list[Any]) -> lz.Pipeline[Any]:
    pipeline: Any = lz.source(range(9)) | lz.shuffle(seed=1)
    for each in several:
        pipeline = pipeline | each
    return pipeline | lz.filter(bool)


@given(stages, st.integers(1, 7), st.booleans(), st.integers(0, 30))
def test_they_are_those_taken_one_by_one(
    several: list[Any], most: int, is_anew: bool, cut: int
) -> None:
    pipeline = joined_up(several)
    states = [lz.init(pipeline), *[state for _, state in lz.run(pipeline).with_state()]]
    start = states[min(cut, len(states) - 1)].position
    reader, plain = reader_of(pipeline), reader_of(pipeline)
    plain._is_counted = False
    skip = reader._layers.upstream.skip
    assert skip is not None
    if left := skip(reader._layers.place(start), 99)[1]:
        run = ItemRun(start, left, most)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(runs, "_PART_SECONDS", inf)  # a busy machine would cut them anywhere
            counted = parts(reader, run, is_anew=is_anew)
            one_by_one = parts(plain, run, is_anew=is_anew)
        assert any(isinstance(each.positions, CountedPositions) for each in counted)
        assert told(counted) == told(one_by_one)


def test_they_are_small_however_many_there_are() -> None:
    numbers = lz.source(range(4000))
    for pipeline in (numbers | lz.filter(keeps), numbers | lz.map(pair) | lz.unbatch()):
        outcome = reader_of(pipeline)(ItemRun(pipeline.machine.init(0), 4000))
        assert len(outcome.items) >= 4000
        one = len(pickle.dumps(outcome._replace(positions=None)))
        assert len(pickle.dumps(outcome)) < 6 * one


def test_those_of_a_filter_that_keeps_all_are_a_range() -> None:
    pipeline = lz.source(range(4000)) | lz.filter(keeps)
    outcome = reader_of(pipeline)(ItemRun(pipeline.machine.init(0), 4000))
    assert len(pickle.dumps(outcome.positions)) < 300


def keeps(x: int) -> bool:
    return True


def test_positions_within_pipelines_are_no_counts() -> None:
    pipeline = lz.source(range(9)) | lz.filter(bool) | lz.flat_map(inside)
    reader, plain = reader_of(pipeline), reader_of(pipeline)
    plain._is_counted = False
    run = ItemRun(pipeline.machine.init(0), 9)
    assert told([reader(run)]) == told([plain(run)])
    assert not reader._is_counted


def test_an_error_leaves_what_came_before() -> None:
    pipeline = lz.source(range(9)) | lz.flat_map(some) | lz.filter(fails)
    outcome = reader_of(pipeline)(ItemRun(pipeline.machine.init(0), 9))
    expected = [x for x in range(5) for _ in range(x % 4)]
    assert outcome.items == expected
    assert outcome.failure is not None
    assert "filter(fails)" in outcome.failure.places
    assert len(outcome.positions or ()) == len(expected) + 1


def fails(x: int) -> bool:
    if x == 5:
        raise ValueError(x)
    return True

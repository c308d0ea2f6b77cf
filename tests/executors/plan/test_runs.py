"""Workers on what makes any number of items of one, and on the parts of what joins pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.executors.plan import runs
from lazyckpt.executors.plan.segments import split_pipeline
from lazyckpt.failures.skip_log import SkipLog
from lazyckpt.failures.skipping import skipping
from tests.executors.faults import QUICK

pytestmark = pytest.mark.usefixtures("nothing_left")


def number(x: Any) -> int:
    return x if type(x) is int else crc32(repr(x).encode())


def third(x: Any) -> Any:
    return number(x) % 3


def some(x: Any) -> list[Any]:
    return [x] * (number(x) % 4)


def lazily(x: Any) -> Iterator[Any]:
    yield from range(number(x) % 3)


def inside(x: Any) -> lz.Pipeline[int]:
    return lz.source(range(number(x) % 5)) | lz.filter(third)


def pair(x: Any) -> list[Any]:
    return [x, 7]


ITEMWISE: list[Any] = [
    lz.filter(third),
    lz.filter(bool),
    lz.flat_map(some),
    lz.flat_map(lazily),
    lz.flat_map(inside),
    lz.map(pair) | lz.unbatch(),
    lz.map(number),
    lz.tap(number),
]
TAILS: list[Any] = [
    lz.map(number),
    lz.batch(2),
    lz.enumerate(),
    lz.random_map(lambda rng, x: (rng.integers(9), x), seed=0),
    lz.shuffle(3, seed=1),
    lz.take_while(lambda x: number(x) != 11),
    lz.map(number) | lz.sliding_window(2) | lz.starmap(max),
    lz.repeat(2),
    lz.skip(2),
    lz.shard(num_shards=2, index=1),
    lz.group_by(third),
    lz.interleave_map(some, cycle_length=2),
    lz.map(number) | lz.flat_map(some),
]
SOURCES: list[lz.Pipeline[Any]] = [
    lz.source(range(13)),
    lz.source([*range(9)]) | lz.shuffle(seed=0) | lz.repeat(2),
    lz.source(range(12)) | lz.map(number) | lz.shard(num_shards=2, index=0),
    lz.source(range(8)) | lz.take(0),
    lz.zip(lz.source(range(6)), lz.source(range(7))) | lz.starmap(max),
]
parts = st.builds(
    lambda source, stages, tail: _joined_up(source, [*stages, *tail]),
    st.sampled_from(SOURCES),
    st.lists(st.sampled_from(ITEMWISE), max_size=3),
    st.lists(st.sampled_from(TAILS[:4]), max_size=1),
)


def _joined_up(source: lz.Pipeline[Any], stages: list[Any]) -> lz.Pipeline[Any]:
    for stage in stages:
        source = source | stage
    return source


def joins(several: list[lz.Pipeline[Any]]) -> st.SearchStrategy[lz.Pipeline[Any]]:
    weights = list(range(1, 1 + len(several)))
    choices = lz.source([*range(len(several))])
    return st.sampled_from(
        [
            lz.concat(*several),
            lz.interleave(*several),
            lz.zip(*several) | lz.flat_map(list),
            lz.mix(several, weights, seed=3),
            lz.mix(several, weights, deterministic=True),
            lz.multiplex(choices, several),
        ]
    )


graphs = st.builds(
    _joined_up,
    st.one_of(parts, st.lists(parts, min_size=1, max_size=3).flatmap(joins)),
    st.lists(st.sampled_from(TAILS + ITEMWISE), max_size=2),
)


def whole(pipeline: lz.Pipeline[Any]) -> list[Any]:
    try:
        return list(lz.run(pipeline).with_state())
    except lz.PipelineError:  # of a control that asks for more than there is
        reject()


# How runs come: each in one part; each item in one; and by whoever begins the run anew.
PARTS = {
    "whole": {},
    "cut": {"_PART_SECONDS": 0.0},
    "begun anew": {"_PART_SECONDS": 0.0, "_RUN_BYTES": 1, "_OPEN": 0},
}


@pytest.mark.parametrize("name", ["threads2", "futures"])
@pytest.mark.parametrize("parts", PARTS)
@given(graphs, st.data())
def test_items_and_states_are_those_of_inline(
    name: str, parts: str, pipeline: lz.Pipeline[Any], data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patched, ThreadPoolExecutor(2) as pool:
        for constant, value in PARTS[parts].items():
            patched.setattr(runs, constant, value)
        executor = QUICK.get(name) or lz.futures(pool, buffer_size=1)
        expected = whole(pipeline)
        with lz.run(pipeline, executor=executor) as run:
            assert list(run.with_state()) == expected
            end = run.state
        inline = lz.run(pipeline)
        assert list(inline) == [item for item, _ in expected]
        assert end == inline.state
        cut = data.draw(st.integers(0, len(expected)))
        state = expected[cut - 1][1] if cut else lz.init(pipeline)
        with lz.run(pipeline, state, executor=executor) as run:
            assert list(run.with_state()) == expected[cut:]


@settings(max_examples=20)
@given(graphs)
def test_so_they_are_under_processes(pipeline: lz.Pipeline[Any]) -> None:
    expected = whole(pipeline)
    with lz.run(pipeline, executor=QUICK["fork2"]) as run:
        assert list(run.with_state()) == expected


def fails(x: Any) -> Any:
    if number(x) % 5 == 3:
        raise ValueError(x)
    return x


def partly(x: Any) -> Iterator[Any]:
    yield x
    yield fails(x)


FAILING: list[Any] = [lz.map(fails), lz.filter(fails), lz.flat_map(partly), lz.tap(fails)]
fallible = st.builds(
    _joined_up,
    st.sampled_from(SOURCES),
    st.lists(st.sampled_from(FAILING + ITEMWISE), min_size=1, max_size=4),
)
mixtures = st.lists(fallible, min_size=1, max_size=3).flatmap(
    lambda parts: st.sampled_from(
        [lz.mix(parts, [1] * len(parts), seed=1), lz.interleave(*parts), lz.concat(*parts)]
    )
)
fallible_graphs = st.builds(
    _joined_up,
    st.one_of(fallible, mixtures),
    st.lists(st.sampled_from([lz.map(fails), lz.batch(2), lz.enumerate()]), max_size=2),
)


def told(
    pipeline: lz.Pipeline[Any], state: Any = None, executor: lz.Executor | None = None
) -> list[Any]:
    """Items and the end, each with the JSON of the state and what it says of those left out."""
    with lz.run(pipeline, state, executor=executor, on_error="skip") as run:
        found = [(item, state.to_json(), state.skipped.first) for item, state in run.with_state()]
        return [*found, (None, run.state.to_json(), run.state.skipped.first)]


@pytest.mark.parametrize("parts", PARTS)
@settings(max_examples=20)
@given(fallible_graphs, st.data())
def test_what_fails_is_left_out_as_by_inline(
    parts: str, pipeline: lz.Pipeline[Any], data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        for constant, value in PARTS[parts].items():
            patched.setattr(runs, constant, value)
        expected = told(pipeline)
        assert told(pipeline, None, QUICK["threads2"]) == expected
        cut = data.draw(st.integers(0, len(expected) - 1))
        state = expected[cut - 1][1] if cut else None
        assert told(pipeline, state, QUICK["threads2"]) == expected[cut:]


@settings(max_examples=5)
@given(fallible_graphs)
def test_so_it_is_by_processes(pipeline: lz.Pipeline[Any]) -> None:
    assert told(pipeline, None, QUICK["fork2"]) == told(pipeline)


def test_stages_that_leave_items_out_are_runs() -> None:
    stages = lz.map(fails) | lz.flat_map(partly) | lz.filter(fails)
    for first in (lz.map(number), lz.flat_map(partly)):
        chain = skipping(lz.source(range(9)) | first | lz.filter(fails) | lz.tap(fails), SkipLog())
        assert [each.kind for each in split_pipeline(chain, workers=2, can_stream=True)] == ["runs"]
    chain = skipping(lz.source(range(9)) | stages, SkipLog())
    kinds = [each.kind for each in split_pipeline(chain, workers=2, can_stream=True)]
    assert kinds == ["runs", "local"]  # what comes before an expansion has no place within it

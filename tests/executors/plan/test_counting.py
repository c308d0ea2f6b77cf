"""Positions that are found by counting: those of reading, with nobody's functions called."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.executors.plan.counting import counting, rereader_of
from lazyckpt.executors.plan.handlers import Reader
from lazyckpt.failures.skip_log import SkipLog
from lazyckpt.failures.skipping import skipping
from tests.executors.cases import Stream
from tests.executors.faults import QUICK

pytestmark = pytest.mark.usefixtures("nothing_left")


def refuse(x: Any) -> Any:
    raise AssertionError(x)


def same(x: Any) -> Any:
    return x


def mixed(fn: Any, sizes: list[int], **options: Any) -> lz.Pipeline[Any]:
    parts = [lz.source(range(n)) | lz.map(fn) | lz.batch(1 + n % 2) for n in sizes]
    return lz.mix(parts, [3, 1, 2][: len(sizes)], **{"seed": 1, **options})


def multiplexed(fn: Any, sizes: list[int]) -> lz.Pipeline[Any]:
    parts = [lz.source(range(n)) | lz.map(fn) for n in sizes]
    control = lz.source([n for n, size in enumerate(sizes) for _ in range(size)])
    return lz.multiplex(control | lz.shuffle(seed=2), parts)


JOINED: dict[str, Any] = {
    "mix": mixed,
    "of exact shares": lambda fn, sizes: mixed(fn, sizes, deterministic=True),
    "to the end of all": lambda fn, sizes: mixed(fn, sizes, stop="all_exhausted"),
    "for ever": lambda fn, sizes: mixed(fn, sizes, stop="never") | lz.shard(num_shards=2, index=1),
    "multiplex": multiplexed,
    "mixtures mixed": lambda fn, sizes: lz.mix(
        [mixed(fn, sizes), multiplexed(fn, sizes)], lambda t: [1 + t % 3, 1], seed=0
    ),
    "with a map behind": lambda fn, sizes: (
        mixed(fn, sizes) | lz.map(fn) | lz.tap(fn) | lz.shard(num_shards=2, index=0)
    ),
}
sizes = st.lists(st.integers(1, 40), min_size=1, max_size=3)


@pytest.mark.parametrize("name", JOINED)
@settings(max_examples=25)
@given(sizes, st.data())
def test_positions_are_those_of_reading(name: str, sizes: list[int], data: st.DataObject) -> None:
    read, counted = (JOINED[name](fn, sizes) for fn in (same, refuse))
    machine = counting(counted)
    assert machine is not None
    position, most = read.machine.init(0), 150
    flow = read.machine.flow(position)
    for _ in islice(flow, data.draw(st.integers(0, 30))):
        position = flow.snapshot()
    flow, again = read.machine.flow(position), machine.flow(position)
    items, counts = iter(flow), iter(again)
    for _ in range(most):
        assert again.snapshot() == flow.snapshot()
        next(counts, None)
        if next(items, None) is None:
            assert again.snapshot() == flow.snapshot()
            break


def streams(fn: Any, sizes: list[int], **options: Any) -> lz.Pipeline[Any]:
    parts = [lz.source(Stream(n)) | lz.map(fn) | lz.filter(fn) for n in sizes]
    others = [lz.source(range(9)) | lz.map(fn), lz.source(range(7)) | lz.flat_map(fn)]
    return lz.mix([*parts, *others], [2] * len(parts) + [1, 1], **{"seed": 1, **options})


RECORDED: dict[str, Any] = {
    "mix": streams,
    "of exact shares": lambda fn, sizes: streams(fn, sizes, deterministic=True),
    "to the end of all": lambda fn, sizes: streams(fn, sizes, stop="all_exhausted"),
    "for ever": lambda fn, sizes: streams(fn, sizes, stop="never") | lz.map(fn),
    "multiplex": lambda fn, sizes: lz.multiplex(
        lz.source([1, 0, 2, 1, 0, 0, 1]), [streams(fn, sizes), *[lz.source(Stream(5))] * 2]
    ),
}


def some(x: Any) -> Any:
    return [x, x]


@pytest.mark.parametrize("name", RECORDED)
@settings(max_examples=25)
@given(
    st.lists(st.integers(3, 20), min_size=1, max_size=2),
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
    st.data(),
)
def test_what_is_recorded_is_gone_through_again(
    name: str, sizes: list[int], counts: list[int], data: st.DataObject
) -> None:
    """In chunks of any size, from any place, with nobody's functions called."""
    read, again = (RECORDED[name](fn, sizes) for fn in (some, refuse))
    inline, reader, rereader = lz.run(read), Reader(read), rereader_of(again)
    for _ in islice(inline, data.draw(st.integers(0, 20))):
        pass
    start: Any = inline.state.position
    for count in counts:
        outcome = reader((start, count))
        places = [
            outcome.positions[0],
            *[state.position for _, state in islice(inline.with_state(), count)],
        ]
        assert outcome.recorded is not None
        assert len(outcome.items) == len(places) - 1
        found = rereader.positions(outcome.positions, outcome.recorded)
        asked = data.draw(st.lists(st.integers(0, len(places) - 1), max_size=6))
        assert [found(given) for given in asked] == [places[given] for given in asked]
        start = None
        if outcome.end is not None:
            break


LOOKED_AT = {
    "a filter": mixed(same, [3, 4]) | lz.filter(same),
    "a part that filters": lz.mix(
        [lz.source(range(9)) | lz.filter(same), lz.source(range(9))], [1, 1], seed=0
    ),
    "a stream": lz.mix([lz.source(Stream(3)), lz.source(range(9))], [1, 1], seed=0),
    "no choice": lz.zip(lz.source(Stream(3)), lz.source(range(9))),
    "a control of somebody's": lz.multiplex(
        lz.source([0, 0]) | lz.map(same), [lz.source(range(9)) | lz.map(same)]
    ),
    "a place of its own": mixed(same, [3, 4]) | lz.scan(lambda total, x: (total, x), 0),
    "items that may be left out": skipping(mixed(same, [3, 4]), SkipLog()),
}


@pytest.mark.parametrize("name", LOOKED_AT)
def test_what_depends_on_items_is_not_counted(name: str) -> None:
    assert counting(LOOKED_AT[name]) is None
    assert not rereader_of(LOOKED_AT[name]).is_counting


def test_a_chunk_has_the_positions_of_its_ends() -> None:
    pipeline = mixed(same, [40, 40, 40])
    found = Reader(pipeline)((pipeline.machine.init(0), 30)).positions
    assert found is not None
    assert [place for place, each in enumerate(found) if each is not None] == [0, 30]


ENDS = ["first_exhausted", "all_exhausted", "never"]


@pytest.mark.parametrize("stop", ENDS)
@pytest.mark.parametrize("name", ["threads", "threads2", "fork1", "fork2"])
def test_states_of_joined_streams_are_inlines(name: str, stop: Any) -> None:
    parts = [lz.source(range(n)) | lz.flat_map(range) | lz.filter(bool) for n in (9, 6, 12)]
    pipeline = lz.mix(
        [*parts, lz.source(range(30)) | lz.map(same)], [2, 2, 1, 1], seed=0, stop=stop
    )
    expected = list(islice(lz.run(pipeline).with_state(), 150))
    with lz.run(pipeline, executor=QUICK[name]) as run:
        assert list(islice(run.with_state(), 150)) == expected
    cut = len(expected) // 3
    with lz.run(pipeline, expected[cut - 1][1], executor=QUICK[name]) as run:
        assert list(islice(run.with_state(), 150 - cut)) == expected[cut:]


def fail(x: list[int]) -> list[int]:
    if 30 in x:
        raise ValueError(x)
    return x


@pytest.mark.parametrize("name", ["threads", "threads2", "fork2"])
@pytest.mark.parametrize("fn", [same, fail])
def test_states_are_inlines(name: str, fn: Any) -> None:
    """At every cut, up to an error too."""
    for behind in (lz.map(same), lz.filter(bool)):
        pipeline = mixed(same, [40, 60, 50]) | lz.map(fn) | behind
        assert until_error(pipeline, QUICK[name]) == until_error(pipeline)


def until_error(pipeline: lz.Pipeline[Any], executor: lz.Executor | None = None) -> list[Any]:
    found: list[Any] = []
    with lz.run(pipeline, executor=executor) as run:
        try:
            for item in run:
                found.append((item, run.state))
        except ValueError as error:
            found.append((str(error), run.state))
    return found

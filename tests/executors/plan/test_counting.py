"""Positions that are found by counting: those of reading, with nobody's functions called."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.executors.plan.counting import counting, rereader_of
from lazyckpt.executors.plan.handlers import Reader
from lazyckpt.failures.skip_log import SkipLog
from lazyckpt.failures.skipping import skipping
from tests.executors.cases import Stream
from tests.executors.faults import QUICK

pytestmark = pytest.mark.usefixtures("watchdog", "nothing_left")


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

"""How much is ready of each of the pipelines that are joined: what is needed next, and no more."""

from __future__ import annotations

import math
from collections import Counter
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.core.flow import Flow
from lazyckpt.executors.plan.handlers import Handler, Outcome
from lazyckpt.executors.plan.segments import split_pipeline
from lazyckpt.executors.plan.shares import Joined, Share
from lazyckpt.executors.planned import handlers_of, planned
from lazyckpt.executors.pools.pool import PendingTask, PrefetchGate, WorkerPool


class Asked(WorkerPool):
    """It does a task when its result is asked for, and says that this took a second."""

    def __init__(self, handlers: list[Handler], workers: int, buffer_size: int) -> None:
        super().__init__(workers, buffer_size)
        self.handlers = handlers
        self.begun: Counter[int] = Counter()  # items of each handler's tasks

    def submit(
        self, handler: int, payload: Any, size: int, after: PendingTask | None = None
    ) -> PendingTask:
        self.begun[handler] += size
        return PendingTask(self.generation, (handler, payload), size)

    def result(self, pending: PendingTask) -> Outcome:
        if pending.outcome is None:
            handler, payload = pending.handle
            pending.outcome = self.handlers[handler](payload)._replace(seconds=1.0)
        return pending.outcome

    def stop(self) -> None:
        self.generation += 1


def large(x: Any) -> Any:
    return np.empty(1 << 20, np.uint8)


def parts(count: int) -> list[lz.Pipeline[Any]]:
    return [lz.source(range(10_000), name=str(n)) | lz.map(large) for n in range(count)]


def choices(pipeline: lz.Pipeline[Any], count: int) -> list[int]:
    found = pipeline.machine.choices
    assert found is not None
    return list(islice(found(pipeline.machine.init(0), 0), count))


def control(width: int) -> lz.Pipeline[int]:
    return lz.source([n * n % 7 * n % width for n in range(3_000)]) | lz.shuffle(seed=5)


CHOSEN = {
    "skewed": lz.mix(parts(2), [0.9, 0.1], seed=0),
    "a rare one": lz.mix(parts(3), [0.499, 0.499, 0.002], seed=1),
    "by proportion": lz.mix(parts(3), [math.pi, 1, math.e], deterministic=True),
    "a schedule": lz.mix(parts(2), lambda t: [1, 0] if t // 40 % 2 else [1, 9], seed=1),
    "controlled": lz.multiplex(control(3), parts(3)),
}
WORKERS, BUFFER = 2, 14


def named(count: int) -> list[lz.Pipeline[Any]]:
    return [lz.source([n] * 40) for n in range(count)]


@pytest.mark.parametrize(
    ("pipeline", "first"),
    [
        (lz.mix(named(3), [5, 1, 3], seed=0, stop="all_exhausted"), 0),
        (lz.mix(named(3), [5, 1, 3], deterministic=True, stop="never"), 0),
        (lz.mix(named(3), [math.pi, 1, math.e], deterministic=True), 0),
        (lz.mix(named(2), lambda t: [t % 3, 1], seed=0), 0),
        (lz.multiplex(control(4) | lz.take(50), named(4)), 1),
    ],
)
@given(data=st.data())
def test_choices_are_of_those_that_give_the_items(
    pipeline: lz.Pipeline[Any], first: int, data: st.DataObject
) -> None:
    states = [lz.init(pipeline), *[state for _, state in islice(lz.run(pipeline).with_state(), 80)]]
    start = data.draw(st.sampled_from(states))
    items = list(islice(lz.run(pipeline, start), 50))
    behind = data.draw(st.integers(0, len(items)))
    found = pipeline.machine.choices
    assert found is not None
    chosen = islice(found(start.position, behind), len(items) - behind)
    assert [number - first for number in chosen] == items[behind:]


def begun(pipeline: lz.Pipeline[Any]) -> tuple[Flow[Any], Counter[int]]:
    """A flow whose items workers make, and how many of each part they were asked for."""
    segments = split_pipeline(pipeline | lz.filter(len), workers=WORKERS, can_stream=True)
    handlers = handlers_of(segments)
    pool = Asked(handlers, WORKERS, BUFFER)
    pool.is_driven = True
    machine = planned(segments, pool, PrefetchGate(False), None)
    return machine.flow(machine.init(0)), pool.begun


@pytest.mark.parametrize("name", CHOSEN)
def test_what_is_needed_next_is_ready(name: str) -> None:
    pipeline = CHOSEN[name]
    order = choices(pipeline, 400)
    first = min(order) if name != "controlled" else 1  # its control needs no workers
    flow, ready = begun(pipeline)
    for place, _ in enumerate(islice(flow, 300), 1):
        given = Counter(order[:place])
        held = {n: ready[n - first] - given[n] for n in {*order}}
        for number, wanted in Counter(order[place : place + BUFFER // 2]).items():
            assert held[number] >= wanted
        assert sum(held.values()) <= WORKERS + BUFFER + len(held)


def test_those_that_nothing_chooses_share_alike() -> None:
    joined = lz.interleave(*[each | lz.filter(len) for each in parts(3)])
    flow, ready = begun(lz.zip(joined, joined))
    assert len([*islice(flow, 9)]) == 9
    assert len(ready) == 6
    assert 3 < min(ready.values()) <= max(ready.values()) <= 3 + (WORKERS + BUFFER) // 6 + 1


def test_one_that_is_alone_has_all() -> None:
    flow, ready = begun(lz.concat(*[each | lz.filter(len) for each in parts(30)]))
    next(iter(flow))
    assert ready[0] > BUFFER
    assert len(ready) == 1


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(0, 99), st.integers(1, 99))
def test_shares_are_the_counts_of_the_next_choices(weights: list[int], taken: int, n: int) -> None:
    pipeline = lz.mix(parts(len(weights)), [*weights[1:], weights[0] + 1], seed=2)
    joined = Joined(Share())
    machine = joined.follow(pipeline.machine, pipeline.machine)
    numbers = range(len(weights))
    items = iter(machine.flow(machine.init(0)))
    assert len([*islice(items, taken)]) == taken
    wanted = Counter(choices(pipeline, taken + n)[taken:])
    assert {k: joined.part(k).of(n) for k in numbers} == {k: wanted[k] for k in numbers}
    many = [joined.part(k).of(1e6) for k in numbers]
    assert math.isclose(sum(many), 1e6)
    assert max(many) <= 1e6


def failing(t: int) -> list[float]:
    if t == 20:
        raise ValueError(t)
    return [1, 1]


@pytest.mark.parametrize(
    "pipeline",
    [
        lz.mix(parts(2), failing, seed=1),
        lz.multiplex(lz.source([0, 1] * 10 + ["no number"]), parts(2)),  # type: ignore[list-item]
    ],
)
def test_a_choice_that_fails_does_so_in_its_place(pipeline: lz.Pipeline[Any]) -> None:
    flow, _ = begun(pipeline)
    items = iter(flow)
    assert len([next(items) for _ in range(20)]) == 20
    with pytest.raises((ValueError, lz.PipelineError)):
        next(items)

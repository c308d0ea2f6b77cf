"""Pipelines of which another one chooses item by item: workers make what is chosen, and no more."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from threading import Semaphore
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.core.machine import End
from lazyckpt.executors.plan.chosen import choice_and_making
from lazyckpt.testing.laws import Stream
from tests.executors.cases import like_inline, until_error
from tests.executors.faults import EVERY, QUICK, Fault, each, kill

pytestmark = pytest.mark.usefixtures("nothing_left")

Pipe = lz.Pipeline[Any]


def name(x: Any) -> str:
    return f"<{x}>"


def number(x: Any) -> int:
    return x if type(x) is int else crc32(str(x).encode())  # no endless run of the same


def third(x: Any) -> int:
    return number(x) % 3


def some(x: Any) -> list[Any]:
    return [x] * third(x)


def noisy(rng: np.random.Generator, x: Any) -> Any:
    return x, int(rng.integers(1 << 20))


SOURCES: list[Pipe] = [
    lz.source(range(14)),
    lz.source([*range(30, 50)]) | lz.shuffle(seed=1),
    lz.source(range(7)) | lz.repeat(3) | lz.enumerate(),
    lz.count(100),
    lz.source(range(14)) | lz.filter(third),
    lz.source(Stream(range(60, 73))),
    lz.source(range(9)) | lz.flat_map(some) | lz.shuffle(4, seed=2),
]
STAGES: list[Any] = [
    lz.map(name),
    lz.batch(2),
    lz.random_map(noisy, seed=0),
    lz.map(number) | lz.filter(bool),
    lz.flat_map(some),
    lz.skip(2),
    lz.tap(name),
]
BEHIND: list[Any] = [lz.map(name), lz.filter(third), lz.batch(3), lz.enumerate(), lz.repeat(2)]


def piped(pipeline: Pipe, stages: list[Any]) -> Pipe:
    for stage in stages:
        pipeline = pipeline | stage
    return pipeline


arms = st.builds(piped, st.sampled_from(SOURCES), st.lists(st.sampled_from(STAGES), max_size=2))


def choosing(selector: Pipe, several: list[Pipe]) -> Pipe:
    if len(several) == 2:
        return lz.switch(selector | lz.map(third), *several)
    count = len(several)
    return lz.case(selector | lz.map(lambda x: number(x) % count), *several)


chosen = st.builds(choosing, arms, st.lists(arms, min_size=1, max_size=3))
joined = chosen | st.builds(lambda one, arm: lz.interleave(one, arm), chosen, arms)
nested = joined | st.builds(choosing, arms, st.lists(joined, min_size=2, max_size=2))
graphs = st.builds(piped, nested, st.lists(st.sampled_from(BEHIND), max_size=2))


@pytest.mark.parametrize("executor", ["threads2", "futures"])
@given(graphs, st.data())
def test_items_and_states_are_those_of_inline(
    executor: str, pipeline: Pipe, data: st.DataObject
) -> None:
    with ThreadPoolExecutor(2) as pool:
        many = QUICK.get(executor) or lz.futures(pool, buffer_size=1)
        inline = lz.run(pipeline)
        expected = list(islice(inline.with_state(), 60))
        with lz.run(pipeline, executor=many) as run:
            assert list(islice(run.with_state(), 60)) == expected
            assert run.state == inline.state
        cut = data.draw(st.integers(0, len(expected)))
        state = expected[cut - 1][1] if cut else lz.init(pipeline)
        with lz.run(pipeline, state, executor=many) as run:
            assert list(islice(run.with_state(), 60 - cut)) == expected[cut:]


@settings(max_examples=15)
@given(graphs)
def test_so_they_are_under_processes(pipeline: Pipe) -> None:
    expected = list(islice(lz.run(pipeline).with_state(), 60))
    with lz.run(pipeline, executor=QUICK["fork2"]) as run:
        assert list(islice(run.with_state(), 60)) == expected


def stepped(pipeline: Pipe, place: Any) -> tuple[Any, ...]:
    try:
        return pipeline.machine.step(place)
    except End as end:
        return (end.position,)


@given(chosen)
def test_in_two_it_steps_as_it_does_in_one(pipeline: Pipe) -> None:
    parts: Pipe = lz.Pipeline(choice_and_making(pipeline.calls[0]))
    place = pipeline.machine.init(0)
    for _ in range(30):
        step = stepped(pipeline, place)
        assert stepped(parts, place) == step
        place = step[0]


def picks(x: int) -> int:
    return x * x % 7 % 2


def selectors(count: int) -> dict[str, Pipe]:
    """Streams of choices: what can't be told before it is read."""
    return {
        "a stream": lz.source(Stream(range(count))) | lz.map(picks),
        "a filter": lz.source(range(2 * count)) | lz.filter(lambda x: x % 2) | lz.map(picks),
        "a buffer": lz.source(range(count))
        | lz.filter(name)
        | lz.shuffle(4, seed=0)
        | lz.map(picks),
    }


SELECTORS = [*selectors(0)]


@each(EVERY)
def test_every_cut_resumes_under_workers(executor: lz.Executor) -> None:
    low, high = lz.source(range(20)) | lz.map(name), lz.count(50) | lz.batch(2)
    pipeline = lz.case(lz.source(Stream(range(24))) | lz.map(picks), low, high) | lz.map(name)
    like_inline(pipeline, executor, 1 if executor in QUICK.values() else None)


class Here:
    """Where an item was made."""

    def __init__(self, arm: int) -> None:
        self.arm = arm

    def __call__(self, item: Any) -> tuple[int, int]:
        total = sum(range(40_000))  # so that it is worth to be sent
        return self.arm, total and os.getpid()


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("is_filtered", [False, True], ids=["all by index", "one a stream"])
def test_the_chosen_items_are_made_in_worker_processes(selector: str, is_filtered: bool) -> None:
    first = lz.source(range(80)) | lz.filter(name) if is_filtered else lz.source(range(80))
    several = [first | lz.map(Here(0)), lz.source(range(80)) | lz.shuffle(seed=1) | lz.map(Here(1))]
    for pipeline in (
        lz.case(selectors(60)[selector], *several),
        lz.switch(selectors(60)[selector], *several[::-1]) | lz.map(tuple) | lz.batch(1),
    ):
        with lz.run(pipeline | lz.enumerate(), executor=QUICK["fork2"]) as run:
            made = {tuple(np.ravel(item)) for _, item in run}
            for arm in (0, 1):
                assert len({process for number, process in made if number == arm}) == 2
            assert len({process for _, process in made}) == 2
            assert os.getpid() not in {process for _, process in made}


class Failing:
    """It fails for some items, and counts what it was asked for."""

    def __init__(self, *bad: int) -> None:
        self.bad, self.asked = bad, list[int]()

    def __call__(self, x: int) -> int:
        self.asked.append(x)
        if x in self.bad:
            raise ValueError(x)
        return x


@pytest.mark.parametrize("build", [lz.case, lambda s, a, b: lz.switch(s, b, a)])
def test_only_what_is_chosen_is_made(build: Any) -> None:
    low, high = Failing(), Failing()
    selector = [picks(x) for x in range(20)]
    several = [lz.source(range(20)) | lz.map(fn) | lz.batch(1) for fn in (low, high)]
    with lz.run(build(lz.source(Stream(selector)), *several), executor=lz.threads(2)) as run:
        assert list(run) == [[x] for x in range(20)]
    assert sorted(low.asked) == [x for x in range(20) if not selector[x]]
    assert sorted(high.asked) == [x for x in range(20) if selector[x]]


@each(QUICK)
def test_an_error_in_an_arm_comes_at_its_item(executor: lz.Executor) -> None:
    """With the notes that it has inline; of items that are not chosen there is none."""
    numbers = lz.source(range(20))
    selector = lz.source(Stream(map(picks, range(20)))) | lz.map(int)
    bad = next(x for x in range(9, 20) if picks(x))
    good = [x for x in range(20) if not picks(x)]
    pipeline = lz.case(selector, numbers, numbers | lz.map(Failing(bad, *good)))
    with lz.run(pipeline) as inline:
        expected, wanted = until_error(inline)
    with lz.run(pipeline, executor=executor) as run:
        found, error = until_error(run)
        assert (found, str(error)) == (expected, str(bad)) == ([*range(bad)], str(wanted))
        assert error.__notes__[0] == wanted.__notes__[0]
        assert "in map(" in error.__notes__[0]
        assert run.state == inline.state
        with pytest.raises(ValueError, match=str(bad)):  # who asks again has it made again
            next(run)


def test_a_worker_that_dies_in_an_arm_does_so_at_its_item(flag: Path) -> None:
    numbers = lz.source(range(20))
    bad = next(x for x in range(9, 20) if picks(x))
    selector = lz.source(Stream([picks(x) for x in range(20)]))
    pipeline = lz.case(selector, numbers, numbers | lz.map(Fault(flag, bad, kill)))
    with lz.run(pipeline, executor=QUICK["fork2"]) as run:
        found, error = until_error(run)
        assert isinstance(error, lz.WorkerDied)
        assert found == [*range(bad)]
        assert run.state == lz.state_at(pipeline, bad)
        assert list(run) == [*range(bad, 20)]


@each(QUICK)
@pytest.mark.parametrize("at", [0, 7])
def test_a_wrong_choice_comes_at_its_item(executor: lz.Executor, at: int) -> None:
    choices: list[Any] = [picks(x) for x in range(20)]
    choices[at] = 5
    numbers = lz.source(range(20)) | lz.map(name)
    pipeline = lz.case(lz.source(Stream(choices)), numbers, numbers)
    with lz.run(pipeline, executor=executor) as run:
        found, error = until_error(run)
        assert found == [name(x) for x in range(at)]
        assert "selector 5 is not within 2 pipelines" in str(error)
        assert "in case(" in error.__notes__[0]
        assert run.state == lz.state_at(pipeline, at)


@pytest.mark.parametrize("executor", [QUICK["threads2"], QUICK["fork2"]], ids=["threads", "fork"])
@pytest.mark.parametrize("lengths", [(5, 9, 9), (9, 5, 9), (9, 9, 5), (5, 5, 5), (9, 9, 0)])
@pytest.mark.parametrize("is_stream", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1)])
def test_it_ends_with_the_shortest_in_the_same_place(
    executor: lz.Executor, lengths: tuple[int, ...], is_stream: tuple[int, ...]
) -> None:
    ends = [
        lz.source(range(2 * n)) | lz.filter(lambda x: x % 2) if streams else lz.source(range(n))
        for n, streams in zip(lengths, is_stream, strict=True)
    ]
    selector, *several = [
        each | lz.map(fn) for each, fn in zip(ends, (picks, name, name), strict=True)
    ]
    pipeline = lz.case(selector, *several) | lz.enumerate()
    inline = lz.run(pipeline)
    expected = list(inline.with_state())
    assert len(expected) == min(lengths)
    with lz.run(pipeline, executor=executor) as run:
        assert list(run.with_state()) == expected
        assert run.state == inline.state
    with lz.run(pipeline, inline.state, executor=executor) as run:
        assert list(run) == []


@pytest.mark.parametrize("buffer_size", [1, 2, 7])
@pytest.mark.parametrize("count", [1, 4])
def test_all_arms_together_are_as_far_ahead_as_one_pipeline(buffer_size: int, count: int) -> None:
    begun = Semaphore(0)

    def large(x: int) -> Any:
        begun.release()
        return np.empty(1 << 20, np.uint8)

    several = [lz.source(range(80)) | lz.map(large) for _ in range(count)]
    pipeline = lz.case(lz.source(Stream([x % count for x in range(80)])), *several)
    with lz.run(pipeline, executor=lz.threads(2, buffer_size=buffer_size)) as run:
        made = 0
        for delivered, _ in enumerate(run, 1):
            while begun.acquire(blocking=False):
                made += 1
            most = buffer_size + 2 * max(1, buffer_size // 2)
            assert made - delivered <= 2 * most + buffer_size


def test_explain_says_where_each_part_is_made() -> None:
    several = [lz.source(range(9)) | lz.map(name), lz.source(Stream(range(9))) | lz.map(name)]
    pipeline = lz.case(lz.source(Stream([0, 1])) | lz.map(third), *several, lz.source([1, 2]))
    found = lz.explain(pipeline | lz.map(name) | lz.filter(name), lz.threads(2))
    lines = [line.split("  in ") for line in found.layout.split("\n")]
    assert [(stages.strip(), where) for stages, where in lines] == [
        ("source(<Stream of 2>)", "one thread beside the consumer; nothing ahead"),
        ("map(third)", "2 threads, item by item; 4 items ahead"),
        ("source(range(0, 9)) | map(name)", f"{CHOSEN}; 4 items ahead"),
        ("source(<Stream of 9>)", "one thread beside the consumer; nothing ahead"),
        ("map(name)", "2 threads, item by item; 4 items ahead"),
        ("source([1, 2])", f"{CHOSEN}; 4 items ahead"),
        ("case(..., ...)", "one thread beside the consumer; nothing ahead"),
        ("map(name)", "2 threads, item by item; 4 items ahead"),
        ("filter(name)", "one thread beside the consumer; 3 items ahead"),
    ]
    wheres = {stage.stage: stage.where for stage in found.stages}
    assert wheres["1"].startswith("in one thread")
    assert wheres["1[1].2"] == f"in {CHOSEN}; 4 items ahead"
    assert wheres["2"].startswith("in 2 threads, item by item")


CHOSEN = "2 threads, each chosen item from its own state"

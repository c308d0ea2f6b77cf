"""`on_error="skip"`: what fails is left out, everything else is as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.core.content import size
from lazyckpt.testing.laws import Stream
from tests.failures.cases import NUMBERS, Data, Rejecting, Sum, picky


def pickily(rng: np.random.Generator, x: int) -> tuple[int, float]:
    return picky(x), float(rng.random())


def twice(x: int) -> list[int]:
    return [picky(x), x]


def lazily(x: int) -> Any:
    yield x
    yield picky(x)


def total(items: list[int]) -> int:
    return picky(sum(items))


class Iterable:
    """One that has `__getitem__` too, and no length, as torch's have."""

    def __init__(self, items: Any) -> None:
        self.items = items

    def __iter__(self) -> Any:
        return iter(self.items)

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError


GOOD = [x for x in range(50) if x % 7 != 3]

SUMS = [sum(GOOD[i : i + 3]) for i in range(0, len(GOOD), 3)]

CASES: dict[str, tuple[lz.Pipeline[Any], list[Any] | None]] = {
    "map": (NUMBERS | lz.map(picky), GOOD),
    "maps": (NUMBERS | lz.map(picky) | lz.map(str) | lz.map(int), GOOD),
    "tap": (NUMBERS | lz.tap(picky), GOOD),
    "starmap": (NUMBERS | lz.map(lambda x: (x,)) | lz.starmap(picky), GOOD),
    "filter": (NUMBERS | lz.filter(lambda x: picky(x) or True), GOOD),
    "source": (lz.source(Data()), GOOD),
    "source, shuffled": (lz.source(Data()) | lz.shuffle(seed=0) | lz.map(picky), None),
    "random_map": (NUMBERS | lz.random_map(pickily, seed=1), None),
    "flat_map": (NUMBERS | lz.flat_map(twice), [y for x in GOOD for y in (x, x)]),
    "flat_map, within": (
        NUMBERS | lz.flat_map(lazily),
        [y for x in range(50) for y in ((x, x) if x in GOOD else (x,))],
    ),
    "interleave_map, within": (NUMBERS | lz.interleave_map(lazily, cycle_length=3), None),
    "then batch": (NUMBERS | lz.map(picky) | lz.batch(3, collate=sum), SUMS),
    "collate": (
        NUMBERS | lz.batch(5, collate=total),
        [s for i in range(0, 50, 5) if (s := sum(range(i, i + 5))) % 7 != 3],
    ),
    "shuffle behind": (NUMBERS | lz.map(picky) | lz.shuffle(seed=2) | lz.batch(2), None),
    "reservoir behind": (NUMBERS | lz.map(picky) | lz.shuffle(8, seed=2), None),
    "shard, repeat": (
        NUMBERS | lz.map(picky) | lz.shard(num_shards=2, index=1) | lz.repeat(2),
        [x for x in GOOD if x % 2] * 2,
    ),
    "concat": (lz.concat(NUMBERS | lz.map(picky), NUMBERS), GOOD + list(range(50))),
    "mix": (lz.mix([NUMBERS | lz.map(picky), NUMBERS], [1, 1], seed=0), None),
    "interleave": (
        lz.interleave(NUMBERS | lz.map(picky), NUMBERS),
        [x for n in range(50) for x in ([n, n] if n in GOOD else [n])],
    ),
    "nothing fails": (NUMBERS | lz.map(str) | lz.batch(4), None),
}


@pytest.mark.parametrize("name", CASES)
def test_what_fails_is_left_out(name: str) -> None:
    pipeline, expected = CASES[name]
    run = lz.run(pipeline, on_error="skip")
    steps = [(item, state.to_json()) for item, state in run.with_state()]
    items = [item for item, _ in steps]
    assert expected is None or items == expected
    assert (run.skipped == 0) == (name == "nothing fails")
    for cut in range(0, len(steps), 5):
        again = lz.run(pipeline, steps[cut][1], on_error="skip")
        assert list(again) == items[cut + 1 :]
    for executor in (lz.threads(), lz.threads(3, buffer_size=5)):
        with lz.run(pipeline, executor=executor, on_error="skip") as other:
            assert [(item, state.to_json()) for item, state in other.with_state()] == steps
            assert other.state == run.state
            assert other.skipped == run.skipped


def marking(x: int) -> int:
    return -1 if x % 7 == 3 else x


ORDERED: dict[str, Callable[[Any], lz.Pipeline[Any]]] = {
    "concat": lambda some: lz.concat(some, NUMBERS, some),
    "interleave": lambda some: lz.interleave(some, NUMBERS),
    "mix": lambda some: lz.mix([some, some | lz.map(str)], [2, 1], deterministic=True),
    "within each other": lambda some: lz.concat(
        lz.interleave(some | lz.map(str), some) | lz.shuffle(seed=1), some
    ),
}


@pytest.mark.parametrize("name", ORDERED)
@pytest.mark.parametrize("executor", [None, lz.threads(2), lz.processes(2)])
def test_it_keeps_its_place_where_items_are_only_ordered(name: str, executor: Any) -> None:
    shuffled = lz.shuffle(seed=3) | lz.shard(num_shards=2, index=1)
    pipeline, marked = (ORDERED[name](NUMBERS | lz.map(fn)) | shuffled for fn in (picky, marking))
    expected = [item for item in marked if "-1" not in str(item)]
    with lz.run(pipeline, executor=executor, on_error="skip") as run:
        steps = list(run.with_state())
        assert [item for item, _ in steps] == expected
        assert run.skipped == len(list(marked)) - len(expected) > 0
    for cut in range(0, len(steps), 9):
        again = lz.run(pipeline, steps[cut][1].to_json(), on_error="skip")
        assert list(again) == expected[cut + 1 :]
        assert again.skipped == run.skipped


def told(pipeline: lz.Pipeline[Any], executor: lz.Executor | None) -> list[Any]:
    """Every item with the records skipped before it, and those skipped at the end."""
    found: list[Any] = []
    with lz.run(pipeline, executor=executor, on_error="skip") as run:
        for item in run:
            found.append((item, run.skipped, run.skipped.first))
        return [*found, (run.skipped, run.skipped.first)]


def first_of(texts: list[str], pipeline: lz.Pipeline[Any]) -> list[str]:
    """At most 8 names, as a state has no room for more."""
    first = texts[:8]
    while len(json.dumps(first)) > 704 - size(pipeline.entries):
        first.pop()
    return first


some = st.frozensets(st.integers(0, 59))


@given(st.integers(0, 60), some, some, st.integers(1, 4), st.booleans())
def test_every_item_has_its_own_count(
    size: int, first: frozenset[int], second: frozenset[int], n: int, is_stream: bool
) -> None:
    pipeline = (
        lz.source(Stream(range(size)) if is_stream else range(size))
        | lz.map(Rejecting(first))
        | lz.map(abs)
        | lz.filter(Rejecting(second) if n > 1 else abs)
        | lz.batch(n, collate=Sum(frozenset([5, 7, 9])))
    )
    texts: list[str] = []
    expected: list[Any] = []
    batch: list[int] = []
    stages = [*map(repr, pipeline.calls)]

    def full(place: int) -> None:
        if batch and sum(batch) in (5, 7, 9):
            texts.append(f"{stages[4]} before (0, {place}): ValueError: {sum(batch)} is bad")
        elif batch:
            expected.append((sum(batch), len(texts), tuple(first_of(texts, pipeline))))
        batch.clear()

    for x in range(size):
        if x in first:
            texts.append(f"{stages[1]} before (0, {x + 1}): ValueError: {x} is bad")
        elif n > 1 and x in second:
            texts.append(f"{stages[3]} before (0, {x + 1}): ValueError: {x} is bad")
        elif x:  # which abs as a predicate leaves out
            batch.append(x)
        if len(batch) == n:
            full(x + 1)
    full(size)
    expected.append((len(texts), tuple(first_of(texts, pipeline))))
    for executor in (None, lz.threads(), lz.threads(3, buffer_size=5)):
        assert told(pipeline, executor) == expected


def test_lots_that_are_left_in_the_middle() -> None:
    pipeline = NUMBERS | lz.map(picky) | lz.map(str)
    alone = told(pipeline, None)
    for stop in range(1, 40, 3):
        with lz.run(pipeline, executor=lz.threads(2, buffer_size=9), on_error="skip") as run:
            given = [(next(run), run.skipped, run.skipped.first) for _ in range(stop)]
        assert run.skipped == given[-1][1]
        with run:
            given += [(item, run.skipped, run.skipped.first) for item in run]
        assert [*given, (run.skipped, run.skipped.first)] == alone


def test_a_zip_is_not_shifted() -> None:
    pipeline = lz.zip(NUMBERS | lz.map(picky), NUMBERS)
    run = lz.run(pipeline, on_error="skip")
    assert [next(run), next(run), next(run)] == [(0, 0), (1, 1), (2, 2)]
    with pytest.raises(ValueError, match="3"):
        next(run)


def test_bad_policy() -> None:
    with pytest.raises(
        lz.ArgumentError, match="on_error must be 'raise' or 'skip', got on_error='"
    ):
        lz.run(NUMBERS, on_error="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize("executor", [None, lz.threads(2)])
def test_what_wants_random_access_behind_what_may_fail_is_told_why(executor: Any) -> None:
    pipeline = lz.source(["1", "b"]) | lz.map(int) | lz.batch(1) | lz.shuffle(seed=0)
    assert pipeline.machine.length == 2
    with pytest.raises(lz.ArgumentError, match=r'shuffle: .*on_error="skip" removes random access'):
        lz.run(pipeline, on_error="skip", executor=executor)
    with pytest.raises(lz.ArgumentError, match=r'shuffle: .*on_error="skip" removes random access'):
        lz.run(lz.concat(pipeline), on_error="skip", executor=executor)


def test_the_beginning_of_a_long_error_shows_no_part_of_a_secret() -> None:
    def load(number: int) -> int:
        raise OSError(f"https://user:{'secret' * 999}@host/data can't be read")

    run = lz.run(lz.source([1]) | lz.map(load), on_error="skip")
    assert list(run) == []
    assert run.skipped.first[0].endswith("OSError: ...")


def test_everything_fails() -> None:
    run = lz.run(lz.source([3, 10, 17]) | lz.map(picky) | lz.batch(2), on_error="skip")
    assert list(run) == []
    assert run.skipped == 3


@pytest.mark.parametrize("executor", [None, lz.threads(), lz.threads(2)])
@pytest.mark.parametrize("data", [range(5), Iterable(range(5))])
def test_a_stream_of_which_all_is_left_out_is_not_repeated_for_ever(
    data: Any, executor: lz.Executor | None
) -> None:
    def fails(x: int) -> int:
        raise ValueError(x)

    pipeline = lz.source(data) | lz.map(fails) | lz.repeat()
    with lz.run(pipeline, on_error="skip", executor=executor) as run:
        with pytest.raises(lz.PipelineError, match=r"repeat.*(endless|forever)"):
            next(run)
        with pytest.raises(lz.PipelineError, match=r"repeat.*(endless|forever)"):
            next(run)
    shuffled = lz.source(range(5)) | lz.shuffle(seed=0) | lz.repeat() | lz.map(fails) | lz.batch(2)
    with (
        lz.run(shuffled, on_error="skip", executor=executor) as run,
        pytest.raises(lz.PipelineError, match=r"endless.*skipped, the last one by map"),
    ):
        next(run)
    few = lz.source(data) | lz.map(lambda x: x if x == 3 else fails(x)) | lz.repeat()
    with lz.run(few, on_error="skip", executor=executor) as run:
        assert [next(run) for _ in range(3)] == [3, 3, 3]
        assert run.skipped == 11


def test_iterables_are_read_as_ever() -> None:
    pipeline = lz.source(Iterable([1, 0, 2])) | lz.map(lambda x: 2 // x)
    assert list(lz.run(pipeline, on_error="skip")) == [2, 1]


def test_an_interrupt_is_no_bad_item() -> None:
    def interrupted(x: int) -> int:
        raise KeyboardInterrupt

    run = lz.run(NUMBERS | lz.map(interrupted), on_error="skip")
    with pytest.raises(KeyboardInterrupt):
        next(run)

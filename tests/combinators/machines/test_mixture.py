"""Mixtures of which a rank gets few items: only these are computed, and nothing else changes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing.laws import Stream

POLICIES = ("first_exhausted", "all_exhausted", "all_exhausted_without_replacement", "never")


class Calls:
    """A function of an item that notes its arguments."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, item: Any) -> Any:
        self.seen.append(item)
        return item


def part(kind: str, name: str, size: int, fn: Any) -> lz.Pipeline[Any]:
    items = [f"{name}{n}" for n in range(size)]
    if kind == "stream":
        return lz.source(Stream(items)) | lz.map(fn)
    if kind == "filtered":
        return lz.source(items) | lz.map(fn) | lz.filter(lambda item: "1" not in item)
    if kind == "nested":
        halves = [lz.source(items[:3]) | lz.map(fn), lz.source(items[3:]) | lz.map(fn)]
        return lz.mix(halves, [1, 2], seed=8, stop=POLICIES[2])
    if kind == "mapped nested":
        return part("nested", name, size, fn) | lz.map(fn)
    shuffled = lz.source(items, name=name) | lz.shuffle(seed=5) | lz.map(fn)
    return shuffled | lz.repeat(2) if kind == "repeated" else shuffled


SEEKABLE = ("shuffled", "repeated", "nested")
KINDS = (*SEEKABLE, "stream", "filtered", "mapped nested")
WEIGHTS: dict[str, Any] = {
    "fixed": [2, 1, 0.5],
    "steps": lz.schedule({0: [1, 1, 1], 5: [3, 0, 1], 11: [1, 1, 2]}),
    "line": lz.schedule({0: [1, 0, 1], 30: [1, 1, 1], 60: [0, 1, 1]}, interpolate="linear"),
    "function": lz.schedule(lambda n: [1 + n % 3, 1, 1], name="turns"),
}


def mixed(kinds: Any, sizes: Any, weights: str, stop: Any, fn: Any) -> lz.Pipeline[Any]:
    parts = [part(*each, fn) for each in zip(kinds, "abc", sizes, strict=True)]
    return lz.mix(parts, WEIGHTS[weights], seed=3, stop=stop)


def dealt(items: list[Any], num_shards: int, index: int, remainder: Any) -> Iterator[Any]:
    """The items that `shard` yields of all these items."""
    for begin in range(0, len(items), num_shards):
        round_ = items[begin : begin + num_shards]
        if len(round_) > index:
            if len(round_) == num_shards or remainder != "drop":
                yield round_[index]
        elif remainder == "pad":
            yield "-"
        elif remainder == "repeat":
            yield items[(index - len(round_)) % len(items)]


@given(
    st.lists(st.sampled_from(KINDS), min_size=3, max_size=3),
    st.lists(st.integers(4, 20), min_size=3, max_size=3),
    st.sampled_from(sorted(WEIGHTS)),
    st.sampled_from(POLICIES),
    st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1))),
    st.sampled_from([None, "drop", "pad", "repeat"]),
    st.booleans(),
)
def test_a_rank_of_a_mixture_has_its_items_and_places(
    kinds: Any, sizes: Any, weights: str, stop: Any, rank: Any, remainder: Any, maps: bool
) -> None:
    num_shards, index = rank
    whole = mixed(kinds, sizes, weights, stop, str)
    every = list(islice(whole, 20 * num_shards))
    pad = "-" if remainder == "pad" else None
    shard = lz.shard(num_shards=num_shards, index=index, remainder=remainder, pad=pad)
    ranked = (whole | lz.map(str) if maps else whole) | shard
    expected = list(dealt(every, num_shards, index, remainder))
    run = lz.run(ranked)
    for number, item in enumerate(expected, 1):
        assert next(run) == item
        reached = min(number * num_shards, len(every))
        assert run.state.position == lz.state_at(whole, reached).position or reached == len(every)
    state = lz.state_at(ranked, len(expected) // 2)
    assert list(islice(lz.run(ranked, state.to_json()), 9)) == expected[state.items :][:9]
    if len(every) < 20 * num_shards:
        with pytest.raises(StopIteration):
            next(run)
        ended = lz.run(whole)
        assert list(ended) == every
        assert run.state.position == ended.state.position


@given(
    st.lists(st.sampled_from(SEEKABLE), min_size=3, max_size=3),
    st.sampled_from(sorted(WEIGHTS)),
    st.sampled_from(POLICIES),
    st.integers(1, 70).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1))),
)
def test_no_function_is_called_for_items_of_other_ranks(
    kinds: Any, weights: str, stop: Any, rank: tuple[int, int]
) -> None:
    calls, after = Calls(), Calls()
    sizes = [2000 if kind == "nested" else 50 for kind in kinds]  # repeated items have to be read
    whole = mixed(kinds, sizes, weights, stop, calls) | lz.map(after)
    own = list(islice(whole | lz.shard(num_shards=rank[0], index=rank[1]), 12))
    assert calls.seen == after.seen == own


def test_others_items_are_made_where_there_is_no_random_access() -> None:
    calls, streamed = Calls(), Calls()
    parts = [part("shuffled", "a", 40, calls), part("filtered", "b", 40, streamed)]
    whole = lz.mix(parts, [1, 1], seed=0)
    every = list(islice(whole, 24))
    calls.seen.clear(), streamed.seen.clear()
    own = list(islice(whole | lz.shard(num_shards=8, index=3), 3))
    assert own == every[3::8]
    assert calls.seen == [item for item in own if item[0] == "a"]
    passed = [item for item in streamed.seen if "1" not in item]
    assert passed == [item for item in every if item[0] == "b"]


def test_an_item_that_fails_fails_at_its_own_rank_alone() -> None:
    def fail(item: int) -> int:
        return 1 // (item - 9) + item

    whole = lz.mix([lz.count() | lz.map(fail), lz.count(100)], [1, 1], seed=0)
    plain = list(islice(lz.mix([lz.count(), lz.count(100)], [1, 1], seed=0), 80))
    for index in range(4):
        run = lz.run(whole | lz.shard(num_shards=4, index=index))
        if plain.index(9) % 4 == index:
            with pytest.raises(ZeroDivisionError):
                list(islice(run, 20))
            assert run.state.items == plain.index(9) // 4
        else:
            assert len(list(islice(run, 20))) == 20


@pytest.mark.parametrize("behind", [lz.repeat(), lz.shuffle(seed=0) | lz.map(str)])
def test_data_that_changed_are_found_out(behind: Any) -> None:
    data = [*range(500)]
    parts = [lz.source(data) | behind, lz.count()]
    run = lz.run(lz.mix(parts, [1, 1], seed=0) | lz.shard(num_shards=16, index=3))
    assert len(list(islice(run, 9))) == 9
    del data[20:]
    with pytest.raises(lz.errors.SourceChanged, match="had 500 items"):
        list(islice(run, 100))


@pytest.mark.parametrize("weights", [[5, 3], lz.schedule({0: [1, 0], 99: [1, 1]})])
def test_rebased_weights_and_added_sources_keep_others_items_unmade(weights: Any) -> None:
    calls = Calls()
    parts = [part("repeated", name, 50, calls) | lz.repeat() for name in "abc"]
    shard = lz.shard(num_shards=16, index=5)
    old = lz.mix(parts[:2], weights, seed=0) | shard
    new = lz.mix(parts, [1, 2, 3], seed=0) | shard
    state = lz.rebase(lz.state_at(old, 10), new)
    calls.seen.clear()
    own = list(islice(lz.run(new, state), 30))
    assert calls.seen == own
    assert {item[0] for item in own} == set("abc")


def test_reading_on_after_an_error_makes_no_items_again() -> None:
    calls, failing = Calls(), [True]

    def fail(item: Any) -> Any:
        if failing and len(calls.seen) == 30:
            failing.pop()
            raise OSError("once")
        return item

    parts = [part("shuffled", name, 400, calls) for name in "ab"]
    run = lz.run(lz.mix(parts, [1, 1], seed=0) | lz.map(fail))
    head = list(islice(run, 29))
    with pytest.raises(OSError, match="once"):
        next(run)
    calls.seen.clear()
    tail = list(islice(run, 100))
    assert calls.seen == tail
    assert head + tail == list(islice(lz.mix(parts, [1, 1], seed=0), 129))

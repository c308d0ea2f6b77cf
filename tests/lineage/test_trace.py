"""The origins of an output, found without reading if possible."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.lineage import tracing
from lazyckpt.lineage.origins import Origin, Traced
from lazyckpt.testing.laws import Stream
from tests.helpers import Unread
from tests.laws import trace as law


def test_what_is_wrong_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = lz.source(range(9)) | lz.map(str) | lz.batch(2, collate="".join)
    law(pipeline, 30)
    wrong = lambda self, fn, item: Traced("?", [])  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr(tracing.Tracing, "made", wrong)
        with pytest.raises(AssertionError):
            law(pipeline, 30)


def never(*args: Any) -> Any:
    raise AssertionError("called")


def places(pipeline: lz.Pipeline[Any], n: int) -> list[int]:
    return [origin.index for origin in lz.trace(pipeline, n)]


def flat(item: Any) -> Iterator[int]:
    if isinstance(item, (list, tuple)):
        for each in item:
            yield from flat(each)
    else:
        yield int(item)


STRUCTURE = st.lists(
    st.one_of(
        st.builds(lz.shuffle, seed=st.integers(0, 9)),
        st.builds(lz.shuffle, st.integers(1, 9), seed=st.integers(0, 9)),
        st.builds(lz.block_shuffle, st.integers(1, 9), seed=st.integers(0, 9)),
        st.builds(lz.batch, st.integers(1, 4)),
        st.builds(lz.sliding_window, st.integers(1, 4), stride=st.integers(1, 4)),
        st.builds(lz.shard, num_shards=st.integers(2, 3), index=st.integers(0, 1)),
        st.builds(lz.take, st.integers(0, 50)),
        st.builds(lz.skip, st.integers(0, 50)),
        st.sampled_from([lz.repeat(2), lz.filter(lambda x: True), lz.flat_map(lambda x: [x, x])]),
    ),
    max_size=4,
)


@given(st.booleans(), STRUCTURE)
def test_origins_are_where_the_items_are(indexed: bool, stages: list[Any]) -> None:
    data = range(60)
    pipeline: Any = lz.source(data if indexed else Stream(data))
    for stage in stages:
        if pipeline.machine.skip is not None or stage.calls[0].arguments.get("buffer_size", 1):
            pipeline = pipeline | stage
    for n, item in enumerate(islice(pipeline, 9)):
        assert places(pipeline, n) == list(dict.fromkeys(flat(item)))


def test_with_random_access_nothing_is_read_or_called() -> None:
    pipeline = (
        lz.source(Unread()) | lz.map(never) | lz.shuffle(seed=0) | lz.repeat() | lz.tap(never)
        | lz.random_map(never, seed=0) | lz.enumerate() | lz.starmap(never)
        | lz.shard(num_shards=2, index=1) | lz.batch(3, collate=never) | lz.split_batch(2)
    )  # fmt: skip
    order = lz.source(range(100)) | lz.shuffle(seed=0) | lz.repeat()
    assert places(pipeline, 10**9) == [order[6 * 10**9 + k] for k in (1, 3, 5)]
    joined = lz.zip(lz.source(Unread()) | lz.batch(2), lz.concat(lz.source(Unread()), lz.count()))
    assert lz.trace(joined, 7) == [
        Origin("1[0].1", 0, 14), Origin("1[0].1", 0, 15), Origin("1[1].1[0].1", 0, 7),
    ]  # fmt: skip


def test_random_sources_are_seen_through() -> None:
    pipeline = (
        lz.random_floats(seed=0) | lz.take(9) | lz.block_shuffle(3, seed=0) | lz.shuffle(seed=0)
    )
    assert len(places(pipeline | lz.batch(2), 0)) == 2
    law(pipeline | lz.filter(bool), 30)
    assert places(pipeline | lz.filter(bool), 4) == places(pipeline, 4)


@pytest.mark.parametrize("data", [lz.count(), lz.count(40, -3), lz.once(7), lz.source(range(9))])
def test_what_wants_a_table_is_seen_through(data: lz.Pipeline[int]) -> None:
    shuffled = data | lz.take(9) | lz.block_shuffle(2, seed=5) | lz.lru_cache(2) | lz.repeat(2)
    for stage in (lz.group_by(str), lz.filter(str), lz.flat_map(lambda x: [x, x])):
        for last in (lz.shuffle(seed=0), lz.gather(range(len(shuffled) - 1, -1, -1))):
            law(shuffled | last | stage, 30)
            places(shuffled | last | stage, 0)


def test_what_chooses_is_told_first() -> None:
    both = lz.switch(lz.source([True, False, True]), lz.count(), lz.count(100))
    assert lz.trace(both, 1) == [Origin("1[0].1", 0, 1), Origin("1[2].1", 0, 1)]
    assert lz.trace(both | lz.batch(2), 0)[2:] == [Origin("1[0].1", 0, 1), Origin("1[2].1", 0, 1)]


def test_a_row_of_tokens_is_told_by_sequences() -> None:
    sequences = lz.source([[1] * n for n in (3, 0, 2, 4)])
    assert [places(sequences | lz.concat_then_split(4), n) for n in range(3)] == [
        [0, 2],
        [2, 3],
        [3],
    ]
    arrays = lz.columns(x=np.arange(6)) | lz.batch(2, collate=lz.stack) | lz.unbatch()
    assert places(arrays, 3) == [2, 3]


def test_what_is_no_place_is_refused() -> None:
    pipeline = lz.source(range(4)) | lz.batch(2)
    for n in (-1, 1.0, True, None):
        with pytest.raises(lz.ArgumentError, match="trace: at must be an int >= 0"):
            lz.trace(pipeline, n)  # type: ignore[arg-type]
    for text in ("1", "here"):
        with pytest.raises(lz.InvalidState, match="not a"):
            lz.trace(pipeline, text)
    with pytest.raises(lz.InvalidState, match="the later one must come second"):
        lz.trace(pipeline, lz.state_at(pipeline, 2), lz.state_at(pipeline, 1))
    with pytest.raises(lz.StateMismatch, match="belongs to a different pipeline"):
        lz.trace(pipeline, lz.init(lz.source(range(5)) | lz.batch(2)))


def test_places_have_an_epoch() -> None:
    pipeline = lz.source(["ab"]) | lz.repeat() | lz.batch(2)
    assert lz.trace(pipeline, 1) == [Origin("1", 2, 0), Origin("1", 3, 0)]
    shuffled = lz.source(range(3)) | lz.shuffle(seed=0) | lz.repeat(2)
    assert sorted((o.epoch, o.index) for n in range(6) for o in lz.trace(shuffled, n)) == [
        (epoch, index) for epoch in (0, 1) for index in range(3)
    ]


def test_behind_a_rebase_a_state_tells_what_is_delivered() -> None:
    small, large = (lz.source(range(40)) | lz.shuffle(5, seed=1) | lz.batch(n) for n in (2, 3))
    state = lz.rebase(lz.state_at(small, 4), large)
    run = lz.run(large, state)
    delivered = [next(run) for _ in range(5)]
    found = lz.trace(large, state, run.state)
    assert [[origin.index for origin in each] for each in found] == delivered
    assert lz.trace(large, state) == found[0] != lz.trace(large, state.items)
    assert lz.trace(large, state.to_json(), run.state.to_dict()) == found
    assert lz.trace(large, state, state) == []


@pytest.mark.parametrize(
    "numbers",
    [
        lz.source(range(30)) | lz.shuffle(seed=0),
        lz.source(Stream(range(30))) | lz.shuffle(5, seed=0),
    ],
    ids=["indexed", "stream"],
)
def test_two_states_tell_what_was_delivered_between_them(numbers: lz.Pipeline[int]) -> None:
    def checked(number: int) -> int:
        if number % 7 == 3:
            raise ValueError(number)
        return number

    pipeline = numbers | lz.map(checked) | lz.batch(4)
    run = lz.run(pipeline, on_error="skip")
    states, delivered = [run.state], []
    for _ in range(3):
        for batch in run.epoch():
            delivered.append(batch)
            states.append(run.state)
    for begin, end in [(0, 3), (2, 5), (5, 9), (3, 21), (0, 21), (7, 7), (7, 14)]:
        found = lz.trace(pipeline, states[begin], states[end])
        assert [[origin.index for origin in each] for each in found] == delivered[begin:end]
        assert lz.replay(pipeline, states[begin], states[end]) == delivered[begin:end]


def test_what_was_skipped_before_both_states_is_left_out_again() -> None:
    """A batch that is taken apart is read again from its beginning."""

    def checked(number: int) -> int:
        if number == 1:
            raise ValueError(number)
        return number

    pipeline = lz.source(range(9)) | lz.map(checked) | lz.batch(4) | lz.unbatch()
    states = [state for _, state in lz.run(pipeline, on_error="skip").with_state()]
    assert lz.replay(pipeline, states[0], states[2]) == [2, 3]
    found = lz.trace(pipeline, states[0], states[2])
    assert [origin.index for each in found for origin in each] == [2, 3]
    history = lz.seen(pipeline, states[2], since=states[0])
    assert [index for block in history for index in block.index] == [2, 3]


@pytest.mark.parametrize("collate", [None, list])
def test_a_rank_has_its_own_part_of_a_batch(collate: Any) -> None:
    """Of a batch that a function has made, all items are origins of each part."""
    batches = lz.source(range(10)) | lz.batch(4, collate=collate)
    ranks = [batches | lz.shard_batch(num_shards=2, index=n, key=float) for n in range(2)]
    for n, parts in enumerate(zip(*ranks, strict=True)):
        wholes = list(range(10))[4 * n : 4 * n + 4]
        for rank, part in zip(ranks, parts, strict=True):
            assert places(rank, n) == (part if collate is None else wholes)
    counts = [lz.seen(rank, 3).counts().total() for rank in ranks]
    assert sum(counts) == (10 if collate is None else 20)


def test_states_of_two_runs_tell_nothing_together() -> None:
    pipeline = lz.source(range(9)) | lz.batch(2)
    later = lz.state_at(pipeline, 4)
    first = lz.init(pipeline, epoch=5)
    elsewhere = first.at(first.position, 4)
    for between in (lz.trace, lz.replay):
        assert len(between(pipeline, lz.init(pipeline), later)) == 4
        with pytest.raises(lz.InvalidState, match="4 items don't lead to the state's position"):
            between(pipeline, lz.init(pipeline), elsewhere)


def test_behind_a_change_of_a_mixture_a_state_tells_what_is_delivered() -> None:
    parts = [lz.source(range(k, k + 50)) | lz.filter(bool) | lz.repeat() for k in (100, 200)]
    one, two = (lz.mix(parts, weights, seed=0) | lz.batch(2) for weights in ([1, 9], [9, 1]))
    state = lz.rebase(lz.state_at(one, 9), two)
    run = lz.run(two, state)
    delivered = [next(run) for _ in range(20)]
    for batch, found in zip(delivered, lz.trace(two, state, run.state), strict=True):
        assert [{"1[0].1": 100, "1[1].1": 200}[o.stage] + o.index for o in found] == batch


class Counted(Unread):
    reads = 0

    def __getitem__(self, index: int) -> int:
        type(self).reads += 1
        return index


@pytest.mark.parametrize("stage", [lz.filter(bool), lz.filter(bool) | lz.batch(2)])
@pytest.mark.parametrize("begin", [0, 20, 40])
def test_a_range_costs_what_is_in_it(stage: Any, begin: int) -> None:
    pipeline = lz.source(Counted()) | lz.repeat() | stage
    state = lz.state_at(pipeline, begin)
    until = lz.advance(pipeline, state, 5)
    Counted.reads = 0
    assert len(lz.trace(pipeline, state, until)) == 5
    assert Counted.reads <= 12
    Counted.reads = 0
    lz.trace(pipeline, state)
    assert Counted.reads <= 3


def test_what_is_skipped_ahead_of_both_states_is_left_out() -> None:
    """A stage that reads ahead has it, though it comes to light later."""

    def checked(number: int) -> int:
        if number == 5:
            raise ValueError(number)
        return number

    pipeline = lz.source(range(16)) | lz.filter(lambda x: True) | lz.map(checked)
    pipeline = pipeline | lz.block_shuffle(8, seed=0)
    run = lz.run(pipeline, on_error="skip")
    first, delivered = run.state, list[int]()
    for item in run:
        delivered.append(item)
        assert lz.replay(pipeline, first, run.state) == delivered
        found = lz.trace(pipeline, first, run.state)
        assert [origin.index for each in found for origin in each] == delivered
        assert [n for block in lz.seen(pipeline, run.state) for n in block.index] == delivered
    assert delivered.index(next(n for n in delivered if n > 7)) == 7


def test_an_error_of_a_changed_function_is_raised_as_it_is() -> None:
    numbers = lz.source(range(9)) | lz.filter(lambda x: True)
    begin, end = (lz.state_at(numbers | lz.map(abs), n) for n in (2, 7))
    changed = numbers | lz.map(lambda n: 1 // (n - 4))
    with pytest.raises(ZeroDivisionError):
        lz.replay(changed, begin, end)


def test_a_range_reads_no_more_than_a_resume_does() -> None:
    sequences = lz.source(Counted()) | lz.map(lambda n: [n] * (n % 5))
    pipeline = sequences | lz.shuffle(8, seed=0) | lz.repeat() | lz.concat_then_split(4)
    for begin in (0, 50, 400):
        state = lz.state_at(pipeline, begin)
        until = lz.advance(pipeline, state, 3)
        Counted.reads = 0
        lz.replay(pipeline, state, until)
        most = Counted.reads
        Counted.reads = 0
        lz.trace(pipeline, state, until)
        assert Counted.reads <= most + 1

"""Parts that differ by one item or by none, and what their states may follow."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing.laws import Stream

kinds = st.sampled_from([list, Stream])


def parts(data: Any, num_shards: int, **options: Any) -> list[list[Any]]:
    pipelines = [
        lz.source(data) | lz.shard(num_shards=num_shards, index=index, **options)
        for index in range(num_shards)
    ]
    found = [list(pipeline) for pipeline in pipelines]
    lengths = [pipeline.machine.length for pipeline in pipelines]
    assert lengths in ([len(part) for part in found], [None] * num_shards)
    return found


@given(st.integers(0, 30), st.integers(1, 9))
def test_contiguous_parts_join_to_the_whole_extras_lowest(n: int, num_shards: int) -> None:
    found = parts(range(n), num_shards, contiguous=True)
    assert list(chain.from_iterable(found)) == list(range(n))
    sizes = [len(part) for part in found]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@given(kinds, st.integers(0, 30), st.integers(1, 9), st.booleans())
def test_even_parts_are_even(kind: Any, n: int, num_shards: int, contiguous: bool) -> None:
    contiguous = contiguous and kind is list
    for remainder, length in (("drop", n // num_shards), ("repeat", -(-n // num_shards))):
        found = parts(kind(range(n)), num_shards, contiguous=contiguous, remainder=remainder)
        assert [len(part) for part in found] == [length] * num_shards
        wanted = [i % n for i in range(length * num_shards)]
        joined = chain.from_iterable(found if contiguous else zip(*found, strict=True))
        assert list(joined) == wanted


@given(kinds, st.integers(0, 30), st.integers(1, 9), st.booleans(), st.booleans())
def test_padding_is_told_from_items(
    kind: Any, n: int, num_shards: int, contiguous: bool, is_filtered: bool
) -> None:
    contiguous = contiguous and kind is list and not is_filtered
    some = lz.source(kind(range(n))) | lz.filter(lambda x: x % 3 > 0 or not is_filtered)
    base = some if is_filtered else lz.source(kind(range(n)))
    items = list(base)
    steps = -(-len(items) // num_shards)
    found = []
    for index in range(num_shards):
        rank = {"num_shards": num_shards, "index": index, "contiguous": contiguous}
        pipeline = base | lz.shard(**rank, remainder="pad", pad=-1)
        found.append(list(pipeline | lz.repeat(2)))
        one = list(pipeline)
        assert found[-1] == one * 2
        states = list(lz.run(pipeline).with_state())
        assert [item for item, _ in states] == one
        for number, (_, state) in enumerate(states):
            assert list(lz.run(pipeline, state.to_json())) == one[number + 1 :]
    assert [len(part) for part in found] == [2 * steps] * num_shards
    parts = [part[:steps] for part in found]
    joined = [*chain.from_iterable(parts if contiguous else zip(*parts, strict=True))]
    assert joined == items + [-1] * (steps * num_shards - len(items))


def test_an_origin_of_padding_is_none() -> None:
    pipeline = lz.source(range(4)) | lz.shard(num_shards=3, index=2, remainder="pad", pad=-1)
    assert [lz.trace(pipeline, n) for n in range(2)] == [[lz.Origin("1", 0, 2)], []]


@pytest.mark.parametrize("remainder", [None, "drop", "pad", "repeat"])
@pytest.mark.parametrize("contiguous", [True, False])
def test_ranks_have_one_state_at_every_step(remainder: Any, contiguous: bool) -> None:
    base = lz.source(range(11)) | lz.shuffle(seed=0) | lz.map(str)
    options: Any = {"num_shards": 4, "contiguous": contiguous, "remainder": remainder}
    pipelines = [base | lz.shard(index=index, **options) | lz.batch(2) for index in range(4)]
    ranks = [lz.run(pipeline) for pipeline in pipelines]
    for _ in range(2 if remainder in ("pad", "repeat") else 1):
        items = [next(rank) for rank in ranks]
        assert all(items) or remainder == "pad"
        assert len({rank.state for rank in ranks}) == 1
    state = ranks[0].state
    assert list(lz.run(pipelines[3], state)) == list(ranks[3])


def test_a_contiguous_state_follows_no_other_division() -> None:
    def rank(num_shards: int, size: int = 1, count: int = 1) -> Any:
        before = lz.source(range(24)) | lz.batch(size) | lz.repeat(count)
        return before | lz.shard(num_shards=num_shards, index=0, contiguous=True) | lz.batch(2)

    state = lz.state_at(rank(2), 1)
    for other in (rank(3), rank(2, size=2), rank(2, count=2)):
        with pytest.raises(lz.StateMismatch, match="cannot follow"):
            lz.rebase(state, other)
    whole = lz.source(range(24)) | lz.shard(num_shards=2, index=0, contiguous=True)
    state = lz.state_at(whole | lz.batch(2), 1)
    assert next(lz.run(whole | lz.batch(5), lz.rebase(state, whole | lz.batch(5)))) == [
        2,
        3,
        4,
        5,
        6,
    ]


def test_an_even_strided_state_follows_another_number_of_shards() -> None:
    def rank(num_shards: int, index: int) -> lz.Pipeline[int]:
        part = lz.shard(num_shards=num_shards, index=index, remainder="repeat")
        return lz.source(range(11)) | part

    state = lz.state_at(rank(2, 0), 2)
    rest = [list(lz.run(rank(3, i), lz.rebase(state, rank(3, i)))) for i in range(3)]
    assert rest == [[4, 7, 10], [5, 8, 0], [6, 9, 1]]


def test_epochs_begin_anew() -> None:
    shuffled = lz.source(range(7)) | lz.shuffle(seed=0)
    two = list(shuffled | lz.repeat(2))
    for rank in range(3):
        part = shuffled | lz.shard(num_shards=3, index=rank, contiguous=True, remainder="repeat")
        begin = 3 * rank
        wanted = [[(epoch * 2)[i] for i in range(begin, begin + 3)] for epoch in (two[:7], two[7:])]
        assert list(part | lz.repeat(2)) == wanted[0] + wanted[1]


def test_what_has_no_parts_is_refused() -> None:
    rank: Any = {"num_shards": 2, "index": 0}
    for upstream, why in (
        (lz.source([1]) | lz.repeat(), "is endless"),
        (lz.source(Stream([1])), "has no random access"),
        (lz.source([1]) | lz.filter(bool), "has no random access"),
    ):
        with pytest.raises(lz.ArgumentError, match=f"contiguous=True, and .* {why}"):
            upstream | lz.shard(**rank, contiguous=True)
    with pytest.raises(
        lz.ArgumentError, match="remainder must be 'drop', 'pad' or 'repeat' or None"
    ):
        lz.shard(**rank, remainder=True)
    with pytest.raises(lz.ArgumentError, match=r"pad=0 wants .*got remainder='drop'"):
        lz.shard(**rank, remainder="drop", pad=0)
    with pytest.raises(lz.ArgumentError, match="contiguous must be True or False"):
        lz.shard(**rank, contiguous=1)
    with pytest.raises(lz.ArgumentError, match="index must be below"):
        lz.shard(num_shards=2, index=2, contiguous=True)
    with pytest.raises(lz.ArgumentError, match="index must be an int >= 0"):
        lz.shard(num_shards=2, index=-1, contiguous=True)

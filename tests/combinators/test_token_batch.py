"""`token_batch`, `take_tokens`: budgets of tokens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.errors import StateMismatch
from tests.combinators.cases import LENGTHS


def test_an_item_above_the_budget_is_named_and_nothing_is_lost() -> None:
    pipeline = lz.source(["be", "question", "or"]) | lz.token_batch(4, key=len)
    error = r"8 tokens.*'question'; raise max_tokens or pass drop_longer=True"
    with lz.run(pipeline) as run, pytest.raises(ValueError, match=error):
        next(run)
    left_out = lz.source(["be", "question", "or"]) | lz.token_batch(4, key=len, drop_longer=True)
    assert list(left_out) == [["be", "or"]]


@pytest.mark.parametrize("size", [None, -1, 2.0, "3", True, [1]])
@pytest.mark.parametrize("stage", [lz.token_batch, lz.take_tokens])
def test_a_length_that_is_none(stage: Any, size: Any) -> None:
    pipeline = lz.source(["word"]) | stage(9, key=lambda item: size)
    with pytest.raises(TypeError, match=r"key must return an int >= 0, got .* for 'word'"):
        list(pipeline)


def test_what_is_full_is_given_before_more_is_read() -> None:
    read: list[int] = []
    pipeline = lz.source([4, 4, 4, 9]) | lz.tap(read.append) | lz.token_batch(8, key=int)
    with lz.run(pipeline) as run:
        assert next(run) == [4, 4]
    assert read == [4, 4]


@given(LENGTHS, st.integers(1, 5), st.integers(1, 20))
def test_ranks_share_every_batch_evenly(lengths: list[int], ranks: int, size: int) -> None:
    batches = lz.source(lengths) | lz.batch(size)
    parts = [
        list(batches | lz.shard_batch(num_shards=ranks, index=rank, key=int))
        for rank in range(ranks)
    ]
    for batch, *shares in zip(batches, *parts, strict=True):
        assert sorted(item for share in shares for item in share) == sorted(batch)
        costs = [sum(share) for share in shares]
        assert max(costs) - min(costs) <= max(batch)


@pytest.mark.parametrize(("item", "cost"), [([1], None), ([1], -1), ([1], "1"), (3, 1)])
def test_what_ranks_cannot_share(item: Any, cost: Any) -> None:
    stage = lz.shard_batch(num_shards=2, index=0, key=lambda _: cost)
    with pytest.raises(TypeError, match="shard_batch: "):
        list(lz.source([item]) | stage)


def test_parts_of_unlike_sizes_have_positions_of_their_own() -> None:
    """Of their items: the parts themselves are one a rank and batch."""
    parts = [
        lz.source([9, 1, 1, 8, 7]) | lz.batch(5) | lz.shard_batch(num_shards=2, index=rank, key=int)
        for rank in range(2)
    ]
    states = [lz.state_at(each, 1) for each in parts]
    assert states[0] == states[1]
    first, second = [each | lz.unbatch() for each in parts]
    with pytest.raises(StateMismatch, match="rank 1 of 2 alone"):
        lz.run(first, lz.state_at(second, 1))

"""Parts that differ by one item or by none, and what their states may follow."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from toolz import identity

import lazyckpt as lz
from lazyckpt.testing.laws import Stream


def test_an_origin_of_padding_is_none() -> None:
    pipeline = lz.source(range(4)) | lz.shard(num_shards=3, index=2, remainder="pad", pad=-1)
    assert [lz.trace(pipeline, n) for n in range(2)] == [[lz.types.Origin("1", 0, 2)], []]


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


@pytest.mark.parametrize("remainder", [None, "drop", "pad"])
@pytest.mark.parametrize("index", range(3))
def test_of_a_stream_no_rank_calls_functions_for_others(index: int, remainder: Any) -> None:
    called: list[int] = []
    stream = lz.source(Stream(range(7))) | lz.tap(called.append) | lz.map(str)
    mine = lz.shard(num_shards=3, index=index, remainder=remainder)
    found = list(stream | mine)
    assert found == list(lz.source(list("0123456")) | mine)
    own = [str(each) for each in range(index, 7, 3)]
    assert [str(each) for each in called] == own


def mine(index: int, item: Any) -> Any:
    """The item or batch, which a different rank may not compute."""
    number = item[0] if isinstance(item, list) else item
    if number % 3 != index:
        raise ValueError(f"{item} is of a different rank than {index}")
    return item


def twice(n: int) -> list[int]:
    return [n, n]


SHAPES: dict[str, Any] = {
    "outputs": lambda fn: lz.source(range(40)) | lz.filter(twice) | lz.map(fn) | lz.tap(fn),
    "stream": lambda fn: lz.source(Stream(range(40))) | lz.map(twice) | lz.map(max) | lz.map(fn),
    "batches": lambda fn: lz.source(range(40)) | lz.flat_map(twice) | lz.batch(2, collate=fn),
    "rows": lambda fn: lz.source(range(40)) | lz.scan(numbered, 0) | lz.map(fn),
    "joined": lambda fn: lz.concat(lz.source(range(9)) | lz.filter(twice)) | lz.map(fn),
}


def numbered(count: int, item: int) -> tuple[int, int]:
    return count + 1, count


@pytest.mark.parametrize("remainder", [None, "drop"])
@pytest.mark.parametrize("executor", [None, lz.threads(2), lz.processes(2)], ids=repr)
@pytest.mark.parametrize("shape", SHAPES)
def test_nor_do_its_workers(shape: str, executor: Any, remainder: Any) -> None:
    for index in range(3):
        dealt = lz.shard(num_shards=3, index=index, remainder=remainder) | lz.batch(4)
        pipeline = SHAPES[shape](partial(mine, index)) | dealt
        expected = lz.run(SHAPES[shape](identity) | dealt).with_state()
        with lz.run(pipeline, executor=executor) as run:
            found = [(items, state.position) for items, state in run.with_state()]
        assert found == [(items, state.position) for items, state in expected]


def test_a_function_fails_on_the_rank_whose_item_it_is() -> None:
    stream = lz.source(Stream(range(8))) | lz.map(lambda x: 7 // (4 - x))
    for index, expected in enumerate([[1, 7, -4], [2], [3, -7]]):
        pipeline = stream | lz.shard(num_shards=3, index=index)
        run = lz.run(pipeline)
        assert [next(run) for _ in expected] == expected
        if index == 1:
            with pytest.raises(ZeroDivisionError):
                next(run)
        assert run.state == lz.state_at(pipeline, len(expected))


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


def test_what_has_no_parts_is_refused() -> None:
    rank: Any = {"num_shards": 2, "index": 0}
    for upstream, why in (
        (lz.source([1]) | lz.repeat(), "is endless"),
        (lz.source(Stream([1])), "has no random access"),
        (lz.source([1]) | lz.filter(bool), "has no random access"),
    ):
        with pytest.raises(lz.ArgumentError, match=f"contiguous=True, and .* {why}"):
            upstream | lz.shard(**rank, contiguous=True)
    with pytest.raises(lz.ArgumentError, match=r"pad=0 requires .*got remainder='drop'"):
        lz.shard(**rank, remainder="drop", pad=0)

"""`ShardedDataLoader`: arguments, last batches, shards, batchify, prefetch."""

from __future__ import annotations

import threading
from itertools import count, islice
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.compat.gluon import (
    ShardedDataLoader,
    default_batchify_fn,
)
from tests.compat.gluon.cases import (
    LAST,
    TENS,
    WORKERS,
    Seeded,
    indices,
    joined,
    loader,
    model,
    orders_of,
)
from tests.helpers import Indexed


def test_gl1_what_is_wrong_or_does_not_go_together_is_refused() -> None:
    for wrong in (
        {},
        {"shuffle": True},
        {"batch_size": 2, "shuffle": True, "sampler": [1]},
        {"batch_sampler": [[1]], "batch_size": 2},
        {"batch_sampler": [[1]], "shuffle": True},
        {"batch_sampler": [[1]], "sampler": [1]},
        {"batch_sampler": [[1]], "last_batch": "keep"},
        {"batch_size": 0},
        {"batch_size": 2.5},
        {"batch_size": 2, "num_workers": "2"},
        {"batch_size": 2, "prefetch": 0.5},
        {"batch_size": 2, "batchify_fn": "stack"},
        {"batch_size": 2, "sampler": 7},
        {"batch_size": 2, "shuffle": True, "seed": -1},
    ):
        with pytest.raises(ValueError, match=r"ShardedDataLoader|seed"):
            ShardedDataLoader(TENS, **wrong)  # type: ignore[arg-type]


def test_gl1_arguments_come_in_the_original_order() -> None:
    made = ShardedDataLoader(TENS[:4], 3, False, None, "keep", None, list, 0, False, None, False)
    assert list(made) == [[0, 10, 20], [30]]


def test_gl2_without_shuffle_the_order_is_that_of_the_data() -> None:
    made = loader(7, 3)
    assert [list(made) for _ in range(2)] == [[[0, 10, 20], [30, 40, 50], [60]]] * 2


@given(st.integers(0, 40), st.integers(1, 9), st.integers(0, 5))
def test_gl2_with_shuffle_each_epoch_has_another_order(size: int, batch: int, seed: int) -> None:
    made = loader(size, batch, shuffle=True, seed=seed)
    epochs = [joined(map(indices, made)) for _ in range(3)]
    assert all(sorted(order) == list(range(size)) for order in epochs)
    assert size < 8 or len({tuple(order) for order in epochs}) == 3
    again = loader(size, batch, shuffle=True, seed=seed)
    assert [joined(map(indices, again)) for _ in range(3)] == epochs


@given(
    st.integers(0, 30),
    st.integers(1, 12),
    st.sampled_from(LAST),
    st.sampled_from(["own", None, 0, 1, 2, 3]),
)
def test_gl3_last_batch_and_len(size: int, batch: int, last: str, seed: Any) -> None:
    if seed == "own":
        made = loader(size, batch, sampler=Seeded(size), last_batch=last)
        same = Seeded(size)
        orders: Any = (list(same) for _ in count())
    else:
        made = loader(size, batch, shuffle=seed is not None, last_batch=last, seed=seed)
        orders = orders_of(size, seed)
    for expected in islice(model(orders, batch, last), 6):
        assert len(made) == len(expected)
        iterator = iter(made)
        assert len(made) == len(expected)
        assert [indices(each) for each in iterator] == expected
        assert next(iterator, None) is None


def test_gl3_rollover_of_fewer_items_than_a_batch() -> None:
    made = loader(3, 10, last_batch="rollover")
    assert [(len(made), list(made)) for _ in range(3)] == [(0, [])] * 3
    assert len(made) == 1
    assert indices(next(iter(made))) == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]


def test_gl3_rollover_wants_to_know_where_an_epoch_ends() -> None:
    with pytest.raises(ValueError, match="needs a sampler with a len"):
        loader(3, 2, sampler=iter([0, 1, 2]), last_batch="rollover")

    class Lying(Seeded):
        def __len__(self) -> int:
            return self.size + 1

    made = loader(5, 2, sampler=Lying(5), last_batch="rollover")
    with pytest.raises(lz.SourceChanged, match=r"has 5 items, but its len\(\) was 6"):
        list(made)


def test_gl4_an_invalid_last_batch_is_reported_at_once() -> None:
    with pytest.raises(ValueError, match="last_batch must be 'keep', 'discard' or 'rollover'"):
        loader(3, 2, last_batch="roll_over")


@given(
    st.lists(
        st.lists(st.integers(0, 9), min_size=1, max_size=4)
        | st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=1, max_size=3),
        max_size=6,
    )
)
def test_gl5_shards_are_batchified_each_on_its_own(plan: list[Any]) -> None:
    made = ShardedDataLoader(TENS, batch_sampler=plan, batchify_fn=tuple)
    naive: list[Any] = []
    for batch in plan:
        is_sharded = isinstance(batch[0], list)
        shards = [tuple(TENS[i] for i in shard) for shard in (batch if is_sharded else [batch])]
        naive.append(shards if is_sharded else shards[0])
    assert list(made) == naive == list(made)


@pytest.mark.parametrize("workers", WORKERS)
def test_gl5_flat_and_sharded_mix_in_workers_too(workers: dict[str, Any]) -> None:
    plan = [[[0, 1], [2]], [3, 4], [[5]], [6]]
    with ShardedDataLoader(TENS, batch_sampler=plan, batchify_fn=sum, **workers) as made:
        assert list(made) == [[10, 20], 70, [50], 60]


def test_gl6_tuples_are_indices() -> None:
    grid = Indexed(9, lambda index: 10 * index[0] + index[1])
    made = ShardedDataLoader(grid, batch_sampler=[[(1, 2), (0, 1)], [[(2, 2)], [(1, 1)]]])
    flat, sharded = list(made)
    assert flat.tolist() == [12, 1]
    assert [shard.tolist() for shard in sharded] == [[22], [11]]


def test_gl6_shards_and_flat_batches_may_be_arrays_ranges_and_tuples() -> None:
    for sharded in (
        np.array([[0, 1], [2, 3]]),
        [np.array([0, 1]), np.array([2, 3])],
        [range(2), range(2, 4)],
        ([0, 1], [2, 3]),
    ):
        assert list(loader(4, batch_sampler=[sharded])) == [[[0, 10], [20, 30]]]
    for flat in (np.array([1, 2]), (1, 2), range(1, 3)):
        assert list(loader(4, batch_sampler=[flat])) == [[10, 20]]


def test_gl7_batchify_stacks() -> None:
    found = default_batchify_fn([np.ones(2), np.zeros(2)])
    assert found.tolist() == [[1, 1], [0, 0]]
    assert default_batchify_fn([1, 2]).dtype == np.int64
    assert default_batchify_fn([0.5, 2]).tolist() == [0.5, 2]
    assert default_batchify_fn([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]


def test_gl7_tuples_transpose_to_lists() -> None:
    found = default_batchify_fn([(np.ones(2), (1, 0.5)), (np.zeros(2), (2, 1.5))])
    assert type(found) is list
    assert found[0].tolist() == [[1, 1], [0, 0]]
    assert [field.tolist() for field in found[1]] == [[1, 2], [0.5, 1.5]]
    with pytest.raises(ValueError, match="shorter"):
        default_batchify_fn([(1, 2), (1,)])
    with pytest.raises(ValueError, match="shape"):
        default_batchify_fn([np.ones(2), np.ones(3)])


@pytest.mark.parametrize("workers", WORKERS)
def test_gl7_it_is_the_default_in_workers_too(workers: dict[str, Any]) -> None:
    data = [(np.full(3, i), i) for i in range(5)]
    with ShardedDataLoader(data, 2, **workers) as made:
        images, labels = list(made)[1]
    assert images.tolist() == [[2, 2, 2], [3, 3, 3]]
    assert labels.tolist() == [2, 3]


class Watched:
    """A dataset that reports each read, and waits for a gate if there is one."""

    def __init__(self, size: int, gate: threading.Event | None = None) -> None:
        self.size, self.gate = size, gate
        self.reads: SimpleQueue[int] = SimpleQueue()

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        self.reads.put(index)
        if self.gate is not None:
            assert self.gate.wait(timeout=50)
        return index


@pytest.mark.parametrize(
    ("workers", "prefetch", "ahead"),
    [(2, None, 4), (3, None, 6), (1, None, 2), (2, 7, 7), (2, 3, 3), (2, 2, 3), (4, 1, 2)],
)
def test_gl8_so_many_batches_are_made_ahead(workers: int, prefetch: int, ahead: int) -> None:
    data = Watched(100)
    made = ShardedDataLoader(data, 1, num_workers=workers, prefetch=prefetch, thread_pool=True)
    assert data.reads.empty()
    iterator = iter(made)
    assert {data.reads.get(timeout=50) for _ in range(ahead)} == set(range(ahead))
    assert next(iterator).tolist() == [0]
    assert data.reads.get(timeout=50) == ahead
    made.close()
    assert data.reads.empty()


def test_gl8_without_prefetch_each_batch_is_made_when_it_is_waited_for() -> None:
    data = Watched(10)
    made = ShardedDataLoader(data, 1, num_workers=2, prefetch=0, thread_pool=True)
    for number, batch in enumerate(made):
        assert batch.tolist() == [number] == [data.reads.get(timeout=50)]
        assert data.reads.empty()
    made.close()


def test_gl8_less_than_none_is_none() -> None:
    with loader(4, 2, num_workers=-3, prefetch=-1) as made:
        assert list(made) == [[0, 10], [20, 30]]

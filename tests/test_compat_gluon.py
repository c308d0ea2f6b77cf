"""`lazyckpt.compat.gluon`, item by item, against naive models on lists."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import pickle
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, count, groupby, islice, pairwise
from pathlib import Path
from queue import SimpleQueue
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.compat.gluon import (
    BucketScheme,
    ConstWidthBucket,
    ExpWidthBucket,
    FixedBucketSampler,
    LinearWidthBucket,
    ShardedDataLoader,
    SortedBucketSampler,
    SortedSampler,
    SplitSampler,
    default_batchify_fn,
)

CODES = {f"GL{number}" for number in range(1, 22)}

LAST = ["keep", "discard", "rollover"]
WORKERS: list[dict[str, Any]] = [
    {},
    {"num_workers": 2},
    {"num_workers": 1},
    {"num_workers": 3, "thread_pool": True},
    {"num_workers": 2, "thread_pool": True, "prefetch": 0},
]


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    faulthandler.dump_traceback_later(60, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def test_every_item_of_the_list_has_a_test() -> None:
    named = {name.split("_")[1].upper() for name in globals() if name.startswith("test_gl")}
    assert named == CODES


# What the data are: item i of TENS is 10 * i, and batches are lists.

TENS = list(range(0, 100_000, 10))


def loader(size: int = 10, *args: Any, **options: Any) -> ShardedDataLoader:
    return ShardedDataLoader(TENS[:size], *args, **{"batchify_fn": list, **options})


def indices(batch: Any) -> Any:
    return [indices(part) if isinstance(part, list) else part // 10 for part in batch]


def joined(parts: Iterable[list[Any]]) -> list[Any]:
    return list(chain.from_iterable(parts))


class Seeded:
    """A sampler with a generator of its own, which moves on with each epoch."""

    def __init__(self, size: int, seed: int = 0, batch_size: int = 0) -> None:
        self.size, self.batch_size, self.random = size, batch_size, random.Random(seed)
        self.asked = 0

    def __len__(self) -> int:
        return -(-self.size // self.batch_size) if self.batch_size else self.size

    def __iter__(self) -> Iterator[Any]:
        self.asked += 1
        order = self.random.sample(range(self.size), self.size)
        return iter(cut(order, self.batch_size) if self.batch_size else order)


def cut(items: list[Any], size: int) -> list[list[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def model(orders: Iterator[list[int]], batch_size: int, last: str) -> Iterator[list[list[int]]]:
    """The batches of each epoch, of indices in these orders."""
    rest: list[int] = []
    for order in orders:
        batches = cut(rest + order, batch_size)
        rest = []
        if last != "keep" and batches and len(batches[-1]) < batch_size:
            rest = batches.pop()
        if last == "discard":
            rest = []
        yield batches


def orders_of(size: int, seed: int | None) -> Iterator[list[int]]:
    """Sequential, or those of `shuffle(seed=seed)`."""
    run = lz.run(lz.source(range(size)) | lz.shuffle(seed=seed or 0))
    for _ in count():
        yield list(range(size)) if seed is None else list(run.epoch())


def states(loader: ShardedDataLoader, epochs: int) -> tuple[list[Any], list[Any]]:
    """Batches of some epochs, as (epoch, batch), and the state before each and after the last."""
    batches, found = [], [loader.state_dict()]
    for epoch in range(epochs):
        for batch in loader:
            batches.append((epoch, indices(batch)))
            found.append(loader.state_dict())
    return batches, found


def groups(batches: list[Any]) -> list[Any]:
    """Batches by epoch, epochs without any left out."""
    return [[batch for _, batch in some] for _, some in groupby(batches, lambda pair: pair[0])]


def rest(loader: ShardedDataLoader, size: int) -> list[Any]:
    """The next `size` batches, by epoch."""
    given: list[Any] = []
    for epoch in count():
        given += [(epoch, indices(batch)) for batch in islice(loader, size - len(given))]
        if len(given) == size:
            return groups(given)
    raise AssertionError


# GL1 to GL4: arguments and last batches


def test_gl1_what_does_not_go_together_is_refused() -> None:
    for wrong in (
        {},
        {"shuffle": True},
        {"batch_size": 2, "shuffle": True, "sampler": [1]},
        {"batch_sampler": [[1]], "batch_size": 2},
        {"batch_sampler": [[1]], "shuffle": True},
        {"batch_sampler": [[1]], "sampler": [1]},
        {"batch_sampler": [[1]], "last_batch": "keep"},
    ):
        with pytest.raises(ValueError, match="ShardedDataLoader"):
            ShardedDataLoader(TENS, **wrong)  # type: ignore[arg-type]


def test_gl1_wrong_values_are_refused() -> None:
    for wrong in (
        {"batch_size": 0},
        {"batch_size": 2.5},
        {"batch_size": 2, "num_workers": "2"},
        {"batch_size": 2, "prefetch": 0.5},
        {"batch_size": 2, "batchify_fn": "stack"},
        {"batch_size": 2, "sampler": 7},
        {"batch_size": 2, "shuffle": True, "seed": -1},
    ):
        with pytest.raises((TypeError, ValueError), match=r"ShardedDataLoader|seed"):
            ShardedDataLoader(TENS, **wrong)


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
    st.none() | st.integers(0, 3),
)
def test_gl3_last_batch_and_len(size: int, batch: int, last: str, seed: int | None) -> None:
    made = loader(size, batch, shuffle=seed is not None, last_batch=last, seed=seed)
    for expected in islice(model(orders_of(size, seed), batch, last), 6):
        assert len(made) == len(expected)
        iterator = iter(made)
        assert len(made) == len(expected)
        assert [indices(each) for each in iterator] == expected
        assert next(iterator, None) is None


@given(st.integers(0, 30), st.integers(1, 12), st.sampled_from(LAST))
def test_gl3_with_a_sampler_of_ones_own(size: int, batch: int, last: str) -> None:
    made = loader(size, batch, sampler=Seeded(size), last_batch=last)
    same = Seeded(size)
    for expected in islice(model((list(same) for _ in count()), batch, last), 6):
        assert len(made) == len(expected)
        assert [indices(each) for each in made] == expected


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
    with pytest.raises(lz.SourceChanged, match=r"has 5 items, where its len\(\) was 6"):
        list(made)


def test_gl4_an_invalid_last_batch_is_reported_at_once() -> None:
    with pytest.raises(ValueError, match="last_batch must be 'keep', 'discard' or 'rollover'"):
        loader(3, 2, last_batch="roll_over")


# GL5 to GL8: shards, batchify, prefetch


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


class Grid:
    """Indices are tuples."""

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: tuple[int, int]) -> int:
        row, column = index
        return 10 * row + column


def test_gl6_tuples_are_indices() -> None:
    made = ShardedDataLoader(Grid(), batch_sampler=[[(1, 2), (0, 1)], [[(2, 2)], [(1, 1)]]])
    flat, sharded = list(made)
    assert flat.tolist() == [12, 1]
    assert [shard.tolist() for shard in sharded] == [[22], [11]]


@pytest.mark.parametrize(
    "sharded",
    [
        np.array([[0, 1], [2, 3]]),
        [np.array([0, 1]), np.array([2, 3])],
        torch.tensor([[0, 1], [2, 3]]),
        [range(2), range(2, 4)],
        ([0, 1], [2, 3]),
    ],
)
def test_gl6_shards_may_be_arrays(sharded: Any) -> None:
    assert list(loader(4, batch_sampler=[sharded])) == [[[0, 10], [20, 30]]]


@pytest.mark.parametrize("flat", [np.array([1, 2]), torch.tensor([1, 2]), (1, 2), range(1, 3)])
def test_gl6_flat_batches_may_be_arrays(flat: Any) -> None:
    assert list(loader(4, batch_sampler=[flat])) == [[10, 20]]


def test_gl7_batchify_stacks() -> None:
    found = default_batchify_fn([np.ones(2), np.zeros(2)])
    assert found.tolist() == [[1, 1], [0, 0]]
    assert torch.equal(default_batchify_fn([torch.ones(2)] * 2), torch.ones(2, 2))
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
    """A data set that tells of each read, and waits for leave to go on where there is a gate."""

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


# GL9, GL10: order, the pool, len, pinned memory


class Chained:
    """Item i is there only once item i + 1 is being read, within pairs."""

    def __init__(self) -> None:
        self.begun = [threading.Event() for _ in range(8)]

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        self.begun[index].set()
        assert self.begun[index | 1].wait(timeout=50)
        return index


def test_gl9_batches_come_in_the_order_of_the_sampler() -> None:
    with ShardedDataLoader(Chained(), 1, num_workers=2, thread_pool=True) as made:
        assert [batch.tolist() for batch in made] == [[i] for i in range(8)]


class Whose:
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[int, int]:
        return os.getpid(), threading.get_ident()


@pytest.mark.parametrize("threaded", [False, True])
def test_gl9_the_pool_lives_across_epochs(threaded: bool) -> None:
    with ShardedDataLoader(
        Whose(), 1, num_workers=2, thread_pool=threaded, batchify_fn=list
    ) as made:
        epochs = [{batch[0] for batch in made} for _ in range(3)]
        assert len(set.union(*epochs)) <= 2
        assert (os.getpid() in {pid for pid, _ in epochs[0]}) is threaded


@given(st.lists(st.lists(st.integers(0, 9), min_size=1), max_size=6))
def test_gl10_len_is_that_of_the_batch_sampler(plan: list[list[int]]) -> None:
    assert len(loader(batch_sampler=plan)) == len(plan)
    assert len(iter(loader(batch_sampler=plan))) == len(plan)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="len"):
        len(loader(batch_sampler=(batch for batch in plan)))


@pytest.mark.parametrize("workers", WORKERS[:2])
def test_gl10_pinned_memory_shard_by_shard(workers: dict[str, Any]) -> None:
    data = [(torch.ones(2), np.ones(2), "text") for _ in range(3)]
    with ShardedDataLoader(data, batch_sampler=[[[0, 1], [2]]], pin_memory=True, **workers) as made:
        ((first, second),) = list(made)
    for (tensor, array, text), size in ((first, 2), (second, 1)):
        assert tensor.shape == array.shape == (size, 2)
        assert text == ["text"] * size
        assert isinstance(array, np.ndarray)
        assert tensor.is_pinned() is torch.cuda.is_available()


# GL11 to GL16: what the original loses, and where it hangs


@pytest.mark.parametrize("workers", WORKERS)
def test_gl11_an_abandoned_iterator_loses_nothing_that_rolls_over(workers: dict[str, Any]) -> None:
    expected = list(islice(model(orders_of(10, None), 4, "rollover"), 5))
    with loader(10, 4, last_batch="rollover", **workers) as made:
        assert [indices(batch) for batch in made] == expected[0]
        iter(made)  # perhaps with batches in flight, but nothing delivered
        assert [indices(batch) for batch in made] == expected[1]
        iterator = iter(made)
        assert indices(next(iterator)) == expected[2][0]
        assert len(made) == len(expected[2])
        del iterator
        assert len(made) == len(expected[3])
        assert [indices(batch) for batch in made] == expected[3]


def test_gl11_an_abandoned_epoch_is_over() -> None:
    made = loader(20, 2, shuffle=True, seed=0)
    orders = orders_of(20, 0)
    for _ in range(3):
        assert indices(next(iter(made))) == next(orders)[:2]
    assert joined(map(indices, made)) == next(orders)


def test_gl11_a_one_shot_batch_sampler_gives_its_batches_in_every_epoch() -> None:
    made = loader(batch_sampler=(batch for batch in [[0, 1], [2]]))
    assert next(iter(made)) == [0, 10]
    assert [list(made) for _ in range(3)] == [[[0, 10], [20]]] * 3


def test_gl11_endless_samplers() -> None:
    made = loader(batch_sampler=([i % 10] for i in count()))
    assert list(islice(made, 12)) == [[i % 10 * 10] for i in range(12)]
    saved = made.state_dict()
    other = loader(batch_sampler=([i % 10] for i in count()))
    other.load_state_dict(saved)
    assert next(iter(other)) == [20]
    assert next(iter(loader(2, 3, sampler=(i % 2 for i in count())))) == [0, 10, 0]


def test_gl11_there_is_one_iteration_at_a_time() -> None:
    made = loader(6, 2)
    first = iter(made)
    assert next(first) == [0, 10]
    second = iter(made)
    assert next(second) == [0, 10]
    with pytest.raises(lz.PipelineError, match="another iteration of it has begun"):
        next(first)
    assert next(second) == [20, 30]


@pytest.mark.parametrize("workers", WORKERS)
def test_gl12_the_iterator_of_a_temporary_loader(workers: dict[str, Any]) -> None:
    iterator = iter(loader(6, 2, **workers))
    assert list(iterator) == [[0, 10], [20, 30], [40, 50]]


class Once:
    """A data set that fails on some items, the first time each."""

    def __init__(self, folder: Path, size: int, failing: set[int], error: Any) -> None:
        self.folder, self.size, self.failing, self.error = folder, size, failing, error

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        if index in self.failing:
            try:
                (self.folder / str(index)).touch(exist_ok=False)
            except FileExistsError:
                return index
            if self.error is None:
                os.kill(os.getpid(), signal.SIGKILL)
            raise self.error
        return index


def insistent(iterator: Iterator[Any], errors: list[BaseException]) -> Iterator[Any]:
    """All batches, with the errors between them put aside."""
    while True:
        try:
            yield next(iterator)
        except StopIteration:
            return
        except Exception as error:
            errors.append(error)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("error", [KeyError("lost"), IndexError(3), StopIteration(), TypeError()])
def test_gl13_after_an_error_the_same_batch_is_tried_again(
    tmp_path: Path, workers: dict[str, Any], error: Exception
) -> None:
    data = Once(tmp_path, 12, {3, 8, 9}, error)
    errors: list[BaseException] = []
    with ShardedDataLoader(data, 2, batchify_fn=list, **workers) as made:
        assert list(insistent(iter(made), errors)) == cut(list(range(12)), 2)
    expected = lz.PipelineError if isinstance(error, StopIteration) else type(error)
    assert {type(each) for each in errors} == {expected}
    assert 1 <= len(errors) <= 3  # one that is behind another may be met before it, by a worker


@pytest.mark.parametrize("workers", WORKERS)
def test_gl13_the_state_after_an_error_is_that_before_the_batch(
    tmp_path: Path, workers: dict[str, Any]
) -> None:
    options: dict[str, Any] = {"batchify_fn": list, **workers}
    sampler = Seeded(12, batch_size=2)
    with ShardedDataLoader(
        Once(tmp_path, 12, {5}, ValueError("lost")), batch_sampler=sampler, **options
    ) as made:
        given: list[Any] = []
        with pytest.raises(ValueError, match="lost"):
            given.extend(made)
        expected = list(Seeded(12, batch_size=2))
        assert sampler.asked == 1
        state = made.state_dict()
    with ShardedDataLoader(range(12), batch_sampler=Seeded(12, batch_size=2), **options) as other:
        other.load_state_dict(state)
        left = list(other)
        assert len(left) < len(expected)
        assert left == expected[-len(left) :]
        assert 5 in left[0]


@pytest.mark.parametrize("workers", WORKERS)
def test_gl14_none_from_a_batch_sampler_is_an_error_and_no_end(workers: dict[str, Any]) -> None:
    with loader(batch_sampler=[[0], None, [1]], **workers) as made:
        iterator = iter(made)
        assert next(iterator) == [0]
        with pytest.raises(TypeError, match=r"must be a list of indices.*got None"):
            next(iterator)


class Any1:
    """A data set that takes None for an index."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int | None) -> int | None:
        return index


@pytest.mark.parametrize("workers", WORKERS)
def test_gl14_none_is_an_index_like_any_other_and_so_is_a_none_item(
    workers: dict[str, Any],
) -> None:
    with ShardedDataLoader(
        Any1(), 2, sampler=[0, None, 1, None, None], batchify_fn=list, **workers
    ) as made:
        assert list(made) == [[0, None], [1, None], [None]]
    with ShardedDataLoader([None] * 3, 1, batchify_fn=lambda items: None, **workers) as made:
        assert list(made) == [None] * 3


@pytest.mark.parametrize("workers", WORKERS)
def test_gl14_empty_samplers_and_batches(workers: dict[str, Any]) -> None:
    with loader(0, 3, **workers) as made:
        assert [list(made), list(made), len(made)] == [[], [], 0]
    with loader(3, batch_sampler=[], **workers) as made:
        assert [list(made), list(made), len(made)] == [[], [], 0]
    with loader(3, batch_sampler=[[], [1], [[], [2]]], **workers) as made:
        assert list(made) == [[], [10], [[], [20]]]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("own", [False, True])
def test_gl15_a_killed_worker_is_an_error_and_the_batch_comes_again(
    tmp_path: Path, count: int, own: bool
) -> None:
    data = Once(tmp_path, 12, {4, 9}, None)
    errors: list[BaseException] = []
    sampler = [[i, i + 1] for i in range(0, 12, 2)]
    how: dict[str, Any] = {"batch_sampler": sampler} if own else {"batch_size": 2}
    with ShardedDataLoader(data, num_workers=count, batchify_fn=list, **how) as made:
        assert list(insistent(iter(made), errors)) == sampler
        assert len(list(made)) == 6
    assert {type(error) for error in errors} == {lz.WorkerDied}


def test_gl16_close_ends_the_workers_and_iterating_starts_them_again() -> None:
    made = ShardedDataLoader(Whose(), 1, num_workers=2, batchify_fn=list)
    iterator = iter(made)
    pids = {pid for batch in islice(iterator, 6) for pid, _ in batch}
    made.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    made.close()
    state = made.state_dict()
    with pytest.raises(lz.PipelineError, match="the loader was closed"):
        next(iterator)
    assert len(list(made)) == 20
    made.load_state_dict(state)
    assert len(list(made)) == 14
    made.close()


@pytest.mark.parametrize("taken", [5, 20])
def test_gl16_dropping_the_loader_ends_the_workers(taken: int) -> None:
    gc.disable()
    try:
        made = ShardedDataLoader(Whose(), 1, num_workers=2, batchify_fn=list)
        pids = {pid for batch in islice(made, taken) for pid, _ in batch}
        del made
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
    finally:
        gc.enable()


def test_gl16_without_a_seed_numpys_decides() -> None:
    def epoch() -> Any:
        np.random.seed(7)
        return list(loader(50, 5, shuffle=True))

    assert epoch() == epoch()
    np.random.seed(7)
    before = np.random.get_state()[1].tolist()  # type: ignore[index,union-attr]
    list(loader(50, 5))
    list(loader(50, 5, shuffle=True, seed=1))
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index,union-attr]


@st.composite
def setups(draw: st.DrawFn) -> Any:
    """A function that makes equal loaders."""
    size = draw(st.integers(1, 25))
    batch = draw(st.integers(1, 8))
    seed = draw(st.integers(0, 3))
    last = draw(st.sampled_from(LAST))
    lengths = [1 + i * 7 % 10 for i in range(size)]
    kinds: list[Any] = [
        lambda: {"batch_size": batch, "shuffle": True, "last_batch": last, "seed": seed},
        lambda: {"batch_size": batch, "last_batch": last},
        lambda: {"batch_size": batch, "sampler": Seeded(size, seed), "last_batch": last},
        lambda: {"batch_size": batch, "sampler": SortedSampler(lengths), "last_batch": last},
        lambda: {"batch_size": batch, "sampler": SplitSampler(size, seed=seed), "last_batch": last},
        lambda: {"batch_sampler": Seeded(size, seed, batch)},
        lambda: {"batch_sampler": (part for part in cut(list(range(size)), batch))},
        lambda: {"batch_sampler": SortedBucketSampler(lengths, batch, 2, shuffle=True, seed=seed)},
        lambda: {
            "batch_sampler": FixedBucketSampler(
                lengths, batch, None, [5, 10], num_shards=seed, shuffle=True, seed=seed
            )
        },
    ]
    kind = draw(st.sampled_from(kinds))
    return lambda **more: loader(size, **kind(), **more)


WARNS = pytest.mark.filterwarnings("ignore:buckets that nothing falls in:UserWarning")


@WARNS
@given(setups(), st.data())
def test_gl16_a_state_resumes_exactly_from_any_place(make: Any, data: st.DataObject) -> None:
    batches, found = states(make(), 3)
    start, stop = sorted(data.draw(st.integers(0, len(batches))) for _ in range(2))
    saved = json.dumps(found[start])
    assert len(saved) <= 1024
    resumed = make()
    resumed.load_state_dict(json.loads(saved))
    assert rest(resumed, stop - start) == groups(batches[start:stop])
    if stop > start:
        assert resumed.state_dict() == found[stop]
    again = make()
    again.load_state_dict(resumed.state_dict())
    assert rest(again, len(batches) - stop) == groups(batches[stop:])


@WARNS
@settings(max_examples=15)
@given(setups(), st.sampled_from(WORKERS[1:]), st.data())
def test_gl16_with_workers_in_flight_states_are_the_same(
    make: Any, workers: dict[str, Any], data: st.DataObject
) -> None:
    batches, found = states(make(), 2)
    place = data.draw(st.integers(0, len(batches)))
    with make(**workers) as busy:
        assert states(busy, 2) == (batches, found)
    with make(**workers) as resumed:
        resumed.load_state_dict(found[place])
        assert rest(resumed, len(batches) - place) == groups(batches[place:])


def test_gl16_a_state_may_be_loaded_at_any_time() -> None:
    made = loader(20, 2, shuffle=True, seed=0)
    batches, found = states(made, 3)
    for place in (29, 3, 14, 10, 0):
        made.load_state_dict(found[place])
        assert rest(made, 30 - place) == groups(batches[place:])
    iterator = iter(made)
    next(iterator)
    made.load_state_dict(found[7])
    assert [indices(batch) for batch in iterator] == [batch for _, batch in batches[7:10]]


def test_gl16_a_generator_that_has_moved_on_can_not_go_back() -> None:
    made = loader(20, 2, sampler=Seeded(20))
    batches, found = states(made, 2)
    made.load_state_dict(found[13])
    assert rest(made, 7) == groups(batches[13:])
    for place in (0, 3):
        made.load_state_dict(found[place])
        with pytest.raises(lz.SourceChanged, match="does not give again what it gave"):
            next(iter(made))


def long_runs() -> dict[str, Any]:
    lengths = [1 + i * 7 % 50 for i in range(1000)]
    return {
        "shuffled": lambda: loader(1000, 1, shuffle=True, seed=3),
        "rollover": lambda: loader(301, 3, shuffle=True, last_batch="rollover", seed=3),
        "own": lambda: loader(500, batch_sampler=Seeded(500, batch_size=1)),
        "own rollover": lambda: loader(301, 3, sampler=Seeded(301), last_batch="rollover"),
        "buckets": lambda: loader(
            1000, batch_sampler=FixedBucketSampler(lengths, 1, shuffle=True, seed=3)
        ),
        "windows": lambda: loader(
            1000, batch_sampler=SortedBucketSampler(lengths, 2, 8, shuffle=True, seed=3)
        ),
    }


@pytest.mark.parametrize("kind", long_runs())
def test_gl16_stopped_at_every_position_of_a_long_run_twice(kind: str) -> None:
    make = long_runs()[kind]
    run = endless(make())
    batches, found = zip(*islice(run, 1000), strict=True)
    resumed, twice = make(), make()
    for place in range(997):
        resumed.load_state_dict(found[place])
        batch, state = next(endless(resumed))
        assert (batch, state) == (batches[place + 1], found[place + 1])
        twice.load_state_dict(json.loads(json.dumps(state)))
        assert [b for b, _ in islice(endless(twice), 2)] == list(batches[place + 2 : place + 4])


def endless(made: ShardedDataLoader) -> Iterator[tuple[Any, Any]]:
    while True:
        for batch in made:
            yield batch, made.state_dict()


def test_gl16_a_state_of_another_loader_is_refused() -> None:
    state = loader(10, 2, shuffle=True, seed=0).state_dict()
    for other in (
        loader(10, 2, shuffle=True, seed=1),
        loader(10, 3, shuffle=True, seed=0),
        loader(11, 2, shuffle=True, seed=0),
        loader(10, 2),
        loader(10, 2, last_batch="rollover", shuffle=True, seed=0),
        loader(10, batch_sampler=[[0]]),
    ):
        with pytest.raises(lz.StateMismatch, match="another pipeline"):
            other.load_state_dict(state)
    mine = loader(10, 2, shuffle=True, seed=0)
    for garbage in ({}, "", "{}", {**state, "items": 3}, [], None, 7):
        with pytest.raises(lz.InvalidState):
            mine.load_state_dict(garbage)  # type: ignore[arg-type]
    assert next(iter(mine)) == next(iter(loader(10, 2, shuffle=True, seed=0)))


def test_gl16_a_sampler_that_does_not_repeat_itself_is_refused() -> None:
    made = loader(50, batch_sampler=Seeded(50, 0, 5))
    next(iter(made))
    other = loader(50, batch_sampler=Seeded(50, 1, 5))
    other.load_state_dict(made.state_dict())
    with pytest.raises(lz.SourceChanged, match="does it lack a seed"):
        next(iter(other))


class Distributed(Seeded):
    """One that is told the epoch, as torch's DistributedSampler is."""

    def set_epoch(self, epoch: int) -> None:
        self.random = random.Random(epoch)


def test_gl16_a_sampler_with_set_epoch_is_told_by_its_owner() -> None:
    def passes(made: ShardedDataLoader, sampler: Distributed, epochs: range) -> Any:
        for epoch in epochs:
            sampler.set_epoch(epoch)
            for batch in made:
                yield indices(batch), made.state_dict()

    sampler = Distributed(9)
    batches, found = zip(*passes(loader(9, 2, sampler=sampler), sampler, range(3)), strict=True)
    for place in range(len(batches)):
        sampler = Distributed(9)
        made = loader(9, 2, sampler=sampler)
        made.load_state_dict(found[place])
        left = passes(made, sampler, range((place + 1) // 5, 3))
        assert [batch for batch, _ in left] == list(batches[place + 1 :])


def test_gl16_pipelines_may_stand_for_samplers() -> None:
    evens = lz.source(range(0, 10, 2)) | lz.shuffle(seed=0)
    made = loader(10, 2, sampler=evens, last_batch="rollover")
    orders = lz.run(evens)
    expected = islice(model((list(orders.epoch()) for _ in count()), 2, "rollover"), 4)
    for batches in expected:
        assert [indices(batch) for batch in made] == batches
    pairs = evens | lz.batch(2)
    assert joined(map(indices, loader(10, batch_sampler=pairs))) == list(evens)
    with pytest.raises(ValueError, match="random access"):
        loader(10, 2, sampler=evens | lz.filter(bool), last_batch="rollover")


# GL17 to GL21: the samplers


SCHEMES = [ConstWidthBucket(), LinearWidthBucket(), ExpWidthBucket(), ExpWidthBucket(2)]


def naive_keys(scheme: BucketScheme, longest: int, shortest: int, number: int) -> list[int]:
    if isinstance(scheme, ConstWidthBucket):
        width = max((1 + longest - shortest) // number, 1)
        return [max(longest - i * width, shortest) for i in range(number)]
    if isinstance(scheme, LinearWidthBucket):
        alpha = 2 * float(longest - shortest - number) / (number * (number + 1))
        widths = [sum(alpha * j for j in range(1, i + 2)) + i + 1 for i in range(number)]
    else:
        assert isinstance(scheme, ExpWidthBucket)
        step = scheme.bucket_len_step
        whole = sum(step**j for j in range(number))
        span = longest - shortest
        widths = [span * sum(step**j for j in range(i + 1)) / whole for i in range(number)]
    keys = [round(shortest + width) for width in widths]
    return [*keys[:-1], max(keys[-1], longest)]


@given(st.sampled_from(SCHEMES), st.integers(1, 60), st.integers(0, 200), st.integers(1, 15))
def test_gl17_bucket_schemes(scheme: BucketScheme, least: int, span: int, number: int) -> None:
    keys = scheme(least + span, least, number)
    naive = naive_keys(scheme, least + span, least, number)
    assert len(keys) == number
    assert all(abs(a - b) <= 1 for a, b in zip(keys, naive, strict=True))  # a tie may round
    assert sum(a != b for a, b in zip(keys, naive, strict=True)) <= 2
    assert max(keys) >= least + span
    pairs = scheme((least + span, least), (least, least), number)
    assert pairs == list(zip(keys, scheme(least, least, number), strict=True))


def test_gl17_bucket_schemes_by_hand() -> None:
    assert ConstWidthBucket()(20, 1, 4) == [20, 15, 10, 5]
    assert LinearWidthBucket()(21, 1, 4) == [4, 8, 14, 21]
    assert ExpWidthBucket(2)(31, 1, 4) == [3, 7, 15, 31]
    assert ExpWidthBucket(1)(41, 1, 4) == [11, 21, 31, 41]
    with pytest.raises(ValueError, match="bucket_len_step must be a number above 0"):
        ExpWidthBucket(0)


class Naive:
    """FixedBucketSampler, unshuffled, in loops."""

    def __init__(
        self, lengths: list[Any], size: int, keys: list[Any], ratio: float, average: bool
    ) -> None:
        def total(key: Any) -> int:
            return sum(key) if isinstance(key, tuple) else key

        def fits(length: Any, key: Any) -> bool:
            pair = [(length, key)] if isinstance(key, int) else zip(length, key, strict=True)
            return all(a <= b for a, b in pair)

        buckets: dict[Any, list[int]] = {key: [] for key in sorted(set(keys))}
        for index, length in enumerate(lengths):
            fitting = [key for key in buckets if fits(length, key)]
            buckets[min(fitting, key=lambda key: total(key) - total(length))].append(index)
        self.buckets = {key: bucket for key, bucket in buckets.items() if bucket}
        self.sizes = {}
        for key, bucket in self.buckets.items():
            if average:
                some = [x for i in bucket for x in np.atleast_1d(lengths[i]).tolist()]
                self.sizes[key] = max(int(size / (fmean(some) + pstdev(some))), 1)
            else:
                most = max(map(total, self.buckets))
                self.sizes[key] = max(int(most / float(total(key)) * ratio * size), size)
        self.batches = [
            part
            for key in reversed(self.buckets)
            for part in cut(self.buckets[key], self.sizes[key])
        ]

    def sharded(self, shards: int) -> list[Any]:
        if not shards:
            return self.batches
        found = []
        for start in range(0, len(self.batches), shards):
            begin = max(0, min(start, len(self.batches) - shards))
            found.append(self.batches[begin : begin + shards])
        return found


@st.composite
def bucketings(draw: st.DrawFn) -> tuple[list[Any], dict[str, Any]]:
    length = draw(
        st.sampled_from([st.integers(1, 40), st.tuples(st.integers(1, 20), st.integers(1, 20))])
    )
    lengths = draw(st.lists(length, min_size=1, max_size=40))
    average = draw(st.booleans())
    options = {
        "batch_size": draw(st.integers(1, 100 if average else 8)),
        "num_buckets": draw(st.integers(1, 12)),
        "ratio": 0 if average else draw(st.sampled_from([0, 0.5, 1.5])),
        "use_average_length": average,
        "bucket_scheme": draw(st.sampled_from(SCHEMES)),
    }
    return lengths, options


def naive_of(lengths: list[Any], options: dict[str, Any]) -> Naive:
    table = np.array(lengths)
    kind = (lambda row: tuple(row.tolist())) if table.ndim > 1 else int
    scheme, number = options["bucket_scheme"], options["num_buckets"]
    keys = scheme(kind(table.max(0)), kind(table.min(0)), number)
    average = options["use_average_length"]
    return Naive(lengths, options["batch_size"], keys, options["ratio"], average)


@WARNS
@given(bucketings())
def test_gl17_fixed_bucket_sampler(case: Any) -> None:
    lengths, options = case
    sampler, naive = FixedBucketSampler(lengths, **options), naive_of(lengths, options)
    assert list(sampler) == naive.batches == list(sampler)
    assert sampler.stats() == (
        f"FixedBucketSampler:\n  sample_num={len(lengths)}, batch_num={len(naive.batches)}\n"
        f"  key={list(naive.buckets)}\n  cnt={[len(b) for b in naive.buckets.values()]}\n"
        f"  batch_size={list(naive.sizes.values())}"
    )


@WARNS
@given(bucketings(), st.integers(0, 4), st.integers(0, 3))
def test_gl17_shuffled_buckets_are_the_same_sets(case: Any, shards: int, seed: int) -> None:
    lengths, options = case
    naive = naive_of(lengths, options)
    bucket_of = {i: key for key, bucket in naive.buckets.items() for i in bucket}

    def make() -> FixedBucketSampler:
        return FixedBucketSampler(lengths, shuffle=True, num_shards=shards, seed=seed, **options)

    sampler = make()
    epochs = [list(sampler) for _ in range(3)]
    same = make()
    assert [list(same) for _ in range(3)] == epochs
    for epoch in epochs:
        batches = [part for group in epoch for part in group] if shards else epoch
        unique = {tuple(part) for part in batches}
        assert sorted(i for part in unique for i in part) == list(range(len(lengths)))
        sizes = Counter((bucket_of[part[0]], len(part)) for part in unique)
        assert sizes == Counter((bucket_of[part[0]], len(part)) for part in naive.batches)
        assert all(len({bucket_of[i] for i in part}) == 1 for part in unique)
    flat = [str(epoch) for epoch in epochs]
    assert len(set(flat)) == 3 or len(lengths) < 12


@WARNS
def test_gl17_bucket_keys_and_arguments() -> None:
    lengths = [1, 5, 9, 3]
    assert list(FixedBucketSampler(lengths, 2, bucket_keys=[9, 3])) == [[1, 2], [0, 3]]
    pairs = FixedBucketSampler([(1, 9), (9, 1)], 1, bucket_keys=[(9, 9), (2, 9)])
    assert list(pairs) == [[1], [0]]
    floats = FixedBucketSampler(np.array([2.0, 1.0]), 2, 1)
    assert list(floats) == [[0, 1]]
    with pytest.raises(ValueError, match=r"no bucket fits lengths\[2\]=9"):
        FixedBucketSampler(lengths, 2, bucket_keys=[5])
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ([], {}, "lengths must not be empty"),
        ([0, 1], {}, "lengths must be ints >= 1"),
        ([1.5], {}, "lengths must be ints >= 1"),
        (lengths, {"batch_size": 0}, "batch_size must be an int >= 1"),
        (lengths, {"ratio": -1}, "ratio must be a number >= 0"),
        (lengths, {"num_buckets": 0}, "num_buckets must be an int >= 1"),
        (lengths, {"num_shards": -1}, "num_shards must be an int >= 0"),
        (lengths, {"bucket_keys": []}, "bucket_keys must be ints"),
        (lengths, {"bucket_keys": [(1, 2)]}, "bucket_keys must be ints"),
        (lengths, {"shuffle": 1}, "shuffle must be True or False"),
    ]
    for given_lengths, options, message in wrong:
        with pytest.raises(ValueError, match=message):
            FixedBucketSampler(given_lengths, **{"batch_size": 2, **options})


def test_gl17_what_is_left_out_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"left out: \[4\]"):
        FixedBucketSampler([1, 9], 1, bucket_keys=[2, 4, 9])
    with pytest.warns(UserWarning, match=r"ratio=0.5 is not used"):
        FixedBucketSampler([1], 9, 1, ratio=0.5, use_average_length=True)


@WARNS
@given(bucketings(), st.integers(0, 9), st.booleans())
def test_gl18_len_with_shards(case: Any, shards: int, shuffle: bool) -> None:
    lengths, options = case
    sampler = FixedBucketSampler(lengths, num_shards=shards, shuffle=shuffle, seed=0, **options)
    naive = naive_of(lengths, options)
    assert len(sampler) == len(list(sampler)) == len(naive.sharded(shards))
    assert len(sampler) == -(-len(naive.batches) // max(shards, 1))
    if not shuffle:
        assert list(sampler) == naive.sharded(shards)


@pytest.mark.parametrize("shards", range(3, 12))
def test_gl19_fewer_batches_than_shards_lose_none(shards: int) -> None:
    sampler = FixedBucketSampler([1, 2, 3], 1, 1, num_shards=shards)
    assert list(sampler) == [[[0], [1], [2]]]
    assert len(sampler) == 1
    made = loader(3, batch_sampler=sampler)
    assert list(made) == [[[0], [10], [20]]]


KEYS = st.lists(st.integers(0, 6), min_size=1, max_size=40)


@given(KEYS, st.booleans())
def test_gl20_sorted_sampler(keys: list[int], reverse: bool) -> None:
    found = list(SortedSampler(keys, reverse))
    assert found == sorted(range(len(keys)), key=lambda i: -keys[i] if reverse else keys[i])
    assert len(SortedSampler(keys)) == len(keys)


@given(KEYS, st.integers(1, 5), st.sampled_from([1, 1.5, 2, 3, 100]), st.booleans())
def test_gl20_sorted_bucket_sampler(keys: list[int], size: int, mult: float, reverse: bool) -> None:
    naive = []
    for window in cut(list(range(len(keys))), int(mult * size)):
        naive += cut(sorted(window, key=lambda i: -keys[i] if reverse else keys[i]), size)
    sampler = SortedBucketSampler(keys, size, mult, reverse)
    assert list(sampler) == naive == list(sampler)
    assert len(sampler) == len(naive)


@given(KEYS, st.integers(1, 5), st.integers(1, 3), st.integers(0, 3))
def test_gl20_sorted_bucket_sampler_shuffled(
    keys: list[int], size: int, mult: int, seed: int
) -> None:
    def make() -> SortedBucketSampler:
        return SortedBucketSampler(keys, size, mult, shuffle=True, seed=seed)

    sampler, same = make(), make()
    epochs = [list(sampler) for _ in range(3)]
    assert [list(same) for _ in range(3)] == epochs
    for batches in epochs:
        assert sorted(joined(batches)) == list(range(len(keys)))
        assert len(batches) == len(sampler)
        for batch in batches:
            assert all(keys[a] >= keys[b] for a, b in pairwise(batch))
        for window in cut(batches, mult)[:-1]:  # together, they are a window, sorted
            assert sum(map(len, window)) == mult * size
            ends = sorted([(keys[b[0]], keys[b[-1]]) for b in window], reverse=True)
            assert all(first[1] >= second[0] for first, second in pairwise(ends))
    assert len({str(batches) for batches in epochs}) > 1 or len(keys) < 12


def test_gl20_keys_need_only_compare() -> None:
    assert list(SortedBucketSampler(["b", "c", "a"], 2, reverse=False)) == [[2, 0], [1]]
    for wrong in (
        lambda: SortedSampler([]),
        lambda: SortedBucketSampler([], 2),
        lambda: SortedBucketSampler([1], 0),
        lambda: SortedBucketSampler([1], 2, mult=0.5),
    ):
        with pytest.raises(ValueError, match="Sorted"):
            wrong()


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 3))
def test_gl21_split_sampler(length: int, parts: int, repeat: int) -> None:
    parts = min(parts, length)
    samplers = [SplitSampler(length, parts, i, repeat=repeat, shuffle=False) for i in range(parts)]
    found = [list(sampler) for sampler in samplers]
    whole = [each[: len(each) // repeat] for each in found]
    assert found == [part * repeat for part in whole]
    assert joined(whole) == list(range(length))
    assert [len(part) for part in whole] == sorted(map(len, whole), reverse=True)
    assert len(whole[0]) - len(whole[-1]) <= 1
    assert [len(sampler) for sampler in samplers] == [len(each) for each in found]


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 3), st.booleans(), st.integers(0, 3))
def test_gl21_split_sampler_of_even_size(
    length: int, parts: int, repeat: int, shuffle: bool, seed: int
) -> None:
    parts = min(parts, length)
    each = -(-length // parts)
    for part in range(parts):
        own = set(range(length)[part * each : (part + 1) * each])
        sampler = SplitSampler(length, parts, part, True, repeat, shuffle, seed=seed)
        for _ in range(2):
            found = list(sampler)
            assert len(found) == len(sampler) == each * repeat
            for some in cut(found, each):
                assert own <= set(some) <= set(range(length))
                extra = list((Counter(some) - Counter(own)).elements())
                assert len(set(extra)) == len(extra) == each - len(own)


@given(st.integers(12, 30), st.integers(0, 3))
def test_gl21_split_sampler_shuffles_anew(length: int, seed: int) -> None:
    sampler = SplitSampler(length, 1, 0, repeat=2, seed=seed)
    orders = [tuple(part) for _ in range(2) for part in cut(list(sampler), length)]
    assert len(set(orders)) == 4
    assert {tuple(sorted(order)) for order in orders} == {tuple(range(length))}
    same = SplitSampler(length, 1, 0, repeat=2, seed=seed)
    assert [tuple(part) for _ in range(2) for part in cut(list(same), length)] == orders


def test_gl21_part_index_is_checked() -> None:
    for wrong in ((10, 3, 3), (10, 3, -1), (2, 3, 0), (10, 0, 0)):
        with pytest.raises(ValueError, match="SplitSampler"):
            SplitSampler(*wrong)


def test_gl21_samplers_serve_torch_too() -> None:
    batches = FixedBucketSampler([1, 2, 3, 4], 2, 2, shuffle=True, seed=0)
    made = torch.utils.data.DataLoader(TENS[:4], batch_sampler=batches, collate_fn=list)  # type: ignore[arg-type]
    assert len(made) == 2
    assert sorted(joined(made)) == [0, 10, 20, 30]


def test_loaders_and_samplers_pickle() -> None:
    lengths = [3, 9, 4, 8, 2, 7]
    samplers: list[Any] = [
        SortedSampler(lengths),
        FixedBucketSampler(lengths, 2, num_buckets=2, shuffle=True, num_shards=2),
        SortedBucketSampler(lengths, 2, mult=2, shuffle=True),
        SplitSampler(7, 3, 1, even_size=True),
    ]
    for sampler in samplers:
        next(iter(sampler))
        copied = pickle.loads(pickle.dumps(sampler))
        assert [list(sampler), len(sampler)] == [list(copied), len(copied)]
    for options in (
        {"batch_size": 2, "shuffle": True},
        {"batch_size": 2, "last_batch": "rollover"},
        {"batch_sampler": samplers[1]},
    ):
        loader = ShardedDataLoader(np.arange(6) * 10, **options)  # type: ignore[arg-type]
        epoch = iter(loader)
        first = next(epoch)
        copied = pickle.loads(pickle.dumps(loader))
        assert str(next(iter(copied), None)) == str(next(epoch, None)) != str(first)

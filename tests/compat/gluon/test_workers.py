"""`ShardedDataLoader` with workers: order, errors, ends, and items that the original loses."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.compat.gluon import (
    ShardedDataLoader,
)
from tests.compat.gluon.cases import WORKERS, Seeded, cut, indices, joined, loader, model, orders_of
from tests.executors.test_closing import open_files
from tests.helpers import Indexed, is_alive, until


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


WHOSE = Indexed(20, lambda _: (os.getpid(), threading.get_ident()))


@pytest.mark.parametrize("threaded", [False, True])
def test_gl9_the_pool_lives_across_epochs(threaded: bool) -> None:
    with ShardedDataLoader(WHOSE, 1, num_workers=2, thread_pool=threaded, batchify_fn=list) as made:
        epochs = [{batch[0] for batch in made} for _ in range(3)]
        assert len(set.union(*epochs)) <= 2
        assert (os.getpid() in {pid for pid, _ in epochs[0]}) is threaded


@given(st.lists(st.lists(st.integers(0, 9), min_size=1), max_size=6))
def test_gl10_len_is_that_of_the_batch_sampler(plan: list[list[int]]) -> None:
    assert len(loader(batch_sampler=plan)) == len(plan)
    assert len(iter(loader(batch_sampler=plan))) == len(plan)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="len"):
        len(loader(batch_sampler=(batch for batch in plan)))


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
        assert len(made) == len(expected[2])  # until another iteration begins
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
    with pytest.raises(lz.PipelineError, match="a newer iteration of it has begun"):
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
    assert 1 <= len(errors) <= 3  # a worker may meet a later error before an earlier one


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


class Failing:
    """A sampler without a len, which fails at the fifth index, as often as it is told to."""

    def __init__(self, times: int) -> None:
        self.times = times

    def __iter__(self) -> Iterator[int]:
        for index in range(10):
            if index == 4 and self.times:
                self.times -= 1
                raise OSError("lost")
            yield index


@pytest.mark.parametrize("workers", WORKERS)
def test_gl13_a_sampler_that_fails_loses_nothing(workers: dict[str, Any]) -> None:
    errors: list[BaseException] = []
    with loader(10, 3, sampler=Failing(2), **workers) as made:
        assert joined(map(indices, insistent(iter(made), errors))) == list(range(10))
    assert [str(error) for error in errors] == ["lost", "lost"]


@pytest.mark.parametrize("workers", WORKERS)
def test_gl14_none_from_a_batch_sampler_is_an_error_and_no_end(workers: dict[str, Any]) -> None:
    with loader(batch_sampler=[[0], None, [1]], **workers) as made:
        iterator = iter(made)
        assert next(iterator) == [0]
        with pytest.raises(TypeError, match=r"must be a list of indices.*got None"):
            next(iterator)


@pytest.mark.parametrize("workers", WORKERS)
def test_gl14_none_is_an_index_like_any_other_and_so_is_a_none_item(
    workers: dict[str, Any],
) -> None:
    takes_none = Indexed(3, lambda index: index)
    with ShardedDataLoader(
        takes_none, 2, sampler=[0, None, 1, None, None], batchify_fn=list, **workers
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
    made = ShardedDataLoader(WHOSE, 1, num_workers=2, batchify_fn=list)
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


class Lines:
    """The ints in the lines of a file, which is open while they are read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[int]:
        with self.path.open() as file:
            yield from map(int, file)


@pytest.mark.parametrize("workers", WORKERS)
def test_gl16_close_closes_what_the_sampler_has_open(
    workers: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "indices"
    path.write_text("".join(f"{index}\n" for index in range(50)))
    gc.disable()
    try:
        made = loader(50, 1, sampler=lz.source(Lines(path)), **workers)
        found: list[Any] = []
        for taken in (1, 3, 0):
            batches = iter(made)
            found += [indices(batch) for batch in islice(batches, taken)]
            state = made.state_dict()
            made.close()
            assert not open_files(tmp_path)
            made.load_state_dict(state)
        found += [indices(batch) for batch in made]
        assert joined(found) == list(range(50))
        assert not open_files(tmp_path)
    finally:
        gc.enable()


@pytest.mark.parametrize("taken", [5, 20])
def test_gl16_dropping_the_loader_ends_the_workers(taken: int) -> None:
    gc.disable()
    try:
        made = ShardedDataLoader(WHOSE, 1, num_workers=2, batchify_fn=list)
        pids = {pid for batch in islice(made, taken) for pid, _ in batch}
        del made
        assert pids
        until(lambda: not any(map(is_alive, pids)))
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

"""Workers of a `DataLoader`: their info and draws, and iterables that they read, as in torch."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import islice
from os import getpid
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from lazyckpt.compat import seqtools as ours
from tests.compat.seqtools.cases import as_list, fails_at_five, same
from tests.helpers import worker_pids


def draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), float(torch.rand(()))


class Drawing(Dataset[Any]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return index, draws()


class Rows:
    """Draws in a dataset that returns whole batches."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return index, draws()

    def __getitems__(self, indices: list[int]) -> Any:
        return [self[i] for i in indices]


KINDS: dict[str, dict[str, Any]] = {
    "in order": {},
    "shuffled": {"shuffle": True},
    "by a sampler": {"sampler": [3, 3, 1, 3, 0, 3, 3]},
    "by torch's sampler": {"sampler": torch.utils.data.SequentialSampler(range(7))},
    "alone": {"batch_size": None},
    "with a batch sampler": {"batch_sampler": [[1, 2], [2, 1], [1, 2]]},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dataset", [Drawing(), Rows()], ids=["items", "batches"])
def test_draws_are_those_of_the_batch_whichever_worker_makes_it(kind: str, dataset: Any) -> None:
    options: dict[str, Any] = {"batch_size": 2, "collate_fn": with_draws, **KINDS[kind]}
    if kind == "with a batch sampler":
        del options["batch_size"]

    def loader(workers: int) -> Any:
        torch.manual_seed(3)
        return ours.DataLoader(dataset, num_workers=workers, **options)

    two = loader(2)
    epochs = [list(two), list(two)]
    assert list(loader(1)) == epochs[0]
    found = [draw for epoch in epochs for batch in epoch for draw in drawn(batch)]
    assert len({*found}) == len(found)  # an item that comes twice is a different object
    resumed = loader(2)
    stopped = loader(2)
    part = list(islice(stopped, 1))
    resumed.load_state_dict(stopped.state_dict())
    assert part + list(resumed) == epochs[0]
    kept = ours.DataLoader(dataset, num_workers=3, persistent_workers=True, seed=3, **options)
    assert [list(kept), list(kept)] == epochs


def with_draws(batch: Any) -> Any:
    return batch, draws()


def drawn(batch: Any) -> list[Any]:
    items, own = batch
    pairs = [items] if isinstance(items, tuple) else items
    return [own, *(draw for _, draw in pairs)]


def test_without_workers_draws_are_the_programs() -> None:
    torch.manual_seed(0)
    expected = [float(torch.rand(())) for _ in range(3)]
    torch.manual_seed(0)
    loader = ours.DataLoader([0, 1, 2], None, collate_fn=lambda _: float(torch.rand(())))
    assert list(loader) == expected


def test_what_a_function_of_a_sequence_draws() -> None:
    def found() -> Any:
        data = ours.smap(lambda x: (x, draws()), range(9))
        return list(ours.DataLoader(data, 2, num_workers=2, seed=1, collate_fn=same))

    assert found() == found()


def test_worker_seeds_fit_torch() -> None:
    loader = ours.DataLoader(Asking(), None, num_workers=2, seed=(1 << 64) - 1, collate_fn=same)
    for epoch in range(4):
        for info_seed, torch_seed in loader:
            assert torch.tensor([info_seed, torch_seed]).dtype == torch.int64, epoch


class Asking(Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None
        return info.seed, torch.initial_seed()


def test_a_seed_that_worker_init_fn_gives_torch_stays() -> None:
    loader = ours.DataLoader(
        Asking(),
        None,
        num_workers=2,
        collate_fn=same,
        worker_init_fn=lambda _: torch.manual_seed(5),
    )
    assert {seed for _, seed in loader} == {5}


def test_workers_of_data_by_index_know_who_they_are() -> None:
    dataset = Numbered()

    def open_it(worker: int) -> None:
        info: Any = get_worker_info()
        assert info.seed == torch.initial_seed()
        assert all(f"{name}=" in repr(info) for name in ("id", "num_workers", "seed", "dataset"))
        info.dataset.opened = worker, info.id, info.num_workers

    loader = ours.DataLoader(dataset, None, num_workers=2, worker_init_fn=open_it, collate_fn=same)
    assert {*loader} <= {(0, 0, 2), (1, 1, 2)}
    assert get_worker_info() is None
    assert dataset.opened is None


class Numbered(Dataset[Any]):
    opened: Any = None

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        return self.opened


class Span(IterableDataset[Any]):
    """The numbers of a range, its parts read by the workers: torch's documentation's example."""

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        start, stop = self.start, self.stop
        if info is not None:
            share = -(-(stop - start) // info.num_workers)
            start += info.id * share
            stop = min(start + share, stop)
        return iter(range(start, stop))


class Split(IterableDataset[Any]):
    """The same, divided by `worker_init_fn`: the other example."""

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop

    def __iter__(self) -> Iterator[Any]:
        return iter(range(self.start, self.stop))


def divide(worker: int) -> None:
    info: Any = get_worker_info()
    data = info.dataset
    share = -(-(data.stop - data.start) // info.num_workers)
    data.start += worker * share
    data.stop = min(data.start + share, data.stop)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@settings(max_examples=5)
@given(
    st.integers(0, 20),
    st.integers(1, 3),
    st.one_of(st.none(), st.integers(1, 4)),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_an_iterable_is_read_in_the_workers_as_by_torch(
    size: int, workers: int, k: int | None, drops: bool, is_split: bool, data: st.DataObject
) -> None:
    dataset: Any = (Split if is_split else Span)(0, size)
    options: dict[str, Any] = {"collate_fn": same, "drop_last": drops and k is not None}
    options["worker_init_fn"] = divide if is_split else None
    expected = list(TorchLoader(dataset, k, num_workers=workers, **options))

    def loader(count: int) -> Any:
        return ours.DataLoader(dataset, k, num_workers=count, seed=1, **options)

    mine = loader(workers)
    assert list(mine) == expected == list(mine)
    cut = data.draw(st.integers(0, len(expected)))
    stopped = loader(workers)
    batches = iter(stopped)
    part = list(islice(batches, cut))
    state = json.loads(json.dumps(stopped.state_dict()))
    assert part + list(batches) == expected
    for count in (workers, 0, 2):  # a state has how many readers there are
        resumed = loader(count)
        resumed.load_state_dict(state)
        assert part + list(resumed) == expected
        assert list(resumed) == expected
        assert get_worker_info() is None


class Shuffling(IterableDataset[Any]):
    """Draws from all generators, at first and on the way."""

    def __init__(self) -> None:
        self.given = 0

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        order = list(range(info.id, 12, info.num_workers))
        random.shuffle(order)
        for each in order:
            self.given += 1
            yield each, self.given, info.seed, draws()


@pytest.mark.parametrize("batch_size", [None, 1, 4])
def test_what_readers_draw_is_the_same_wherever_a_resume_reads(batch_size: int | None) -> None:
    def loader(workers: int) -> Any:
        return ours.DataLoader(
            Shuffling(), batch_size, num_workers=workers, seed=4, collate_fn=with_draws
        )

    mine = loader(2)
    epochs = [list(mine), list(mine)]
    assert epochs[0] != epochs[1]
    stopped = loader(2)
    batches = iter(stopped)
    for cut in range(len(epochs[0])):
        for workers in (0, 2)[: 1 + (cut == 3)]:
            resumed = loader(workers)
            resumed.load_state_dict(stopped.state_dict())
            before = draws_of_the_program()
            assert list(resumed) == epochs[0][cut:]
            assert draws_of_the_program() == before
            assert list(resumed) == epochs[1]
        next(batches)


def draws_of_the_program() -> Any:
    return random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()  # type: ignore[index]


def test_readers_read_at_the_same_time_and_each_in_its_own_process() -> None:
    loader = ours.DataLoader(Where(), None, num_workers=3, collate_fn=same, prefetch_factor=2)
    batches = iter(loader)
    first = list(islice(batches, 3))
    assert len({process for _, process in first} | {getpid()}) == 4
    assert [number for number, _ in first] == [0, 1, 2]
    del batches, loader
    assert not worker_pids()


class Where(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        for _ in range(50):
            yield info.id, getpid()


class Failing(Span):
    def __iter__(self) -> Iterator[Any]:
        return (fails_at_five(x) for x in super().__iter__())


def test_an_error_of_a_reader_is_raised_in_its_turn() -> None:
    loader = ours.DataLoader(Failing(0, 8), 2, num_workers=2, collate_fn=as_list)
    batches = iter(loader)
    assert list(islice(batches, 1)) == [[0, 1]]
    for _ in range(2):  # it's tried again
        with pytest.raises(KeyError, match="five"):
            next(batches)
        assert loader.state_dict()["items"] == 1


def test_persistent_readers_go_on() -> None:
    loader = ours.DataLoader(
        Counting(), None, num_workers=2, persistent_workers=True, collate_fn=same
    )
    first, second = list(loader), list(loader)
    assert [epoch for epoch, _ in first] == [1] * 4
    assert [epoch for epoch, _ in second] == [2] * 4
    assert {process for _, process in first} == {process for _, process in second}


class Counting(IterableDataset[Any]):
    """A copy of which each worker has."""

    epochs = 0

    def __iter__(self) -> Iterator[Any]:
        self.epochs += 1
        return iter([(self.epochs, getpid())] * 2)

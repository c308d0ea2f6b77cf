"""Behaviours of loaders in torch's and torchdata's tests: starts, ends, numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import pytest
import torch
from datasets import IterableDataset as HubStream
from torch.utils.data import (
    ChainDataset,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Sampler,
    default_collate,
    random_split,
)
from torch.utils.data import DataLoader as TorchLoader

from lazyckpt.compat import seqtools as ours
from tests.compat.seqtools.cases import as_list, plain, same
from tests.world.compat.seqtools.cases import IterableTen


class Told(Dataset[Any]):
    """Returns its index."""

    def __init__(self, size: int = 12) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        return index


def test_data_are_asked_for_plain_ints() -> None:
    for part in random_split(Told(), [0.5, 0.5]):
        for options in ({}, {"shuffle": True}, {"sampler": [3, 1]}):
            loader = ours.DataLoader(part, 2, collate_fn=same, **options)
            assert {type(index) for batch in loader for index in batch} == {int}


class Bulk(Sampler[list[int]]):
    """Draws whole batches of indices; each is one request to the data."""

    def __iter__(self) -> Iterator[list[int]]:
        return (some.tolist() for some in torch.randperm(12).split(5))

    def __len__(self) -> int:
        return 3


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_of_batches_without_batching(workers: int) -> None:
    def loader() -> Any:
        return ours.DataLoader(Told(), None, sampler=Bulk(), num_workers=workers, seed=3)

    mine = loader()
    batches = list(mine)
    assert len(mine) == len(batches) == 3
    assert sorted(chain(*batches)) == list(range(12))
    list(islice(stopped := loader(), 1))
    resumed = loader()
    resumed.load_state_dict(stopped.state_dict())
    assert list(resumed) == batches[1:]


class Unreadable(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        raise LookupError("no file")


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_an_iterables_iter(workers: int) -> None:
    with pytest.raises(LookupError, match="no file"):
        list(ours.DataLoader(Unreadable(), num_workers=workers))


class Unwritten(Dataset[Any]):
    """Has no `__getitem__`; torch's raises."""

    def __len__(self) -> int:
        return 5


@pytest.mark.parametrize("workers", [0, 2])
def test_each_batch_may_fail_and_the_next_one_is_tried(workers: int) -> None:
    for kind in (ours.DataLoader, TorchLoader):
        loader = kind(Unwritten(), 2, shuffle=True, num_workers=workers)
        batches = iter(loader)
        for _ in range(len(loader)):
            with pytest.raises(NotImplementedError):
                next(batches)
        assert list(batches) == []


def test_a_start_method_that_is_none() -> None:
    for kind in (ours.DataLoader, TorchLoader):
        with pytest.raises(ValueError, match=r"start.method"):
            kind(range(3), num_workers=1, multiprocessing_context="bad")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="start_method"):
        ours.DataLoader(range(3), num_workers=1, multiprocessing_context=object())


def test_loaders_at_once_and_torchs_beside_them() -> None:
    loaders = [
        ours.DataLoader(Told(), 4, num_workers=1, multiprocessing_context=method, collate_fn=same)
        for method in (None, "fork")
    ]
    theirs = TorchLoader(Told(), 4, num_workers=1, collate_fn=same)
    for batches in zip(*loaders, theirs, strict=True):
        assert all(batch == batches[0] for batch in batches)


def test_what_is_ready_ahead_changes_nothing() -> None:
    expected = list(ours.DataLoader(Told(), 2, True, seed=1, collate_fn=same))
    for ahead in (1, 3):
        loader = ours.DataLoader(
            Told(), 2, True, seed=1, num_workers=2, prefetch_factor=ahead, collate_fn=same
        )
        assert list(loader) == expected


def test_a_list_and_a_tuple_of_a_loader() -> None:
    for dataset in (Told(4), IterableTen(4)):
        for workers in (0, 1):
            loader = ours.DataLoader(dataset, None, num_workers=workers)
            assert list(loader) == [0, 1, 2, 3]
            assert tuple(loader) == (0, 1, 2, 3)
            assert {type(item) for item in loader} == {int}


@pytest.mark.parametrize("workers", [0, 1])
def test_chained_iterables(workers: int) -> None:
    for dataset in (
        IterableTen(3) + IterableTen(2),
        ChainDataset([IterableTen(3), IterableTen(2)]),
    ):
        loader = ours.DataLoader(dataset, 2, num_workers=workers, collate_fn=as_list)
        assert list(loader) == [[0, 1], [2, 0], [1]]


@pytest.mark.parametrize("shuffle", [False, True])
def test_ranks_share_the_items_without_the_last(shuffle: bool) -> None:
    found = [
        item
        for rank in range(3)
        for batch in ours.DataLoader(
            Told(11),
            2,
            sampler=DistributedSampler(Told(11), 3, rank, shuffle=shuffle, drop_last=True),
            drop_last=True,
            collate_fn=same,
        )
        for item in batch
    ]
    assert len(found) == len({*found}) == 6  # a batch each


class Convolved(Dataset[Any]):
    """Uses torch's threads, here and in a worker that was forked since."""

    def __init__(self) -> None:
        self.x = torch.ones(1, 1, 24_000)
        self[0]

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.nn.functional.conv1d(self.x, torch.ones(1, 1, 2))


def test_torchs_threads_before_a_fork() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        loader = ours.DataLoader(Convolved(), num_workers=1, multiprocessing_context="fork")
        assert [batch.shape for batch in loader] == [(1, 1, 1, 23_999)]
    finally:
        torch.set_num_threads(threads)


def is_shared(batch: list[Any]) -> bool:
    return bool(default_collate(batch).is_shared())


def test_in_a_worker_batches_are_collated_in_shared_memory() -> None:
    for kind in (ours.DataLoader, TorchLoader):
        for workers in (0, 1):
            loader = kind([torch.zeros(1)], num_workers=workers, collate_fn=is_shared)  # type: ignore[arg-type]
            assert list(loader) == [bool(workers)]


def unbound(batch: list[Any]) -> Any:
    return [each.clone() for each in batch]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_tensors() -> None:
    data: Any = [torch.nested.nested_tensor([torch.arange(5.0) + i]) for i in range(3)]
    batches = ours.DataLoader(data, 1, num_workers=2, collate_fn=unbound)
    for (made,), given in zip(batches, data, strict=True):
        assert plain(list(made.unbind())) == plain(list(given.unbind()))
    with pytest.raises(RuntimeError, match="collate_fn"):
        next(iter(ours.DataLoader(data, 1, num_workers=2)))


class Kept(Told):
    start = 0

    def __getitem__(self, index: int) -> tuple[int, int]:
        return self.start, os.getpid()


def test_persistent_workers_keep_the_data_that_they_began_with() -> None:
    dataset = Kept(4)
    loader = ours.DataLoader(dataset, None, num_workers=1, persistent_workers=True, collate_fn=same)
    epochs = []
    for dataset.start in range(3):
        epochs.append({*loader})
    assert epochs == [epochs[0]] * 3
    assert {start for start, _ in epochs[0]} == {0}


PROGRAM = """
from lazyckpt.compat.seqtools import DataLoader

def main():
    loader = DataLoader(
        range(10**7), 40_960, num_workers=2, persistent_workers={persistent}, collate_fn=len
    )
    held = iter(loader)
    for batch in held:
        {then}

main()
"""


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(("then", "code"), [("break", 0), ("raise KeyError('mine')", 1)])
def test_a_loop_that_is_left_ends_the_program(persistent: bool, then: str, code: int) -> None:
    program = PROGRAM.format(persistent=persistent, then=then)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code
    assert done.stderr.splitlines()[-1:] == ["KeyError: 'mine'"] * code


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [Told, IterableTen])
def test_batches_are_numbered_from_where_a_state_stands(kind: Any, workers: int) -> None:
    def loader() -> Any:
        return ours.DataLoader(kind(8), 2, num_workers=workers, collate_fn=same)

    whole = list(enumerate(loader()))
    mine = loader()
    assert list(mine.enumerate()) == list(mine.enumerate(0)) == whole
    assert list(mine.enumerate(start=50)) == [(50 + i, batch) for i, batch in whole]
    for number, _ in mine.enumerate():
        if number == 2:
            break
    resumed = loader()
    resumed.load_state_dict(mine.state_dict())
    assert list(resumed.enumerate()) == whole[3:]
    assert list(resumed.enumerate()) == whole
    resumed.load_state_dict(mine.state_dict())
    assert list(enumerate(resumed)) == list(enumerate(batch for _, batch in whole[3:]))


@pytest.mark.parametrize("cut", [0, 4])
def test_a_state_soon_after_a_resume(cut: int) -> None:
    """Before every reader has yielded a batch."""

    def loader() -> Any:
        return ours.DataLoader(
            IterableTen(), 2, num_workers=2, persistent_workers=True, collate_fn=as_list
        )

    mine = loader()
    batches = iter(mine)
    list(islice(batches, cut))
    state = mine.state_dict()
    for more in (0, 1):
        resumed, again = loader(), loader()
        resumed.load_state_dict(state)
        rest = iter(resumed)
        first = list(islice(rest, more))
        again.load_state_dict(json.loads(json.dumps(resumed.state_dict())))
        assert list(again) == list(rest)
        assert len(first) == more


def records() -> Iterator[dict[str, int]]:
    for number in range(9):
        yield {"number": number}


@pytest.mark.parametrize("workers", [0, 2])
def test_streams_of_hugging_face_go_on_from_their_states(workers: int) -> None:
    def loader() -> Any:
        dataset: Any = HubStream.from_generator(records)
        return ours.DataLoader(dataset, 2, num_workers=workers, collate_fn=same)

    stopped = loader()
    batches = iter(stopped)
    part = list(islice(batches, 3))
    state = json.loads(json.dumps(stopped.state_dict()))
    whole = part + list(batches)
    assert sum(map(len, whole)) == 9
    resumed = loader()
    resumed.load_state_dict(state)
    assert part + list(resumed) == whole
    resumed.dataset.set_epoch(1)  # or it would begin again from the state, as without a loader
    assert list(resumed) == whole

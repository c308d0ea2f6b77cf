"""Behaviours pinned by torch's and torchdata's own tests: a test here holds each, or rejects it."""

from __future__ import annotations

import ast
import json
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
)
from torch.utils.data import DataLoader as TorchLoader

import lazyckpt as lz
from lazyckpt.compat import seqtools as ours
from tests.compat.seqtools.cases import as_list, plain, same
from tests.world.compat.seqtools.cases import IterableTen

HERE = Path(__file__).parent
PLAIN = HERE.parents[2] / "compat/seqtools"


@cache
def functions_of(file: str) -> set[str]:
    paths = [folder / f"{file}.py" for folder in (HERE, PLAIN)]
    trees = [ast.parse(path.read_text()) for path in paths if path.exists()]
    return {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_a_row_names_a_test_that_is_there_or_a_reason() -> None:
    table = [line for line in (HERE / "behaviours.md").read_text().splitlines() if line[:1] == "|"]
    for row in table:
        _, _, _, held, _ = row.split("|")
        assert held.strip(), row
        for file, name in re.findall(r"`(\S+)::(\S+)`", held):
            assert name in functions_of(file), row


class Squares(Dataset[Any]):
    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> Any:
        return index * index


class WithLength(IterableTen):
    def __len__(self) -> int:
        return self.size


@pytest.mark.parametrize("context", ["fork", multiprocessing.get_context("spawn"), "forkserver"])
@pytest.mark.parametrize("dataset", [Squares(), WithLength(3)], ids=["by index", "iterable"])
def test_start_methods_by_name_and_by_context(context: Any, dataset: Any) -> None:
    loader = ours.DataLoader(
        dataset, 2, num_workers=1, multiprocessing_context=context, collate_fn=as_list
    )
    assert list(loader) == list(ours.DataLoader(dataset, 2, collate_fn=as_list))


class Slow(Squares):
    def __getitem__(self, index: int) -> Any:
        time.sleep(60 * (index == 2))
        return index


def test_a_timeout() -> None:
    loader = ours.DataLoader(Slow(), None, num_workers=2, timeout=1, collate_fn=same)
    with pytest.raises(lz.WorkerTimeout):
        list(loader)
    assert list(islice(loader, 2)) == [0, 1]


class Dying(Squares):
    def __init__(self, path: Path) -> None:
        self.path = path

    def __getitem__(self, index: int) -> Any:
        if index == 4 and not self.path.exists():
            self.path.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return index


def test_a_worker_that_is_killed(tmp_path: Path) -> None:
    loader = ours.DataLoader(Dying(tmp_path / "once"), 2, num_workers=2, collate_fn=as_list)
    batches = iter(loader)
    found = list(islice(batches, 2))
    with pytest.raises(RuntimeError, match="while it worked"):
        next(batches)
    assert found + list(batches) == [[0, 1], [2, 3], [4, 5], [6, 7], [8]]  # with new workers


def refuse(worker: int) -> None:
    raise LookupError(f"no worker {worker}")


@pytest.mark.parametrize("dataset", [Squares(), IterableTen()])
def test_an_error_of_worker_init_fn(dataset: Any) -> None:
    loader = ours.DataLoader(dataset, num_workers=2, worker_init_fn=refuse)
    with pytest.raises(LookupError, match="no worker"):
        next(iter(loader))


@pytest.mark.parametrize("size", [0, 9, 10])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_length_of_an_iterable_is_reckoned(size: int, drop_last: bool) -> None:
    lengths = [
        len(kind(WithLength(size), 3, drop_last=drop_last))
        for kind in (ours.DataLoader, TorchLoader)
    ]
    assert lengths[0] == lengths[1]


def test_data_sets_of_torch() -> None:
    numbers = torch.arange(7.0)
    for dataset in (
        TensorDataset(numbers, numbers * 2),
        StackDataset(numbers, numbers.tolist()),  # type: ignore[arg-type]
        Subset(Squares(), [4, 2, 0]),
        ConcatDataset([Squares(), Subset(Squares(), [1])]),
        ChainDataset([IterableTen(3), IterableTen(2)]),
    ):
        for options in ({}, {"batch_size": None}, {"batch_size": 2, "drop_last": True}):
            theirs: Any = TorchLoader(dataset, **options)
            assert plain(list(ours.DataLoader(dataset, **options))) == plain(list(theirs))


@pytest.mark.parametrize(
    "options",
    [{}, {"shuffle": True}, {"num_workers": 2}, {"num_workers": 1, "persistent_workers": True}],
    ids=str,
)
def test_data_that_grow_or_shrink_between_epochs(options: dict[str, Any]) -> None:
    data = [0, 1, 2]
    loader = ours.DataLoader(data, None, collate_fn=int, seed=1, **options)
    for size in (3, 5, 2):
        data[:] = range(size)
        assert len(loader) == size
        assert sorted(loader) == data


def test_more_workers_than_batches() -> None:
    loader = ours.DataLoader(Squares(), 5, num_workers=4, collate_fn=as_list)
    assert list(loader) == [[0, 1, 4, 9, 16], [25, 36, 49, 64]]


class Nested(Squares):
    def __getitem__(self, index: int) -> Any:
        return list(ours.DataLoader(range(index), 2, collate_fn=as_list))


def test_a_loader_within_a_worker() -> None:
    loader = ours.DataLoader(Nested(), None, num_workers=2, collate_fn=same)
    assert list(loader)[3] == [[0, 1], [2]]


class Threads(Squares):
    def __getitem__(self, index: int) -> Any:
        return torch.get_num_threads()


def test_workers_use_one_thread_each() -> None:
    assert {*ours.DataLoader(Threads(), None, num_workers=2, collate_fn=same)} == {1}


def test_the_programs_generators_are_left_alone() -> None:
    before = torch.get_rng_state()
    for options in ({}, {"shuffle": True}, {"num_workers": 2}):
        list(ours.DataLoader(Squares(), **options))
    list(ours.DataLoader(IterableTen(), num_workers=2))
    assert torch.equal(before, torch.get_rng_state())


def test_large_indices() -> None:
    class Any64:
        def __len__(self) -> int:
            return 1 << 40

        def __getitem__(self, index: int) -> int:
            return index

    indices = [1 << 31, (1 << 40) - 1]
    for workers in (0, 2):
        loader = ours.DataLoader(Any64(), 2, sampler=indices, num_workers=workers)
        assert [batch.tolist() for batch in loader] == [indices]


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1


@pytest.mark.parametrize("keeps", [False, True])
def test_a_loop_that_is_left_and_its_state_while_it_goes_on(keeps: bool) -> None:
    loader = ours.DataLoader(
        Endless(), 3, num_workers=2, persistent_workers=keeps, collate_fn=as_list
    )
    batches = iter(loader)
    found = list(islice(batches, 3))
    states = []
    for _ in range(4):
        states.append(json.dumps(loader.state_dict()))
        found.append(next(batches))
    for number, state in enumerate(states):
        loader.load_state_dict(state)
        assert json.dumps(loader.state_dict()) == state
        assert list(islice(loader, 1)) == found[number + 3 : number + 4]
    assert list(islice(batches, 2)) == [[9, 10, 11], [12, 13, 14]]


def test_states_before_the_first_batch_and_after_the_last() -> None:
    for dataset in (Squares(), WithLength(9)):
        loader = ours.DataLoader(dataset, 2, num_workers=2, seed=0)
        first = loader.state_dict()
        whole = plain(list(loader))
        last = loader.state_dict()
        assert first != last
        for state in (first, last, first):
            loader.load_state_dict(state)
            assert plain(list(loader)) == whole
        for refused in ({}, {"_snapshot": {}}, {"_num_yielded": 3}):
            with pytest.raises(lz.InvalidState):
                loader.load_state_dict(refused)


def test_affinity_that_worker_init_fn_sets() -> None:
    one = {min(os.sched_getaffinity(0))}
    loader = ours.DataLoader(
        Affinity(),
        None,
        num_workers=2,
        worker_init_fn=lambda _: os.sched_setaffinity(0, one),
        collate_fn=same,
    )
    assert all(found == one for found in loader)


class Affinity(Squares):
    def __getitem__(self, index: int) -> Any:
        return os.sched_getaffinity(0)

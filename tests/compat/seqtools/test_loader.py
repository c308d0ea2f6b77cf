"""`DataLoader`, item by item; tests/world compares it with torch's."""

from __future__ import annotations

import gc
import os
from itertools import cycle, islice
from random import random
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.compat import seqtools as ours
from lazyckpt.compat.seqtools import fetching
from tests.compat.seqtools.cases import (
    REFUSED,
    TOLD,
    IterableTen,
    Repeated,
    as_list,
    fails_at_five,
    plain,
    same,
    tell,
)
from tests.helpers import Indexed, Streamed, worker_pids

FOREVER = Streamed(lambda: cycle([3, 1, 2]))
WHERE = Indexed(6, lambda _: os.getpid())


@pytest.mark.parametrize("workers", [1, 2])
def test_sq1_collate_and_items_are_made_by_workers(workers: int) -> None:
    loader = ours.DataLoader(WHERE, 2, num_workers=workers, collate_fn=where, prefetch_factor=3)
    for maker, makers in loader:
        assert os.getpid() not in {maker, *makers}
    del loader
    gc.collect()
    assert not worker_pids()


def where(batch: list[int]) -> tuple[int, list[int]]:
    return os.getpid(), batch


def test_sq2_what_comes_first() -> None:
    options: dict[str, Any] = {"collate_fn": as_list, "seed": 0}
    loader = ours.DataLoader(
        range(9), shuffle=True, sampler=[1, 2], batch_sampler=[[5], [6, 7]], **options
    )
    assert list(loader) == [[5], [6, 7]]
    assert list(ours.DataLoader(range(9), 2, True, [1, 2, 8], **options)) == [[1, 2], [8]]
    alone = ours.DataLoader(range(3), None, sampler=[2, 0], collate_fn=same)
    assert (list(alone), len(alone)) == ([2, 0], 2)


def test_sq1_it_may_stand_in_annotations() -> None:
    assert ours.DataLoader[int]("ab", 2).batch_size == 2  # type: ignore[misc]


def test_sq2_each_epoch_has_its_own_permutation() -> None:
    def loader(**options: Any) -> Any:
        return ours.DataLoader(range(50), 8, shuffle=True, collate_fn=as_list, **options)

    mine = loader(seed=1)
    epochs = [[x for batch in mine for x in batch] for _ in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    again = loader(seed=1, num_workers=2)
    assert [[x for batch in again for x in batch] for _ in range(2)] == epochs[:2]
    next(iter(again))  # a loop that was left: the next one is the next epoch
    other = loader(seed=1)
    other.load_state_dict(again.state_dict())
    assert [x for batch in other for x in batch] == epochs[2][8:]


@pytest.mark.parametrize("workers", [0, 2])
def test_sq4_iterables_and_endless_samplers(workers: int) -> None:
    stream = ours.DataLoader(IterableTen(), 4, num_workers=workers, collate_fn=as_list)
    expected = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert list(stream) == expected == list(stream)
    with pytest.raises(TypeError):
        len(stream)
    endless = ours.DataLoader(
        list("abcd"), 2, sampler=FOREVER, num_workers=workers, collate_fn="".join
    )
    batches = iter(endless)
    assert list(islice(batches, 4)) == ["db", "cd", "bc", "db"]
    resumed = ours.DataLoader(list("abcd"), 2, sampler=FOREVER, collate_fn="".join)
    resumed.load_state_dict(endless.state_dict())
    assert list(islice(resumed, 2)) == list(islice(batches, 2)) == ["cd", "bc"]
    pipeline = lz.source(range(9)) | lz.filter(lambda x: x % 2)
    assert list(ours.DataLoader(pipeline, 3, collate_fn=as_list)) == [[1, 3, 5], [7]]


def test_sq4_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(fetching, "import_module", missing)
    assert plain(list(ours.DataLoader([0.5, 1.5], 2))) == plain([np.array([0.5, 1.5])])
    assert list(ours.DataLoader([0.5, "x"], None)) == [0.5, "x"]


def test_sq8_an_empty_sampler_gives_nothing() -> None:
    for options in ({"sampler": []}, {"batch_sampler": []}, {"sampler": Repeated([])}):
        loader = ours.DataLoader(range(5), **options)
        assert (list(loader), len(loader)) == ([], 0)
    assert list(ours.DataLoader([])) == list(ours.DataLoader([], shuffle=True)) == []


def test_sq28_errors_of_a_loader_are_the_batches_own() -> None:
    for workers in (0, 2):
        data = ours.smap(fails_at_five, range(9))
        loader = ours.DataLoader(data, 2, num_workers=workers, collate_fn=as_list)
        batches = iter(loader)
        assert list(islice(batches, 2)) == [[0, 1], [2, 3]]
        with pytest.raises(ours.EvaluationError, match="item 5"):
            next(batches)
        state = loader.state_dict()
        assert state["items"] == 2  # the one that failed is tried again by a resume
        assert list(batches) == [[6, 7], [8]]
        resumed = ours.DataLoader(ours.smap(same, range(9)), 2, collate_fn=as_list)
        resumed.load_state_dict(state)
        assert list(resumed) == [[4, 5], [6, 7], [8]]


def test_sq1_worker_init_and_seeds() -> None:
    loader = ours.DataLoader(
        Drawing(), None, num_workers=2, worker_init_fn=tell, seed=7, collate_fn=same
    )
    first, second = list(loader), list(loader)
    assert {worker for worker, _ in first} <= {0, 1}
    assert not {draw for _, draw in first} & {draw for _, draw in second}  # nor twice the same


class Drawing:
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[int, tuple[float, float]]:
        return TOLD[-1], (float(np.random.random()), random())


def wrong_arguments_are_refused(kind: Any, stream: Any) -> None:
    for dataset, options in (
        (stream, {"shuffle": True}),
        (stream, {"sampler": [1]}),
        (stream, {"batch_sampler": [[1]]}),
        (range(3), {"batch_size": None, "drop_last": True}),
        (range(3), {"num_workers": -1}),
        (range(3), {"timeout": -1}),
        (range(3), {"batch_size": 0}),
    ):
        with pytest.raises(REFUSED):
            kind(dataset, **options)


def test_sq1_wrong_arguments() -> None:
    wrong_arguments_are_refused(ours.DataLoader, IterableTen())
    with pytest.raises(ValueError, match="one-shot"):
        ours.DataLoader(range(3), sampler=iter([1]))

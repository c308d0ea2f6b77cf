"""`DataLoader` beside torch's, item by item."""

from __future__ import annotations

import gc
import json
import os
from collections import namedtuple
from collections.abc import Callable, Iterator
from itertools import islice
from multiprocessing import active_children
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import (
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import lazyckpt as lz
from lazyckpt.compat import pinning
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

Point = namedtuple("Point", "x y")


class Forever:
    def __iter__(self) -> Iterator[int]:
        while True:
            yield from (3, 1, 2)


@pytest.mark.parametrize("workers", [1, 2])
def test_sq1_collate_and_items_are_made_by_workers(workers: int) -> None:
    loader = ours.DataLoader(Where(), 2, num_workers=workers, collate_fn=where, prefetch_factor=3)
    for maker, makers in loader:
        assert os.getpid() not in {maker, *makers}
    del loader
    gc.collect()
    assert not [each for each in active_children() if each.name.startswith("lazyckpt")]


class Where:
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        return os.getpid()


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


class Positions(list[int]):
    """A sampler that can tell where an index is to come, too."""

    def __iter__(self) -> Iterator[int]:
        return (super(Positions, self).index(i) for i in range(len(self)))


@pytest.mark.parametrize(
    "sampler", [Positions([2, 0, 1]), {2: "c", 0: "a"}, torch.tensor([2, 0]), (2, 0)]
)
def test_sq2_a_sampler_is_iterated_over_whatever_its_indices_give(sampler: Any) -> None:
    theirs, loader = (kind("abc", 2, sampler=sampler) for kind in (TorchLoader, ours.DataLoader))
    expected = list(theirs)
    assert list(loader) == expected
    assert (len(loader), next(iter(loader))) == (len(theirs), expected[0])
    resumed = ours.DataLoader("abc", 2, sampler=sampler)
    resumed.load_state_dict(loader.state_dict())
    assert list(resumed) == expected[1:]


def test_sq1_it_may_stand_in_annotations() -> None:
    assert ours.DataLoader[int]("ab", 2).batch_size == 2  # type: ignore[misc]


def test_sq2_each_epoch_has_its_own_permutation() -> None:
    def loader(**options: Any) -> Any:
        return ours.DataLoader(range(50), 8, shuffle=True, collate_fn=as_list, **options)

    mine = loader(seed=1)
    epochs = [[x for batch in mine for x in batch] for _ in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    again = loader(generator=torch.Generator().manual_seed(1), num_workers=2)
    assert [[x for batch in again for x in batch] for _ in range(2)] == epochs[:2]
    next(iter(again))  # a loop that was left: the next one is the next epoch
    other = loader(seed=1)
    other.load_state_dict(again.state_dict())
    assert [x for batch in other for x in batch] == epochs[2][8:]
    torch.manual_seed(11)
    first = loader()
    rest = list(first)
    state = first.state_dict()  # the start of the next epoch
    torch.manual_seed(12)
    second = loader()
    second.load_state_dict(json.dumps(state))
    assert list(second) == list(first) != rest


def test_sq2_torchs_samplers_repeat_themselves() -> None:
    def samplers(seed: int | None) -> list[Any]:
        own = None if seed is None else torch.Generator().manual_seed(seed)
        return [
            RandomSampler(range(30), generator=own),
            RandomSampler(range(30), True, 50, generator=own),
            SubsetRandomSampler(range(9, 30), generator=own),
            WeightedRandomSampler([1.0, 2.0, 3.0], 40, generator=own),
        ]

    for number in range(4):
        for seed in (None, 4):
            options: dict[str, Any] = {"collate_fn": as_list, "seed": 2}

            def loader(number=number, seed=seed, options=options) -> Any:
                return ours.DataLoader(range(30), 4, sampler=samplers(seed)[number], **options)

            before = torch.get_rng_state()
            mine = loader()
            epochs = [list(mine) for _ in range(3)]
            assert torch.equal(before, torch.get_rng_state())
            assert epochs[0] != epochs[1] != epochs[2]
            if seed is not None:
                other = TorchLoader(
                    range(30), 4, sampler=samplers(seed)[number], collate_fn=as_list
                )
                assert list(other) == epochs[0]
            away = loader()
            list(away)
            part = list(islice(away, 3))
            resumed = loader()
            resumed.load_state_dict(away.state_dict())
            assert part + list(resumed) == epochs[1]
            assert list(resumed) == epochs[2]
            again = ours.DataLoader(range(30), 4, sampler=resumed.sampler, **options)
            again.load_state_dict(json.loads(json.dumps(away.state_dict())))
            assert part + list(again) == epochs[1]
            assert list(again) == epochs[2]


def test_sq3_large_batches_come_through_shared_memory() -> None:
    loader = ours.DataLoader(Pictures(), 4, num_workers=2, shm_size=1)
    kept = list(loader)
    assert all(isinstance(batch, torch.Tensor) for batch in kept)
    assert torch.equal(torch.cat(kept)[:, 0, 0], torch.arange(24))
    kept[0][:] = -1
    assert int(kept[1].min()) == 4


class Pictures:
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((32, 64), index)


FIELDS = [
    lambda i: torch.tensor([i, i]),
    lambda i: np.array([i, i / 2]),
    lambda i: i,
    lambda i: i / 2,
    lambda i: bool(i % 2),
    lambda i: f"text {i}",
    lambda i: b"bytes",
    lambda i: (i, float(i)),
    lambda i: Point(i, str(i)),
    lambda i: {"x": i, "y": [i, (i, 0.5)]},
    lambda i: np.float32(i),
]


@given(st.sampled_from(FIELDS), st.integers(1, 5))
def test_sq4_collate_as_torch_does(make: Callable[[int], Any], size: int) -> None:
    data = [make(i) for i in range(size)]
    assert plain(next(iter(ours.DataLoader(data, size)))) == plain(
        next(iter(TorchLoader(data, size)))
    )
    assert plain(list(ours.DataLoader(data, None))) == plain(list(TorchLoader(data, None)))


@pytest.mark.parametrize("workers", [0, 2])
def test_sq4_iterables_and_endless_samplers(workers: int) -> None:
    stream = ours.DataLoader(IterableTen(), 4, num_workers=workers, collate_fn=as_list)
    each = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]  # once for each worker, as torch gives them
    expected = [batch for batch in each for _ in range(workers or 1)]
    assert list(stream) == expected == list(stream)
    with pytest.raises(TypeError):
        len(stream)
    endless = ours.DataLoader(
        list("abcd"), 2, sampler=Forever(), num_workers=workers, collate_fn="".join
    )
    batches = iter(endless)
    assert list(islice(batches, 4)) == ["db", "cd", "bc", "db"]
    resumed = ours.DataLoader(list("abcd"), 2, sampler=Forever(), collate_fn="".join)
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


@given(st.integers(0, 30), st.integers(1, 7), st.booleans())
def test_sq5_the_length_is_that_of_iterating(size: int, k: int, drop_last: bool) -> None:
    loader = ours.DataLoader(range(size), k, drop_last=drop_last)
    assert len(loader) == len(list(loader)) == size // k + (bool(size % k) and not drop_last)


def test_sq6_floats_and_strings() -> None:
    assert plain(next(iter(ours.DataLoader([(0.5, "a"), (1.5, "b")], 2)))) == plain(
        [torch.tensor([0.5, 1.5], dtype=torch.float64), ("a", "b")]
    )


def test_sq7_pinning_leaves_alone_what_is_no_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[Any] = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: pinned.append(1) or self)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    item = {"x": torch.tensor(1), "y": ["s", None], "p": Point(torch.tensor(2), 0.5), "t": (1,)}
    loader = ours.DataLoader([item], None, pin_memory=True, collate_fn=same)
    assert plain(list(loader)) == plain([item])
    assert len(pinned) == 2
    held = SimpleNamespace(pin_memory=lambda: "pinned")
    assert pinning.pinned([held, None]) == ["pinned", None]


def test_sq7_without_a_device_pinning_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    for item in (torch.arange(3), {"x": torch.tensor(1)}, SimpleNamespace(pin_memory=None)):
        assert plain(list(ours.DataLoader([item], None, pin_memory=True))) == plain([item])


def test_sq8_an_empty_sampler_gives_nothing() -> None:
    for options in ({"sampler": []}, {"batch_sampler": []}, {"sampler": Repeated([])}):
        loader = ours.DataLoader(range(5), **options)
        assert (list(loader), len(loader)) == ([], 0)
    assert list(ours.DataLoader([])) == list(ours.DataLoader([], shuffle=True)) == []


def test_sq9_the_default_shared_memory() -> None:
    loader = ours.DataLoader(Pictures(), 6, num_workers=1, shm_size=None, persistent_workers=True)
    assert [tuple(batch.shape) for batch in loader] == [(6, 32, 64)] * 4
    assert [int(batch[0, 0, 0]) for batch in loader] == [0, 6, 12, 18]


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
        return TOLD[-1], (float(np.random.random()), float(torch.rand(())))


def test_sq1_wrong_arguments() -> None:
    stream: Any = IterableTen()
    for dataset, options in (
        (stream, {"shuffle": True}),
        (stream, {"sampler": [1]}),
        (stream, {"batch_sampler": [[1]]}),
        (range(3), {"batch_size": None, "drop_last": True}),
        (range(3), {"num_workers": -1}),
        (range(3), {"timeout": -1}),
        (range(3), {"batch_size": 0}),
    ):
        for loader in (ours.DataLoader, TorchLoader):
            with pytest.raises(REFUSED):
                loader(dataset, **options)
    with pytest.raises(ValueError, match="one-shot"):
        ours.DataLoader(range(3), sampler=iter([1]))

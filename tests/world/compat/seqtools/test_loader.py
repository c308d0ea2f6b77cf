"""`DataLoader` compared with torch's, item by item."""

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Callable, Iterator
from itertools import islice
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

from lazyckpt.compat import pinning
from lazyckpt.compat import seqtools as ours
from tests.compat.seqtools import test_loader as plainly
from tests.compat.seqtools.cases import as_list, plain, same
from tests.world.compat.seqtools.cases import IterableTen

Point = namedtuple("Point", "x y")


class Positions(list[int]):
    """A sampler with an `index` method too."""

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


def test_sq2_a_seed_is_torchs_generators() -> None:
    def loader(**options: Any) -> Any:
        return ours.DataLoader(range(50), 8, shuffle=True, collate_fn=as_list, **options)

    mine, again = loader(seed=1), loader(generator=torch.Generator().manual_seed(1))
    for _ in range(2):
        assert list(mine) == list(again)
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


@pytest.mark.parametrize("shm_size", [1, None])
def test_sq3_sq9_large_batches_come_through_shared_memory(shm_size: int | None) -> None:
    loader = ours.DataLoader(Pictures(), 4, num_workers=2, shm_size=shm_size)
    kept = list(loader)
    assert [tuple(batch.shape) for batch in kept] == [(4, 32, 64)] * 6
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
def test_sq4_iterables_are_read_once_for_each_worker(workers: int) -> None:
    stream = ours.DataLoader(IterableTen(), 4, num_workers=workers, collate_fn=as_list)
    each = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    expected = [batch for batch in each for _ in range(workers or 1)]
    assert list(stream) == expected == list(stream)
    with pytest.raises(TypeError):
        len(stream)


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


@pytest.mark.parametrize("kind", [ours.DataLoader, TorchLoader])
def test_sq1_wrong_arguments(kind: Any) -> None:
    plainly.wrong_arguments_are_refused(kind, IterableTen())

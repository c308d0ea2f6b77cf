"""Data sets, samplers and iterators that have states of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import (
    BatchSampler,
    RandomSampler,
    StatefulDistributedSampler,
)

import lazyckpt as lz
from lazyckpt.compat import seqtools as ours
from tests.compat.seqtools.cases import as_list, same

pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]

READ: list[int] = []


class Place(Iterator[int]):
    """An iterator with a state, which can jump to any position."""

    def __init__(self, start: int, stop: int) -> None:
        self.next, self.stop = start, stop

    def __next__(self) -> int:
        if self.next >= self.stop:
            raise StopIteration
        READ.append(self.next)
        self.next += 1
        return self.next - 1

    def state_dict(self) -> dict[str, Any]:
        return {"at": {"next": self.next}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.next = state["at"]["next"]


def part(stop: int) -> tuple[int, int]:
    info = get_worker_info()
    if info is None:
        return 0, stop
    return info.id * stop // info.num_workers, (info.id + 1) * stop // info.num_workers


class ByIterator(IterableDataset[int]):
    """The iterator has the state."""

    def __iter__(self) -> Iterator[int]:
        return Place(*part(9))


class ByGenerator(IterableDataset[Any]):
    """The data set has the state, and counts its epochs in it."""

    def __init__(self) -> None:
        self.epoch = self.given = 0
        self.skipping: int | None = None

    def __iter__(self) -> Iterator[Any]:
        start, stop = part(9)
        self.given, self.skipping = self.skipping or 0, None
        for i in range(start + self.given, stop):
            READ.append(i)
            self.given += 1
            yield i, self.epoch
        self.given = 0
        self.epoch += 1

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.skipping, self.epoch = state["given"], state["epoch"]


class ItsOwn(IterableDataset[int]):
    """It is its own iterator, which `iter` rewinds."""

    def __init__(self) -> None:
        self.iterator = Place(0, 0)

    def __iter__(self) -> Iterator[int]:
        self.iterator = Place(*part(9))
        return self

    def __next__(self) -> int:
        return next(self.iterator)

    def state_dict(self) -> dict[str, Any]:
        return self.iterator.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.iterator.load_state_dict(state)


class NotTorchs:
    """A plain iterable."""

    def __iter__(self) -> Iterator[int]:
        return Place(0, 9)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert not state


@pytest.mark.parametrize("kind", [ByIterator, ByGenerator, ItsOwn])
@pytest.mark.parametrize("batch_size", [None, 2, 3])
@pytest.mark.parametrize("workers", [0, 2])
def test_iterables_go_on_from_their_own_states(kind: Any, batch_size: Any, workers: int) -> None:
    def loader(count: int = workers) -> Any:
        return ours.DataLoader(kind(), batch_size, num_workers=count, collate_fn=same, seed=0)

    theirs = StatefulDataLoader(kind(), batch_size, num_workers=workers, collate_fn=same)
    mine = loader()
    epochs = [list(mine) for _ in range(3)]
    assert epochs[0] == list(theirs)
    if kind is ByGenerator:
        assert epochs[0] != epochs[1] != epochs[2]  # epochs are counted, in workers too
    cuts = range(len(epochs[0]) + 2)
    for epoch in range(1 if workers else 2):
        for cut in cuts[:: 3 if workers else 1]:
            stopped = loader()
            for _ in range(epoch):
                list(stopped)
            batches = iter(stopped)
            found = list(islice(batches, cut))
            state = json.loads(json.dumps(stopped.state_dict()))
            if cut > len(epochs[0]):  # the end was seen
                found, state_epoch = [], epoch + 1
            else:
                state_epoch = epoch
            resumed = loader(0 if cut % 2 else workers)
            resumed.load_state_dict(state)
            assert resumed.state_dict() == state
            assert found + list(resumed) == epochs[state_epoch]
            if state_epoch < 2:
                assert list(resumed) == epochs[state_epoch + 1]


class Standing(IterableDataset[int]):
    """Its state stays at the end, from which a loaded one yields nothing."""

    def __init__(self) -> None:
        self.given, self.first = 0, 0

    def __iter__(self) -> Iterator[int]:
        self.given, self.first = self.first, 0
        start, stop = part(9)
        for i in range(start + self.given, stop):
            self.given += 1
            yield i

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.first = state["given"]


class Sticking(Standing):
    """It begins each time from the loaded state, as Hugging Face's datasets do."""

    def __iter__(self) -> Iterator[int]:
        first = self.first
        yield from super().__iter__()
        self.first = first


@pytest.mark.parametrize("kind", [Standing, Sticking])
@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_epochs_follow_states_without_any_more_items(
    kind: Any, workers: int, persistent: bool
) -> None:
    def loader() -> Any:
        return ours.DataLoader(
            kind(), 2, num_workers=workers, persistent_workers=persistent, collate_fn=same
        )

    mine = loader()
    whole = list(mine)
    assert sorted(chain(*whole)) == [*range(9)]
    state = json.loads(json.dumps(mine.state_dict()))
    assert list(mine) == list(mine) == whole
    resumed = loader()
    resumed.load_state_dict(state)
    assert list(resumed) == list(resumed) == whole


def test_nothing_is_read_again() -> None:
    for make in (ByIterator, ByGenerator, NotTorchs):
        loader = ours.DataLoader(make(), None, collate_fn=same)
        list(islice(loader, 5))
        READ.clear()
        resumed = ours.DataLoader(make(), None, collate_fn=same)
        resumed.load_state_dict(loader.state_dict())
        next(iter(resumed))
        assert READ == [5]


class PlacedSampler(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        return Place(0, 7)


class CountingSampler(Sampler[int]):
    """A generator, whose sampler has the state."""

    def __init__(self) -> None:
        self.epoch = self.given = 0

    def __iter__(self) -> Iterator[int]:
        for i in range(self.given, 7):
            self.given += 1
            yield (i + self.epoch) % 7
        self.given, self.epoch = 0, self.epoch + 1

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.given, self.epoch = state["given"], state["epoch"]


def distributed() -> Any:
    return StatefulDistributedSampler(range(7), num_replicas=2, rank=1, shuffle=False)  # type: ignore[arg-type]


SAMPLERS: dict[str, Any] = {
    "iterator": lambda: {"sampler": PlacedSampler()},
    "sampler": lambda: {"sampler": CountingSampler()},
    "distributed": lambda: {"sampler": distributed()},
    "alone": lambda: {"sampler": PlacedSampler(), "batch_size": None},
    "torchdata's random": lambda: {
        "sampler": RandomSampler(range(7), generator=torch.Generator().manual_seed(2))
    },
    "torchdata's batches": lambda: {"batch_sampler": BatchSampler(PlacedSampler(), 2, False)},
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("workers", [0, 2])
def test_samplers_go_on_from_their_own_states(name: str, workers: int) -> None:
    def loader() -> Any:
        options = SAMPLERS[name]()
        if "batch_sampler" not in options:
            options.setdefault("batch_size", 2)
        return ours.DataLoader(range(7), num_workers=workers, collate_fn=same, seed=0, **options)

    mine = loader()
    epochs = [list(mine) for _ in range(3)]
    cuts = range(len(epochs[0]) + 1)
    for epoch in range(2):
        for cut in cuts[:: 3 if workers else 1]:
            stopped = loader()
            for _ in range(epoch):
                list(stopped)
            found = list(islice(iter(stopped), cut)) if cut else []
            resumed = loader()
            resumed.load_state_dict(json.loads(json.dumps(stopped.state_dict())))
            assert found + list(resumed) == epochs[epoch]
            assert list(resumed) == epochs[epoch + 1]


class Tallying(Dataset[int]):
    """By index, with a state that it changes."""

    def __init__(self) -> None:
        self.asked = 0

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        self.asked += 1
        return index, self.asked

    def state_dict(self) -> dict[str, Any]:
        return {"asked": self.asked}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.asked = state["asked"]


def test_data_by_index_has_its_state_where_it_is_read_in_this_process() -> None:
    whole = list(ours.DataLoader(Tallying(), 2, collate_fn=same))
    stopped = ours.DataLoader(Tallying(), 2, collate_fn=same)
    part = list(islice(stopped, 2))
    state = json.loads(json.dumps(stopped.state_dict()))
    resumed = ours.DataLoader(Tallying(), 2, collate_fn=same)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert part + list(resumed) == whole
    with pytest.raises(lz.InvalidState):
        resumed.load_state_dict({**state, "dataset": 3})
    assert "dataset" not in ours.DataLoader(Tallying(), 2, num_workers=1).state_dict()


class NoJson(ByIterator):
    def state_dict(self) -> dict[str, Any]:
        return {"numbers": torch.arange(3)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_that_is_no_json_is_named_when_it_is_asked_for(workers: int) -> None:
    loader = ours.DataLoader(NoJson(), None, num_workers=workers, collate_fn=same)
    batches = iter(loader)
    next(batches)
    with pytest.raises(lz.InvalidState, match=r"state_dict.*tensor\(\[0, 1, 2\]\)"):
        loader.state_dict()
    assert len(list(batches)) == 8
    with pytest.raises(lz.InvalidState, match="state_dict"):
        loader.state_dict()
    assert len(list(loader)) == 9


def test_states_that_data_cannot_have_are_refused() -> None:
    loader = ours.DataLoader(ByIterator(), None, collate_fn=same)
    next(iter(loader))
    state = loader.state_dict()
    for bad in ({"own": 3}, {"own": [1]}, 3, {"own": {"list": [None, None]}}):
        stages = [["iterable", {}, [0, 1, bad, 0]], *json.loads(json.dumps(state["stages"]))[1:]]
        with pytest.raises(lz.InvalidState):
            loader.load_state_dict({**state, "stages": stages, "check": None})


def test_a_shorter_iterable_is_told() -> None:
    class Sized(IterableDataset[int]):
        def __init__(self, size: int) -> None:
            self.size = size

        def __iter__(self) -> Iterator[int]:
            return iter(range(self.size))

    loader = ours.DataLoader(Sized(6), 2, collate_fn=as_list)
    list(islice(loader, 2))
    shorter = ours.DataLoader(Sized(3), 2, collate_fn=as_list)
    shorter.load_state_dict(loader.state_dict())
    with pytest.raises(lz.SourceChanged, match=r"after item 4 .* now has 3"):
        next(iter(shorter))

"""States of a `ShardedDataLoader`: exact from anywhere, refused elsewhere."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import count, groupby, islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.compat.gluon import (
    FixedBucketSampler,
    ShardedDataLoader,
    SortedBucketSampler,
    SortedSampler,
    SplitSampler,
)
from tests.compat.gluon.cases import (
    LAST,
    WARNS,
    WORKERS,
    Seeded,
    cut,
    indices,
    joined,
    loader,
    model,
)
from tests.helpers import IS_DEEP


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


def test_gl16_a_generator_that_has_moved_on_goes_back_to_its_last_epochs() -> None:
    made = loader(20, 2, sampler=Seeded(20))
    batches, found = states(made, 3)
    for place in (23, 13, 3):
        made.load_state_dict(found[place])
        assert rest(made, 10 - place % 10) == groups(batches[place : place + 10 - place % 10])
    tens = range(0, 700_000, 10)  # of epochs that are so long, it keeps only two
    made = ShardedDataLoader(tens, 35_000, sampler=Seeded(70_000), batchify_fn=list)
    batches, found = states(made, 3)
    for place in (0, 1):
        made.load_state_dict(found[place])
        with pytest.raises(lz.SourceChanged, match="doesn't yield the same indices again"):
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
def test_gl16_stopped_amid_a_long_run_twice(kind: str) -> None:
    make = long_runs()[kind]
    run = endless(make())
    batches, found = zip(*islice(run, 1000), strict=True)
    resumed, twice = make(), make()
    for place in range(0, 997, 1 if IS_DEEP else 7):
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
        with pytest.raises(lz.StateMismatch, match="different pipeline"):
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


class Estimating(Seeded):
    """A batch sampler whose len is a guess."""

    def __init__(self, guess: int) -> None:
        super().__init__(10, 0, 3)
        self.guess = guess

    def __len__(self) -> int:
        return self.guess


@pytest.mark.parametrize("guess", [2, 4, 7])
def test_gl16_a_len_that_is_a_guess_loses_nothing(guess: int) -> None:
    made = loader(batch_sampler=Estimating(guess))
    batches, found = states(made, 3)
    assert [sorted(joined(epoch)) for epoch in groups(batches)] == [list(range(10))] * 3
    for place, state in enumerate(found):
        resumed = loader(batch_sampler=Estimating(guess))
        resumed.load_state_dict(state)
        assert rest(resumed, 12 - place) == groups(batches[place:])


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

"""`sampler`: orders that come from elsewhere, epoch by epoch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.compat.samplers import sampler


class Seeded:
    """A different order in each epoch, like torch's DistributedSampler."""

    def __init__(self, size: int) -> None:
        self.size, self.epoch = size, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        return iter(random.Random(self.epoch).sample(range(self.size), self.size))


class Unknown:
    """A batch sampler without a len."""

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[2, 0], [1]])


KINDS: dict[str, Callable[[], Any]] = {
    "list": lambda: [2, 0, 1],
    "seeded": lambda: Seeded(5),
    "batches": Unknown,
    "iterator": lambda: iter([3, 1]),
}


@given(st.sampled_from(sorted(KINDS)), st.integers(0, 6))
def test_it_gives_what_the_sampler_does_and_resumes_anywhere(kind: str, cut: int) -> None:
    expected = list(KINDS[kind]())
    run = lz.run(sampler(KINDS[kind]()))
    assert list(islice(run, cut)) == expected[:cut]
    again = lz.run(sampler(KINDS[kind]()), run.state.to_json())
    assert list(again) == expected[cut:]
    assert again.state.position[:2] == (0, len(expected))


def test_each_epoch_asks_the_sampler_again() -> None:
    orders, found = Seeded(9), []
    pipeline = sampler(orders)
    for epoch in range(3):
        orders.set_epoch(epoch)
        found.append(list(lz.run(pipeline, lz.init(pipeline, epoch=epoch))))
    assert sorted(map(sorted, found)) == [list(range(9))] * 3
    assert found[0] != found[1] != found[2]


def test_another_order_is_refused() -> None:
    run = lz.run(sampler([2, 0, 1]))
    next(run)
    with pytest.raises(lz.SourceChanged, match="a different index"):
        next(lz.run(sampler([1, 0, 2]), run.state))
    with pytest.raises(lz.SourceChanged, match="2 items, but its len"):
        list(sampler(Short(3), window=1))


class Short(Seeded):
    def __iter__(self) -> Iterator[int]:
        return iter(range(self.size - 1))


class Generating:
    """A different order in each pass, like torch's RandomSampler with a generator."""

    def __init__(self, size: int) -> None:
        self.size, self.random = size, random.Random(0)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        return iter(self.random.sample(range(self.size), self.size))


class Batched:
    """Batches of a sampler, like torch's BatchSampler."""

    def __init__(self, sampler: Seeded) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[index] for index in self.sampler])


@pytest.mark.parametrize("executor", [lz.threads(4), lz.processes(2)])
@pytest.mark.parametrize("make", [Seeded, Generating, lambda size: Batched(Seeded(size))])
def test_workers_take_each_epoch_from_the_sampler(make: Any, executor: Any) -> None:
    def pipeline() -> lz.Pipeline[Any]:
        return sampler(make(40)) | lz.map(str) | lz.batch(40)

    expected = [*(pipeline() | lz.repeat(4))]
    assert len(set(map(tuple, expected))) == 4
    assert [*lz.run(pipeline() | lz.repeat(4), executor=executor)] == expected
    run = lz.run(pipeline(), executor=executor)
    assert [list(run.epoch()) for _ in range(4)] == [[each] for each in expected]
    run.close()

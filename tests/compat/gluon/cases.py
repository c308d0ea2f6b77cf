"""Loaders, samplers and naive models for the tests of `lazyckpt.compat.gluon`."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import chain, count
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.compat.gluon import (
    ShardedDataLoader,
)

LAST = ["keep", "discard", "rollover"]
WORKERS: list[dict[str, Any]] = [
    {},
    {"num_workers": 2},
    {"num_workers": 1},
    {"num_workers": 3, "thread_pool": True},
    {"num_workers": 2, "thread_pool": True, "prefetch": 0},
]

TENS = list(range(0, 100_000, 10))


def loader(size: int = 10, *args: Any, **options: Any) -> ShardedDataLoader:
    return ShardedDataLoader(TENS[:size], *args, **{"batchify_fn": list, **options})


def indices(batch: Any) -> Any:
    return [indices(part) if isinstance(part, list) else part // 10 for part in batch]


def joined(parts: Iterable[list[Any]]) -> list[Any]:
    return list(chain.from_iterable(parts))


class Seeded:
    """A sampler with a generator of its own, which moves on with each epoch."""

    def __init__(self, size: int, seed: int = 0, batch_size: int = 0) -> None:
        self.size, self.batch_size, self.random = size, batch_size, random.Random(seed)
        self.asked = 0

    def __len__(self) -> int:
        return -(-self.size // self.batch_size) if self.batch_size else self.size

    def __iter__(self) -> Iterator[Any]:
        self.asked += 1
        order = self.random.sample(range(self.size), self.size)
        return iter(cut(order, self.batch_size) if self.batch_size else order)


def cut(items: list[Any], size: int) -> list[list[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def model(orders: Iterator[list[int]], batch_size: int, last: str) -> Iterator[list[list[int]]]:
    """The batches of each epoch, of indices in these orders."""
    rest: list[int] = []
    for order in orders:
        batches = cut(rest + order, batch_size)
        rest = []
        if last != "keep" and batches and len(batches[-1]) < batch_size:
            rest = batches.pop()
        if last == "discard":
            rest = []
        yield batches


def orders_of(size: int, seed: int | None) -> Iterator[list[int]]:
    """Sequential batches, or the batches of `shuffle(seed=seed)`."""
    run = lz.run(lz.source(range(size)) | lz.shuffle(seed=seed or 0))
    for _ in count():
        yield list(range(size)) if seed is None else list(run.epoch())


WARNS = pytest.mark.filterwarnings("ignore:empty buckets are dropped:UserWarning")

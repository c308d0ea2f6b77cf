"""Ranks that are threads, joined by gloo as processes are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch.distributed as dist

import lazyckpt as lz

T = TypeVar("T")

RANKS = 3
LONG = 60.0  # seconds that no test comes near


def filtered(rank: int) -> lz.Pipeline[int]:
    """A part of common data, of which each rank drops others: a state of its own on each."""
    part = lz.shard(num_shards=RANKS, index=rank)
    return lz.source(range(40)) | lz.shuffle(seed=1) | part | lz.filter(lambda x: x % 4 > 0)


def divided_unevenly(ranks: int, rank: int) -> lz.Pipeline[int]:
    return lz.source(range(7)) | lz.shuffle(seed=0) | lz.shard(num_shards=ranks, index=rank)


def items(batches: Any) -> Iterator[Any]:
    """The items of six loops."""
    for _ in range(6):
        yield from batches


def on_ranks(size: int, act: Callable[[int, dist.ProcessGroup], T]) -> list[T]:
    """The result of every rank; an error of one is raised after all have ended."""
    found = outcomes(size, act)
    for each in found:
        if isinstance(each, Exception):
            raise each
    return found


def outcomes(size: int, act: Callable[[int, dist.ProcessGroup], Any]) -> list[Any]:
    """The result of every rank, or its error."""
    store, found = dist.HashStore(), [None] * size

    def acts(rank: int) -> None:
        try:
            found[rank] = act(rank, dist.ProcessGroup(store, rank, size))  # type: ignore[call-arg]
        except Exception as error:
            found[rank] = error  # type: ignore[call-overload]

    ranks = [threading.Thread(target=acts, args=(rank,)) for rank in range(size)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    return found

"""The stages under Infinibatch's iterators that draw as `random.Random` does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.combinators.blocks import HashedOrders, shuffled_blocks
from lazyckpt.combinators.bucket_batch import cut_in_batches
from lazyckpt.combinators.reservoir import Reservoir
from lazyckpt.compat.infinibatch.mersenne import Seed, TrackedRandom, check_place, seedable
from lazyckpt.compat.infinibatch.words import Words
from lazyckpt.core.checks import function, integer, optional, positive
from lazyckpt.core.define import Options
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine, Rate
from lazyckpt.core.stages import stateful
from lazyckpt.decorators import combinator


def _sizing(value: Any) -> Any:
    return value if callable(value) else integer(value)


_DRAWN: Options = {
    "registered": False,
    "unrecorded": ("origin",),
    "checks": {
        "batch_size": _sizing,
        "block_size": positive,
        "boundary_key": optional(function),
        "buffer_size": positive,
        "fn": function,
        "key": optional(function),
        "read_ahead": positive,
        "seed": seedable,
    },
}


def boxed(
    step: Callable[[Any, Any], tuple[Any, Any]], first: Any, held: list[Any], item: Any
) -> tuple[list[Any], Any]:
    """A step whose first state is no value of a state: it goes in a list."""
    state, output = step(held[0] if held else deepcopy(first), item)
    return [state], output


@combinator(**_DRAWN)
def infinibatch_random_map(
    upstream: Machine[Any], fn: Callable[[Random, Any], Any], seed: Seed, origin: int
) -> Machine[Any]:
    """`fn(random, item)` for every item, with one generator for all.

    State: the generator's place; where `fn` gives it another seed, all its words.
    """

    def flow(position: Position) -> Flow[Any]:
        before, origin, words, gauss = position
        items = upstream.flow(before)
        tracked: TrackedRandom | None = None

        def made() -> Iterator[Any]:
            nonlocal tracked
            tracked = TrackedRandom(seed, origin, words, gauss)
            random = tracked.random
            for item in items:
                yield fn(random, item)

        def snapshot() -> Position:
            place = (origin, words, gauss) if tracked is None else tracked.place()
            return items.snapshot(), *place

        return Flow(made(), snapshot)

    name = "SamplingRandomMapIterator"
    return stateful(
        name,
        upstream,
        first=(origin, 0, 0),
        check=partial(check_place, name),
        rate=Rate(),
        flow=flow,
        length=upstream.length,
    )


class _RandomOrders:
    """The orders of `random.Random.shuffle`, one after another."""

    def __init__(self, name: str, seed: Seed, epoch: int, origin: int, words: int) -> None:
        check_place(name, origin, words)
        self._words = Words(seed, origin, words)

    @property
    def mark(self) -> tuple[int, int]:
        return self._words.origin, self._words.drawn

    def shuffled(self, items: list[Any]) -> list[Any]:
        self._words.shuffle(items)
        return items


class _RandomSlots:
    """The slots of `random.Random.randrange`, for the first input on."""

    def __init__(
        self, name: str, seed: Seed, size: int, epoch: int, number: int, origin: int, words: int
    ) -> None:
        check_place(name, origin, words)
        self._words, self._size = Words(seed, origin, words), size

    @property
    def mark(self) -> tuple[int, int]:
        return self._words.origin, self._words.second

    def draw(self, count: int) -> NDArray[np.int64]:
        return self._words.below(self._size, count)

    def flush(self, occupied: NDArray[np.int64], given: int) -> NDArray[np.int64]:
        return occupied[::-1]


@combinator(**_DRAWN)
def infinibatch_blocks(
    upstream: Machine[Any], block_size: int, seed: Seed, origin: int
) -> Machine[Any]:
    """Consecutive blocks of items, each shuffled. State and resume are `block_shuffle`'s."""
    name = "BlockwiseShuffleIterator"
    orders = partial(_RandomOrders, name, seed)
    return shuffled_blocks(name, upstream, block_size, orders, first=(origin, 0))


@combinator(**_DRAWN)
def infinibatch_buckets(
    upstream: Machine[Any],
    read_ahead: int,
    key: Callable[[Any], Any] | None,
    batch_size: int | Callable[[Any], Any],
    boundary_key: Callable[[Any], Any] | None,
    shuffle: bool,
    seed: Seed,
    origin: int,
) -> Machine[list[Any]]:
    """Batches of items alike, out of sections of items. State and resume are `bucket_batch`'s."""
    name = "BucketedReadaheadBatchIterator"

    def size(item: Any) -> int:
        wanted = batch_size(item) if callable(batch_size) else batch_size
        return max(1, math.ceil(min(wanted, read_ahead)))

    cut = partial(
        cut_in_batches,
        batch_size=size if callable(batch_size) else size(None),
        key=key,
        boundary_key=boundary_key and partial(_never_none, boundary_key),
    )
    made = partial(shuffled_blocks, name, upstream, read_ahead, made=cut, what="batch")
    if shuffle:
        return made(partial(_RandomOrders, name, seed), first=(origin, 0))
    return made(partial(HashedOrders, name, None))


def _never_none(key: Callable[[Any], Any], item: Any) -> Any:
    found = key(item)
    if found is None:
        raise ValueError(f"boundary_key must not give None, and it does for {item!r}")
    return found


@combinator(**_DRAWN)
def infinibatch_reservoir(
    upstream: Machine[Any], buffer_size: int, seed: Seed, origin: int
) -> Machine[Any]:
    """A streaming shuffle. State and resume are those of `shuffle(buffer_size)`."""
    name = "BufferedShuffleIterator"
    slots = partial(_RandomSlots, name, seed, buffer_size)
    return Reservoir(name, upstream, buffer_size, slots, first=(origin, 0)).machine()

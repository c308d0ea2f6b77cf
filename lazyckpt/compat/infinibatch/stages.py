"""The stages under Infinibatch's iterators that draw as `random.Random` does."""

from __future__ import annotations

import math
from collections.abc import Callable
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

_DRAWN: Options = {
    "registered": False,
    "unrecorded": ("origin",),
    "checks": {
        "batch_size": lambda value: value if callable(value) else integer(value),
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
        before, *place = position
        items, tracked = upstream.flow(before), TrackedRandom(seed, *place)
        made = (fn(tracked.random, item) for item in items)
        return Flow(made, lambda: (items.snapshot(), *tracked.place()))

    return stateful(
        "SamplingRandomMapIterator",
        upstream,
        first=(origin, 0, 0),
        check=check_place,
        rate=Rate(),
        flow=flow,
        length=upstream.length,
    )


class _RandomSlots(Words):
    """The slots of `random.Random.randrange`, for the first input on."""

    def __init__(self, seed: Seed, size: int, epoch: int, number: int, *mark: int) -> None:
        super().__init__(seed, *mark)
        self._bound = size

    @property
    def mark(self) -> tuple[int, int]:
        return self.origin, self.second

    def draw(self, count: int) -> NDArray[np.int64]:
        return self.below(self._bound, count)

    def flush(self, occupied: NDArray[np.int64], given: int) -> NDArray[np.int64]:
        return occupied[::-1]


@combinator(**_DRAWN)
def infinibatch_reservoir(
    upstream: Machine[Any], buffer_size: int, seed: Seed, origin: int
) -> Machine[Any]:
    """A streaming shuffle. State and resume are those of `shuffle(buffer_size)`."""
    slots = partial(_RandomSlots, seed, buffer_size)
    name = "BufferedShuffleIterator"
    return Reservoir(name, upstream, buffer_size, slots, first=(origin, 0)).machine()


@combinator(**_DRAWN)
def infinibatch_blocks(
    upstream: Machine[Any], block_size: int, seed: Seed, origin: int
) -> Machine[Any]:
    """Consecutive blocks of items, each shuffled. State and resume are `block_shuffle`'s."""
    orders = _orders(seed)
    return shuffled_blocks(
        "BlockwiseShuffleIterator", upstream, block_size, orders, first=(origin, 0)
    )


def _orders(seed: Seed) -> Callable[..., Words]:
    return lambda epoch, origin, words: Words(seed, origin, words)


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
        return made(_orders(seed), first=(origin, 0))
    return made(partial(HashedOrders, name, None))


def _never_none(key: Callable[[Any], Any], item: Any) -> Any:
    found = key(item)
    if found is None:
        raise ValueError(f"boundary_key must not give None, and it does for {item!r}")
    return found

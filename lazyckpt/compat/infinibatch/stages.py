"""The machines under Infinibatch's iterators that draw what `random.Random(seed)` does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import lru_cache, partial
from itertools import repeat, starmap
from random import Random
from typing import Any

import numpy as np

from lazyckpt.combinators.bucket_batch import cut_in_batches
from lazyckpt.combinators.machines.shuffled_blocks import HashedOrders, shuffled_blocks
from lazyckpt.combinators.source import source
from lazyckpt.compat.infinibatch import mersenne
from lazyckpt.compat.infinibatch.mersenne import Seed, Words, check_place, origin_of, seedable
from lazyckpt.core.checks import brief, function, integer, optional, positive
from lazyckpt.core.define import Options
from lazyckpt.core.flow import Flow, Position, Table, View, counted, pass_over
from lazyckpt.core.machine import Machine, Rate, Reread
from lazyckpt.core.prng import Indices, affine, as_array
from lazyckpt.core.stages import sourced, stateful
from lazyckpt.core.user_state import freeze, thaw
from lazyckpt.decorators import combinator, source_combinator
from lazyckpt.errors import InvalidState, SourceChanged

_NEAR = 1 << 22  # words within which a state is looked for behind another

_DRAWN: Options = {
    "registered": False,
    "checks": {
        "batch_size": lambda value: value if callable(value) else integer(value),
        "block_size": positive,
        "boundary_key": optional(function),
        "fn": function,
        "key": optional(function),
        "read_ahead": positive,
        "seed": seedable,
    },
}


@source_combinator(registered=False, describe=lambda iterable: {})
def infinibatch_native(iterable: Iterable[Any]) -> Machine[Any]:
    """The items of anything that can be iterated over again. State: the epoch, a count of items."""
    name = "NativeCheckpointableIterator"
    if isinstance(iterable, Sequence) and type(iterable) in (list, tuple, range):
        built: Machine[Any] = source(iterable).machine

        def check(position: Position) -> None:
            if position[1] > len(iterable):
                raise SourceChanged(f"{name}: a state after item {position[1]} of {len(iterable)}")
            built.check(position)

        return built._replace(check=check)

    def flow(position: Position) -> Flow[Any]:
        epoch, index = position
        stream, taken = counted(iterable)
        found: Flow[Any] = Flow(stream, lambda: (epoch, taken()))
        pass_over(found, index)
        return found

    return sourced(name, rereads=lambda position: (Reread(None, position[1]),), flow=flow)


@source_combinator(
    registered=False,
    checks={"seed": seedable},
    describe=lambda items, seed: {"length": len(items), "seed": seed},
)
def infinibatch_permutations(items: list[Any], seed: Seed) -> Machine[Any]:
    """Permutations for ever. State: the epoch, a count in one, the generator's place before it."""
    size = len(items)
    words: Words | None = None

    @lru_cache(max(2, (1 << 18) // size))
    def drawn(origin: int, place: int) -> tuple[Any, int]:
        """The permutation that begins at a place, and where the next one does."""
        nonlocal words
        if words is None or words.mark != (origin, place):
            words = Words(seed, origin, place)
        return words.permutation(size), words.drawn

    def skip(position: Position, n: int) -> tuple[Position, int]:
        epoch, index, origin, place = position
        index += n
        while index > size:
            place, index = drawn(origin, place)[1], index - size
        return (epoch, index, origin, place), n

    def ahead(position: Position, offsets: Indices) -> Indices:
        _, index, origin, place = position
        wanted = as_array(affine(offsets, index))
        orders: list[Any] = []
        for _ in range(int(wanted.max(initial=0)) // size + 1):
            order, place = drawn(origin, place)
            orders.append(order)
        found = orders[0] if len(orders) == 1 else np.concatenate(orders)
        return as_array(found[wanted])

    return sourced(
        "InfinitePermutationSourceIterator",
        first=(origin_of(seed), 0),
        check=check_place,
        most=size,
        skip=skip,
        length=math.inf,
        view=View(Table(items.__getitem__), ahead),
    )


@source_combinator(**_DRAWN)
def infinibatch_random(seed: Seed) -> Machine[float]:
    """The floats of `Random(seed).random()`. State: the epoch, a count, the generator's origin."""

    def flow(position: Position) -> Flow[float]:
        epoch, index, origin = position
        draw = mersenne.placed(seed, origin, 2 * index).random
        items, taken = counted(starmap(draw, repeat(())))
        return Flow(items, lambda: (epoch, index + taken(), origin), taken=taken)

    def skip(position: Position, n: int) -> tuple[Position, int]:
        epoch, index, origin = position
        return (epoch, index + n, origin), n

    return sourced(
        "RandomIterator",
        first=(origin_of(seed),),
        check=check_place,
        flow=flow,
        skip=skip,
        length=math.inf,
    )


def boxed(
    step: Callable[[Any, Any], tuple[Any, Any]], first: Any, held: list[Any], item: Any
) -> tuple[list[Any], Any]:
    """A step whose first state is no value of a state: it goes in a list."""
    state, output = step(held[0] if held else deepcopy(first), item)
    return [state], output


@combinator(**_DRAWN)
def infinibatch_random_map(
    upstream: Machine[Any], fn: Callable[[Random, Any], Any], seed: Seed
) -> Machine[Any]:
    """`fn(random, item)` for every item, with one generator for all. State: the generator's."""
    name = "SamplingRandomMapIterator"

    def check(origin: Any, words: Any, spare: Any) -> None:
        check_place(origin, words)
        if not isinstance(thaw(spare), float | None):
            raise InvalidState(f"{name}: a state with {brief(spare)} for a spare float")

    def flow(position: Position) -> Flow[Any]:
        before, origin, words, spare = position
        items, state = upstream.flow(before), mersenne.state_at(seed, origin, words)
        random = mersenne.restored((*state[:2], thaw(spare)))

        def snapshot() -> Position:
            nonlocal origin, words, state
            last, state = state, random.getstate()  # the words between are drawn once more
            origin, words = mersenne.located(last, origin, words, state, _NEAR)
            return items.snapshot(), origin, words, freeze(state[2], name)

        return Flow((fn(random, item) for item in items), snapshot)

    return stateful(
        name,
        upstream,
        first=(origin_of(seed), 0, freeze(None, name)),
        check=check,
        rate=Rate(),
        flow=flow,
        length=upstream.length,
    )


def _orders(seed: Seed) -> Callable[..., Words]:
    return lambda epoch, origin, words: Words(seed, origin, words)


@combinator(**_DRAWN)
def infinibatch_blocks(upstream: Machine[Any], block_size: int, seed: Seed) -> Machine[Any]:
    """Consecutive blocks of items, each shuffled. State and resume are `block_shuffle`'s."""
    name, orders = "BlockwiseShuffleIterator", _orders(seed)
    return shuffled_blocks(name, upstream, block_size, orders, first=(origin_of(seed), 0))


@combinator(**_DRAWN)
def infinibatch_buckets(
    upstream: Machine[Any],
    read_ahead: int,
    key: Callable[[Any], Any] | None,
    batch_size: int | Callable[[Any], Any],
    boundary_key: Callable[[Any], Any] | None,
    shuffle: bool,
    seed: Seed,
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
        return made(_orders(seed), first=(origin_of(seed), 0))
    return made(partial(HashedOrders, name, None))


def _never_none(key: Callable[[Any], Any], item: Any) -> Any:
    found = key(item)
    if found is None:
        raise ValueError(f"boundary_key must not give None, and it does for {item!r}")
    return found

"""Sources under Infinibatch's iterators: objects, and streams drawn as `random.Random` does."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from itertools import count, islice, repeat, starmap
from operator import length_hint
from typing import Any

import numpy as np

from lazyckpt.combinators.source import source
from lazyckpt.compat.infinibatch.mersenne import Seed, TrackedRandom, check_place, told
from lazyckpt.compat.infinibatch.words import Words
from lazyckpt.core.flow import Flow, Position, Table, View, counted
from lazyckpt.core.machine import Machine, Reread
from lazyckpt.core.prng import Indices, affine, as_array
from lazyckpt.core.stages import sourced
from lazyckpt.core.user_state import freeze, thaw
from lazyckpt.errors import SourceChanged
from lazyckpt.pipeline import source_combinator

ATOMS = {int, float, bool, complex, str, bytes, type(None)}


@source_combinator(registered=False, describe=lambda iterable: {})
def infinibatch_native(iterable: Iterable[Any]) -> Machine[Any]:
    """The items of anything that can be iterated over again. State: the epoch, a count of items."""
    if type(iterable) in (list, tuple, range):
        built: Machine[Any] = source(iterable).machine

        def check(position: Position) -> None:
            _, index = position
            if index > (length := len(iterable)):  # type: ignore[arg-type]
                raise _shrunk(index, length)
            built.check(position)

        return built._replace(check=check)

    def flow(position: Position) -> Flow[Any]:
        epoch, index = position
        stream, taken = counted(iterable)
        if sum(1 for _ in islice(stream, index)) < index:
            raise _shrunk(index, taken())
        return Flow(stream, lambda: (epoch, taken()))

    name = "NativeCheckpointableIterator"
    return sourced(name, rereads=lambda position: (Reread(None, position[1]),), flow=flow)


def _shrunk(index: int, length: int) -> SourceChanged:
    return SourceChanged(f"the state stands after item {index} of a source that now has {length}")


@source_combinator(registered=False, describe=lambda iterator: {"type": type(iterator).__name__})
def infinibatch_foreign(iterator: Any) -> Machine[Any]:
    """A user's own CheckpointableIterator. State: its own, of JSON values and tuples."""
    name = type(iterator).__name__
    turns = count()
    current = -1

    def flow(position: Position) -> Flow[Any]:
        epoch, index, mine = position
        turn = -1

        def items() -> Iterator[Any]:
            nonlocal turn, current
            turn = current = next(turns)
            iterator.setstate(None if mine == 0 else thaw(mine))
            for item in iterator:
                yield item
                if turn != current:
                    raise RuntimeError(f"{iterator!r} is used by two at once")

        def snapshot() -> Position:
            if turn < 0:
                return position
            return epoch, index + taken(), freeze(iterator.getstate(), name)

        stream, taken = counted(items())
        return Flow(stream, snapshot, taken=taken)

    return sourced(name, first=(0,), check=lambda mine: mine == 0 or thaw(mine), flow=flow)


@source_combinator(
    registered=False,
    describe=lambda items, seed, origin: {"length": len(items), "seed": told(seed)},
)
def infinibatch_permutations(items: list[Any], seed: Seed, origin: int) -> Machine[Any]:
    """One permutation of the items after another, for ever.

    State: the epoch, a count of the permutation's items, the generator's place before it.
    """
    size = len(items)
    words: Words | None = None

    @lru_cache(max(2, (1 << 18) // size))
    def drawn(origin: int, place: int) -> tuple[Any, int]:
        """The permutation that begins at a place, and where the next one does."""
        nonlocal words
        if words is None or (words.origin, words.drawn) != (origin, place):
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
        places = affine(offsets, index)
        if isinstance(places, range) and len(places) and places[-1] < size:
            order = drawn(origin, place)[0]
            return np.asarray(order[places.start : places.stop : places.step], np.int64)
        wanted = as_array(places)
        orders = []
        for _ in range(int(wanted.max(initial=0)) // size + 1):
            order, place = drawn(origin, place)
            orders.append(order)
        return np.concatenate(orders)[wanted].astype(np.int64)

    get = items.__getitem__

    def step(position: Position) -> tuple[Position, Any]:
        return skip(position, 1)[0], get(int(ahead(position, range(1))[0]))

    name = "InfinitePermutationSourceIterator"
    return sourced(
        name,
        first=(origin, 0),
        check=partial(check_place, name),
        most=size,
        step=step,
        skip=skip,
        length=math.inf,
        view=View(Table(get), ahead),
    )


@source_combinator(registered=False, describe=lambda seed, origin: {"seed": told(seed)})
def infinibatch_random(seed: Seed, origin: int) -> Machine[float]:
    """The floats of `Random(seed).random()`. State: the epoch, a count, the generator's origin."""

    def flow(position: Position) -> Flow[float]:
        epoch, index, origin = position
        calls = repeat((), sys.maxsize)
        items = starmap(TrackedRandom(seed, origin, 2 * index, 0).random.random, calls)

        def taken() -> int:
            return sys.maxsize - length_hint(calls)

        return Flow(items, lambda: (epoch, index + taken(), origin), taken=taken)

    def skip(position: Position, n: int) -> tuple[Position, int]:
        epoch, index, origin = position
        return (epoch, index + n, origin), n

    name = "RandomIterator"
    return sourced(
        name,
        first=(origin,),
        check=partial(check_place, name),
        flow=flow,
        skip=skip,
        length=math.inf,
    )

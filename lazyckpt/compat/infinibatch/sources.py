"""Iterators at the beginning of a pipeline, each behind the source under it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from copy import deepcopy
from functools import lru_cache
from itertools import islice, repeat, starmap
from operator import length_hint
from typing import Any

import numpy as np

import lazyckpt as lz
from lazyckpt.compat.infinibatch.mersenne import (
    Seed,
    TrackedRandom,
    check_place,
    fresh,
    seedable,
    told,
)
from lazyckpt.compat.infinibatch.protocol import CheckpointableIterator, PipelineIterator
from lazyckpt.compat.infinibatch.words import Words
from lazyckpt.core.checks import at_least, brief, checked, positive
from lazyckpt.core.flow import Flow, Position, Table, View, counted
from lazyckpt.core.machine import Machine, Reread
from lazyckpt.core.prng import Indices, affine, as_array
from lazyckpt.core.stages import sourced
from lazyckpt.decorators import source_combinator
from lazyckpt.errors import ArgumentError, SourceChanged
from lazyckpt.pipeline import Stage

_ATOMS = {int, float, bool, complex, str, bytes, type(None)}


class NativeCheckpointableIterator(PipelineIterator):
    """The items of an iterable that begins anew each time; an iterator is a `ValueError`.

    State: a count of items. Resume: at once in a list, tuple or range, replays
    anything else; `RuntimeError`, with both numbers, where it became too short.

    >>> it = NativeCheckpointableIterator("abc")
    >>> next(it), next(it)
    ('a', 'b')
    >>> state = it.getstate()
    >>> list(it), it.setstate(state), list(it)
    (['c'], None, ['c'])
    """

    def __init__(self, iterable: Iterable[Any]) -> None:
        if iter(iterable) is iterable:
            raise ArgumentError(
                "NativeCheckpointableIterator: iterable must be one that begins anew each time, "
                f"got the iterator {brief(iterable)}"
            )
        super().__init__(infinibatch_native(iterable))


@source_combinator(registered=False, describe=lambda iterable: {})
def infinibatch_native(iterable: Iterable[Any]) -> Machine[Any]:
    """The items of anything that can be iterated over again. State: the epoch, a count of items."""
    name = "NativeCheckpointableIterator"

    def shrunk(index: int, length: int) -> SourceChanged:
        return SourceChanged(f"{name}: the state stands after item {index} of what has {length}")

    if type(iterable) in (list, tuple, range):
        built: Machine[Any] = lz.source(iterable).machine

        def check(position: Position) -> None:
            if position[1] > (length := len(iterable)):  # type: ignore[arg-type]
                raise shrunk(position[1], length)
            built.check(position)

        return built._replace(check=check)

    def flow(position: Position) -> Flow[Any]:
        epoch, index = position
        stream, taken = counted(iterable)
        if sum(1 for _ in islice(stream, index)) < index:
            raise shrunk(index, taken())
        return Flow(stream, lambda: (epoch, taken()))

    return sourced(name, rereads=lambda position: (Reread(None, position[1]),), flow=flow)


def create_source_iterator(
    source_items: Sequence[Any],
    train: bool = True,
    seed: Seed = None,
    shuffle: bool = True,
    num_instances: int = 1,
    instance_rank: int = 0,
) -> CheckpointableIterator:
    """An `InfinitePermutationSourceIterator` to train, else a `ChunkedSourceIterator`.

    Raises:
        ValueError: `shuffle` without `train`.
    """
    ranks = num_instances, instance_rank
    if train:
        return InfinitePermutationSourceIterator(source_items, seed, shuffle, *ranks)
    if shuffle:
        raise ArgumentError("shuffling is not supported when train=False")
    return ChunkedSourceIterator(source_items, *ranks)


class ChunkedSourceIterator(PipelineIterator):
    """One of `num_instances` contiguous parts, whose sizes differ by at most 1, once.

    [D] A negative rank is refused, as one that is too large is.
    """

    def __init__(
        self, source_items: Sequence[Any], num_instances: int = 1, instance_rank: int = 0
    ) -> None:
        rank = _ranked(num_instances, instance_rank, contiguous=True)
        super().__init__(lz.source(list(source_items)) | rank)


def _ranked(num_instances: int, instance_rank: int, contiguous: bool = False) -> Stage[Any, Any]:
    count = checked("source", "num_instances", num_instances, positive)
    rank = checked("source", "instance_rank", instance_rank, at_least(0, count - 1))
    return lz.shard(num_shards=count, index=rank, contiguous=contiguous)


class InfinitePermutationSourceIterator(PipelineIterator):
    """One permutation of the items after another; rank r of W gets item r, r + W, r + 2 W, ...

    The order is that of `random.Random(seed).shuffle`. The items are copied, and
    [D] so is each that is given, unless it is a number, a string or None: changing
    it in place changes nothing later.

    [D] `seed=None` is a seed drawn by chance, which the state holds. Several ranks
    have to share their permutations, and there None is the seed 0. No items, and
    ranks out of range, are a `ValueError`.

    State: how many random words were drawn before this permutation, and the place
    in it; the same on all ranks. Resume: jumps over the words, in less than 0.1 s,
    and draws one permutation.

    >>> it = InfinitePermutationSourceIterator("to be or not".split(), seed=1)
    >>> [next(it) for _ in range(6)]
    ['not', 'to', 'or', 'be', 'not', 'be']
    """

    def __init__(
        self,
        source_items: Sequence[Any],
        seed: Seed = 0,
        shuffle: bool = True,
        num_instances: int = 1,
        instance_rank: int = 0,
    ) -> None:
        items = list(source_items)
        if not items:
            raise ArgumentError("source must not be empty")
        rank = _ranked(num_instances, instance_rank)
        seed = 0 if seed is None and num_instances > 1 else seed
        if not (is_atomic := {*map(type, items)} <= _ATOMS):
            items = deepcopy(items)
        if shuffle:
            pipeline = infinibatch_permutations(items, seed, fresh(seed)) | rank
        else:
            pipeline = lz.source(items) | lz.repeat() | rank
        super().__init__(pipeline if is_atomic else pipeline | lz.map(deepcopy))


@source_combinator(
    registered=False,
    checks={"seed": seedable},
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
        first=(origin, 0),
        check=check_place,
        most=size,
        skip=skip,
        length=math.inf,
        view=View(Table(items.__getitem__), ahead),
    )


class RandomIterator(PipelineIterator):
    """What `random.Random(seed).random()` gives. State: how many were given.

    [D] With `seed=None`, `setstate(None)` begins the same stream again.
    """

    def __init__(self, seed: Seed = 0) -> None:
        super().__init__(infinibatch_random(seed, fresh(seed)))


@source_combinator(
    registered=False,
    checks={"seed": seedable},
    describe=lambda seed, origin: {"seed": told(seed)},
)
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

    return sourced(
        "RandomIterator",
        first=(origin,),
        check=check_place,
        flow=flow,
        skip=skip,
        length=math.inf,
    )

"""In what order, and how often: `shuffle`, `block_shuffle`, `repeat`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from lazyckpt.combinators.blocks import HashedOrders, shuffled_blocks
from lazyckpt.combinators.gather import reordered
from lazyckpt.combinators.reservoir import HashedSlots, Reservoir, held_again
from lazyckpt.core.checks import natural, optional, positive
from lazyckpt.core.machine import (
    End,
    Flow,
    Machine,
    Position,
    View,
    counted,
    machine,
    within,
)
from lazyckpt.core.prng import Indices, Permutation, as_array, derive
from lazyckpt.core.registry import Again, Taken
from lazyckpt.errors import ArgumentError, PipelineError
from lazyckpt.pipeline import combinator

A = TypeVar("A")

_WINDOW = 4096  # places of a permutation computed at once


@combinator(
    keeps_items=True,
    checks={"buffer_size": optional(positive), "seed": natural},
    rigid=lambda buffer_size, seed: buffer_size is None,  # another length, another permutation
    again=lambda position, upstream, buffer_size, seed: (
        () if buffer_size is None else held_again(position, upstream, buffer_size)
    ),
    takes=lambda buffer_size, **_: Taken(1, buffer_size or 0),
)
def shuffle(upstream: Machine[A], buffer_size: int | None = None, *, seed: int) -> Machine[A]:
    """The items in random order, another one in each epoch.

    - `buffer_size`: None for a permutation of everything, which needs random
      access; a number for a stream, of which this many items are held, and each
      new one takes the place of a random one, which is given
    - `seed`: an int >= 0; the same seed gives the same order

    State: a count of items; with a buffer, also a place before its oldest item.
    Resume: reads nothing again; with a buffer, the items held, or over a stream
    about 12 times as many.
    Random access: kept; with a buffer, no.
    Rank-free: yes.
    Memory: constant; with a buffer, its items. `block_shuffle` reads less again.
    Errors: `ArgumentError` without a buffer where upstream has no random access.
    Source: the permutation is described at `lazyckpt.core.prng.Permutation`.

    >>> import lazyckpt as lz
    >>> list(lz.source(range(8)) | lz.shuffle(seed=0))
    [5, 2, 0, 7, 6, 1, 3, 4]
    >>> list(lz.source(range(8)) | lz.shuffle(4, seed=0))
    [2, 0, 1, 3, 4, 7, 5, 6]
    """
    if buffer_size is None:
        return _permuted(upstream, seed)
    slots = partial(HashedSlots, seed, buffer_size)
    return Reservoir("shuffle", upstream, buffer_size, slots).machine()


def _permuted(upstream: Machine[A], seed: int) -> Machine[A]:
    length = upstream.length
    if upstream.skip is None or not isinstance(length, int):
        why = "is endless" if length == math.inf else "has no random access"
        raise ArgumentError(
            f"shuffle: what comes before it {why}; give a buffer_size, "
            "or put it before the stage that makes it so"
        )

    @lru_cache(maxsize=2)
    def order(epoch: int) -> Permutation:
        return Permutation(derive(seed, "shuffle", epoch), length)

    return reordered("shuffle", upstream, length, order)


@combinator(
    keeps_items=True,
    checks={"block_size": positive, "seed": natural},
    again=lambda position, upstream, block_size, seed: (
        () if upstream.view else [Again(position[0], block_size if position[2] else 0)]
    ),
    takes=lambda block_size, **_: Taken(1, block_size),
)
def block_shuffle(upstream: Machine[A], block_size: int, *, seed: int) -> Machine[A]:
    """Consecutive blocks of `block_size` items, each in random order; the last may be shorter.

    State: the place before the block, its number, and a count of its items given.
    Resume: reads one block again; over a table, nothing.
    Random access: kept over a table.
    Rank-free: yes.
    Memory: one block; over a table, none.

    A table is a source with random access, through any of `map`, `take`,
    `skip`, `shard`, `shuffle` without a buffer, and `repeat`.

    >>> import lazyckpt as lz
    >>> list(lz.source(range(8)) | lz.block_shuffle(4, seed=0))
    [0, 1, 2, 3, 7, 4, 6, 5]
    """

    def order(epoch: int, block: int, size: int) -> Permutation:
        return Permutation(derive(seed, "block_shuffle", epoch, block), size)

    view, jump = upstream.view, upstream.skip
    if view is None or jump is None:
        orders = partial(HashedOrders, "block_shuffle", seed)
        return shuffled_blocks(
            "block_shuffle", upstream, block_size, orders, length=upstream.length
        )

    def skip(position: Position, n: int) -> tuple[Position, int]:
        anchor, block, given = position
        reached = jump(anchor, within("block_shuffle", given, block_size) + n)[1]
        whole = max(0, reached - 1) // block_size
        anchor = jump(anchor, whole * block_size)[0]
        return (anchor, block + whole, reached - whole * block_size), reached - given

    def ahead(position: Position, offsets: Indices) -> Indices:
        anchor, block, given = position
        epoch = upstream.epoch(anchor)
        places = as_array(offsets) + given
        chosen = np.empty_like(places)
        blocks = places // block_size
        for number in np.unique(blocks).tolist():
            begin = number * block_size
            size = jump(jump(anchor, begin)[0], block_size)[1]
            within = blocks == number
            chosen[within] = order(epoch, block + number, size).at(places[within] - begin) + begin
        return view.ahead(anchor, chosen)

    return machine(
        init=lambda epoch: (upstream.init(epoch), 0, 0),
        epoch=lambda position: upstream.epoch(position[0]),
        skip=skip,
        length=upstream.length,
        view=View(view.table, ahead),
    )


@combinator(
    keeps_items=True,
    checks={"count": optional(natural)},
    elastic={"count": "any"},
    transparent=True,
    takes=Taken(epochs=math.inf),
)
def repeat(upstream: Machine[A], count: int | None = None) -> Machine[A]:
    """The stream again and again, shuffled anew in each epoch: `count` times or for ever.

    State: none; the epoch is the source's.
    Resume: reads nothing again.
    Random access: kept.
    Rank-free: with shards of one length; put it before `shard`.
    Errors: an endless repeat of an empty stream raises `PipelineError`.

    >>> import lazyckpt as lz
    >>> list(lz.source("ab".split()) | lz.repeat(2))
    ['ab', 'ab']
    """
    return repeated(upstream, count, "repeat: the stream")


def repeated(upstream: Machine[A], count: int | None, what: str) -> Machine[A]:
    """The machine of `repeat`; `what` is empty, says its error."""

    def first(epoch: int) -> int:
        return epoch << 32 if count is None else epoch * max(count, 1)

    def following(epoch: int) -> int | None:
        if count is not None and (epoch + 1) % count == 0:
            return None
        return epoch + 1

    def is_over(epoch: int) -> bool:
        return count == 0 or following(epoch) is None

    def empty() -> PipelineError:
        return PipelineError(f"{what} to repeat for ever is empty")

    def step(position: Position) -> tuple[Position, A]:
        begun = False
        while count != 0:
            try:
                return upstream.step(position)
            except End as end:
                if begun and count is None:
                    raise empty() from None
                epoch = upstream.epoch(position)
                if is_over(epoch) or (upstream.length == 0 and count is not None):
                    raise End(end.position) from None
            position, begun = upstream.init(epoch + 1), True
        raise End(position)

    def flow(position: Position) -> Flow[A]:
        current = upstream.flow(position)

        def passes() -> Iterator[Iterator[A]]:
            nonlocal current
            epoch = upstream.epoch(position)
            fresh = position == upstream.init(epoch)
            while count != 0:
                items, taken = counted(current)
                yield items
                if fresh and count is None and not taken():
                    raise empty()
                if is_over(epoch) or (upstream.length == 0 and count is not None):
                    return
                epoch, fresh = epoch + 1, True
                current = upstream.flow(upstream.init(epoch))

        return Flow(chain.from_iterable(passes()), lambda: current.snapshot())

    return machine(
        init=lambda epoch: upstream.init(first(epoch)),
        epoch=lambda p: (
            upstream.epoch(p) >> 32 if count is None else upstream.epoch(p) // max(count, 1)
        ),
        step=step,
        flow=flow,
        **_repeated_access(upstream, count),
    )


def _repeated_access(upstream: Machine[A], count: int | None) -> dict[str, Any]:
    jump, view, length = upstream.skip, upstream.view, upstream.length
    if count == 0:
        whole: int | float | None = 0
    elif count is None:
        whole = math.inf
    else:
        whole = None if length is None else length * count
    if jump is None or length is None or not length:
        return {"length": whole}

    def skip(position: Position, n: int) -> tuple[Position, int]:
        after, passed = jump(position, n)
        if count == 0:
            return position, 0
        epoch = upstream.epoch(position)
        later = math.inf if count is None else count - 1 - epoch % count
        if passed == n or not later:
            return after, passed
        assert isinstance(length, int)
        wanted = n - passed
        whole = int(min((wanted - 1) // length, later - 1))
        final = upstream.init(epoch + 1 + whole)
        after, rest = jump(final, wanted - whole * length)
        return after, passed + whole * length + rest

    def ahead(position: Position, offsets: Indices) -> Indices:
        assert view is not None
        if length == math.inf or not len(offsets):
            return view.ahead(position, offsets)
        left = jump(position, int(offsets[-1]) + 1)[1] if isinstance(offsets, range) else 0
        if isinstance(offsets, range) and left > offsets[-1]:
            return view.ahead(position, offsets)
        assert isinstance(length, int)
        left = jump(position, length)[1]
        numbers = as_array(offsets) - left
        epochs = numbers // length  # -1 stands for the rest of this epoch
        found = np.empty_like(numbers)
        for number in np.unique(epochs).tolist():
            within = epochs == number
            if number < 0:
                found[within] = view.ahead(position, numbers[within] + left)
            else:
                begin = upstream.init(upstream.epoch(position) + 1 + number)
                found[within] = view.ahead(begin, numbers[within] - number * length)
        return found

    return {"length": whole, "skip": skip, "view": view and View(view.table, ahead)}

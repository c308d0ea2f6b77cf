"""Items in random order: `shuffle`, `block_shuffle`."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np

from lazyckpt.combinators.machines.buffered import buffered
from lazyckpt.combinators.machines.reordered import Order, permuted, reordered, table_length
from lazyckpt.combinators.machines.shuffled_blocks import HashedOrders, shuffled_blocks
from lazyckpt.core.checks import natural, optional, positive
from lazyckpt.core.flow import Position, View
from lazyckpt.core.machine import Machine, Rate, within
from lazyckpt.core.prng import Indices, as_array
from lazyckpt.core.stages import stateful
from lazyckpt.decorators import combinator

A = TypeVar("A")


@combinator(
    keeps_items=True,
    checks={"buffer_size": optional(positive), "seed": natural},
)
def shuffle(upstream: Machine[A], buffer_size: int | None = None, *, seed: int) -> Machine[A]:
    """The items in random order, another one in each epoch.

    Within a buffer an item is as likely to move by one distance as by another, up
    to about nine tenths of `buffer_size` either way; of small buffers it is half.

    Args:
        buffer_size: None for a permutation of everything, which needs random
            access; for a stream the number of items held at most, an int >= 1. More
            than 33,554,432 mix as so many do.
        seed: An int >= 0; the same seed gives the same order.

    Raises:
        ArgumentError: Where upstream has no random access and there is no buffer.

    State:
        A count of items; over a stream also a place before the oldest one held.

    Resume:
        Re-reads nothing; over a stream at most twice `buffer_size` items (plus 64 below
        512). Where random access means a step, not a table, the items held are read one
        by one.

    Random access:
        Kept. Within a buffer, 0.1 to 10 ms where no place near has been asked for.

    Rank-free:
        Yes.

    Memory:
        Constant; over a stream `buffer_size` items, and 30 bytes for each.

    Source:
        The permutation is described at `lazyckpt.core.prng.Permutation`, that within a
        buffer at `lazyckpt.combinators.machines.bounded_order.BoundedOrder`.

    >>> import lazyckpt as lz
    >>> list(lz.source(range(8)) | lz.shuffle(seed=0))
    [5, 2, 0, 7, 6, 1, 3, 4]
    >>> list(lz.source(range(12)) | lz.shuffle(8, seed=0))
    [4, 5, 6, 2, 0, 3, 1, 8, 10, 11, 9, 7]
    """
    if buffer_size is None:
        return _permuted(upstream, seed)
    return buffered("shuffle", upstream, buffer_size, seed)


def _permuted(upstream: Machine[A], seed: int) -> Machine[A]:
    remedy = "; give a buffer_size, or put it before the stage that makes it so"
    length = table_length("shuffle", upstream, remedy)

    @lru_cache(maxsize=2)
    def order(epoch: int) -> Order:
        return permuted(length, seed, "shuffle", epoch)

    return reordered("shuffle", upstream, length, order)


@combinator(
    keeps_items=True,
    checks={"block_size": positive, "seed": natural},
)
def block_shuffle(upstream: Machine[A], block_size: int, *, seed: int) -> Machine[A]:
    """Consecutive blocks of `block_size` items, each in random order; the last may be shorter.

    A table is a source with random access, through any of `map`, `take`,
    `skip`, `shard`, `shuffle` without a buffer, and `repeat`.

    Args:
        block_size: Items a block, an int >= 1.
        seed: An int >= 0; the same seed gives the same order.

    State:
        The place before the block, its number, and a count of its items given.

    Resume:
        Re-reads one block; over a table, nothing.

    Random access:
        Kept over a table.

    Rank-free:
        Yes.

    Memory:
        One block; over a table, none.

    >>> import lazyckpt as lz
    >>> list(lz.source(range(8)) | lz.block_shuffle(4, seed=2))
    [2, 0, 3, 1, 6, 7, 5, 4]
    """
    rate = Rate(1, block_size)
    view, jump = upstream.view, upstream.skip
    if view is None or jump is None:
        orders = partial(HashedOrders, "block_shuffle", seed)
        return shuffled_blocks(
            "block_shuffle", upstream, block_size, orders, rate=rate, length=upstream.length
        )

    def check(block: Any, given: Any) -> None:
        within("block_shuffle", block), within("block_shuffle", given, block_size - 1)

    def skip(position: Position, n: int) -> tuple[Position, int]:
        anchor, block, given = position
        reached = jump(anchor, given + n)[1]
        whole, rest = divmod(reached, block_size)
        passed = max(0, reached - given)
        if not whole:
            return (anchor, block, rest), passed
        return (jump(anchor, whole * block_size)[0], block + whole, rest), passed

    def ahead(position: Position, offsets: Indices) -> Indices:
        anchor, block, given = position
        epoch = upstream.epoch(anchor)
        places = as_array(offsets) + given
        chosen = np.empty_like(places)
        blocks = places // block_size
        for number in np.unique(blocks).tolist():
            begin = number * block_size
            size = jump(jump(anchor, begin)[0], block_size)[1]
            mine = blocks == number
            order = permuted(size, seed, "block_shuffle", epoch, block + number)
            chosen[mine] = as_array(order.at(places[mine] - begin)) + begin
        return view.ahead(anchor, chosen)

    return stateful(
        "block_shuffle",
        upstream,
        first=(0, 0),
        check=check,
        rate=rate,
        skip=skip,
        length=upstream.length,
        view=View(view.table, ahead),
    )

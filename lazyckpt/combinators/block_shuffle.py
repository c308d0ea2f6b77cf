"""`block_shuffle`: consecutive blocks of items, each in random order."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from lazyckpt.combinators.machines.random_access import Order, permuted
from lazyckpt.combinators.machines.shuffled_blocks import shuffled_blocks
from lazyckpt.core.checks import natural, positive
from lazyckpt.core.flow import Position, View
from lazyckpt.core.machine import Machine, Rate, within
from lazyckpt.core.prng import Indices, as_array
from lazyckpt.core.stages import stateful
from lazyckpt.decorators import combinator

A = TypeVar("A")


@combinator(
    keeps_items=True,
    checks={"block_size": positive, "seed": natural},
)
def block_shuffle(upstream: Machine[A], block_size: int, *, seed: int) -> Machine[A]:
    """Shuffle the items within consecutive blocks of `block_size`; the last block may be shorter.

    Over a table it re-reads nothing on a resume. A table is a source with random access,
    followed by any of `map`, `take`, `skip`, `shard`, `shuffle` without a buffer, and `repeat`.

    Args:
        block_size: Number of items per block, an int >= 1.
        seed: An int >= 0; the same seed gives the same order.

    State:
        The position before the block, its number, and a count of its items yielded.

    Resume:
        Re-reads one block; over a table, nothing.

    Random access:
        Kept over a table.

    Rank-invariant:
        Yes.

    Memory:
        One block; over a table, the order of two: 8 bytes per item.

    >>> import lazyckpt as lz
    >>> list(lz.source(range(8)) | lz.block_shuffle(4, seed=2))
    [2, 0, 3, 1, 6, 7, 5, 4]
    """
    rate = Rate(1, block_size)
    view, jump = upstream.view, upstream.skip
    if view is None or jump is None:
        return shuffled_blocks(
            "block_shuffle", upstream, block_size, seed, rate=rate, length=upstream.length
        )

    @lru_cache(maxsize=2)
    def order(size: int, epoch: int, block: int) -> Order:
        return permuted(size, seed, "block_shuffle", epoch, block)

    def check(block: Any, yielded: Any) -> None:
        within("block_shuffle", block), within("block_shuffle", yielded, block_size - 1)

    def skip(position: Position, n: int) -> tuple[Position, int]:
        anchor, block, yielded = position
        reached = jump(anchor, yielded + n)[1]
        whole, rest = divmod(reached, block_size)
        passed = max(0, reached - yielded)
        if not whole:
            return (anchor, block, rest), passed
        return (jump(anchor, whole * block_size)[0], block + whole, rest), passed

    def ahead(position: Position, offsets: Indices) -> Indices:
        anchor, block, yielded = position
        epoch = upstream.epoch(anchor)
        places = as_array(offsets) + yielded
        chosen = np.empty_like(places)
        blocks = places // block_size
        for number in np.unique(blocks).tolist():
            begin = number * block_size
            size = jump(jump(anchor, begin)[0], block_size)[1]
            mine = blocks == number
            some = order(size, epoch, block + number)
            chosen[mine] = as_array(some.at(places[mine] - begin)) + begin
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

"""`shuffle`: items in random order."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

from lazyckpt.combinators.machines.buffered_shuffle import buffered_shuffle
from lazyckpt.combinators.machines.random_access import Order, permuted, reordered, table_length
from lazyckpt.core.checks import natural, optional, positive
from lazyckpt.core.machine import Machine
from lazyckpt.decorators import combinator

A = TypeVar("A")


@combinator(
    keeps_items=True,
    checks={"buffer_size": optional(positive), "seed": natural},
)
def shuffle(upstream: Machine[A], buffer_size: int | None = None, *, seed: int) -> Machine[A]:
    """Shuffle the items; each epoch has a different order.

    With a buffer, an item moves a uniformly random distance, up to about 0.9 of `buffer_size` in
    either direction; 0.5 for small buffers.

    Args:
        buffer_size: None for a permutation of all items, which needs random access. For a stream,
            the number of items held at most, an int >= 1; sizes above 33,554,432 mix no better
            than that size.
        seed: An int >= 0; the same seed gives the same order.

    Raises:
        ArgumentError: If upstream has no random access and `buffer_size` is None.

    State:
        A count of items; over a stream also a position before the oldest item held.

    Resume:
        Re-reads nothing; over a stream at most twice `buffer_size` items (plus 64 below 512). Over
        random access without a table, the items held are re-read one by one.

    Random access:
        Kept. With a buffer, 0.1 to 10 ms per item if no nearby item was read before.

    Rank-invariant:
        Yes.

    Memory:
        Constant; over a stream, or random access without a table, `buffer_size` items, and 30
        bytes for each.

    Source:
        The permutation is described at `lazyckpt.core.prng.Permutation`, the permutation within a
        buffer at `lazyckpt.combinators.machines.buffered_shuffle.BoundedOrder`.

    >>> import lazyckpt as lz
    >>> list(lz.source(range(8)) | lz.shuffle(seed=0))
    [5, 2, 0, 7, 6, 1, 3, 4]
    >>> list(lz.source(range(12)) | lz.shuffle(8, seed=0))
    [4, 5, 6, 2, 0, 3, 1, 8, 10, 11, 9, 7]
    """
    if buffer_size is None:
        return _permuted(upstream, seed)
    return buffered_shuffle(upstream, buffer_size, seed)


def _permuted(upstream: Machine[A], seed: int) -> Machine[A]:
    remedy = "; pass buffer_size, or put it before the stage that removes random access"
    length = table_length("shuffle", upstream, remedy)

    @lru_cache(maxsize=2)
    def order(epoch: int) -> Order:
        return permuted(length, seed, "shuffle", epoch)

    return reordered("shuffle", upstream, length, order)

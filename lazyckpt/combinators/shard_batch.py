"""`shard_batch`: which rank gets what of every batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from numbers import Real
from typing import Any, TypeVar

from lazyckpt.combinators.map import applied
from lazyckpt.combinators.shard import check_index
from lazyckpt.core.checks import brief, function, natural, positive
from lazyckpt.core.machine import Machine
from lazyckpt.core.registry import Elastic
from lazyckpt.decorators import combinator, giving
from lazyckpt.pipeline import Keeping

A = TypeVar("A", bound=Any)  # by which pyright lets a lambda do anything with it


@giving(Keeping)
@combinator(
    checks={"num_shards": positive, "index": natural, "key": function},
    validate=lambda num_shards, index, key: check_index("shard_batch", num_shards, index),
    unrecorded=("index",),
    elastic=Elastic(changes={"num_shards": "here"}),
    pointwise=True,
)
def shard_batch(
    upstream: Machine[Sequence[A]], *, num_shards: int, index: int, key: Callable[[A], float]
) -> Machine[list[A]]:
    """This rank's items of every batch, such that all ranks' cost nearly the same.

    The costliest item goes first, each to the rank that has least so far: no rank gets more
    than 4/3 of what the best of all parts would give the one that has most. The ranks take
    as many steps, and together they get every item once. Behind `token_batch` or
    `bucket_batch` of all ranks' budgets together.

    Args:
        num_shards: The number of ranks, an int >= 1.
        index: This rank, an int >= 0.
        key: What an item costs, a number >= 0, such as its length.

    Raises:
        TypeError: For what is no list, and for a cost that is no number >= 0.

    State:
        None.

    Resume:
        Re-reads nothing, with another number of shards too (`rebase`).

    Random access:
        Kept.

    Rank-invariant:
        Yes.

    Source:
        Longest processing time first (Graham, "Bounds on multiprocessing timing
        anomalies", 1969).

    >>> import lazyckpt as lz
    >>> batches = lz.source([9, 1, 1, 8, 7]) | lz.batch(5)
    >>> [list(batches | lz.shard_batch(num_shards=2, index=rank, key=int)) for rank in (0, 1)]
    [[[9, 1, 1]], [[8, 7]]]
    """

    def cost(item: A) -> float:
        found: Any = key(item)
        is_number = isinstance(found, Real) and not isinstance(found, bool)
        if not is_number or not found >= 0:
            raise TypeError(
                f"shard_batch: key must give a number >= 0, got {brief(found)} "
                f"({type(found).__name__}) for {brief(item)}"
            )
        return float(found)

    def part(items: Any) -> list[A]:
        if not isinstance(items, (list, tuple)):
            raise TypeError(
                f"shard_batch: a batch must be a list, got {brief(items)} ({type(items).__name__})"
            )
        costs = [cost(item) for item in items]
        loads = [(0.0, 0, rank) for rank in range(num_shards)]
        mine = []
        for place in sorted(range(len(items)), key=lambda place: (-costs[place], place)):
            load, count, rank = heappop(loads)
            heappush(loads, (load + costs[place], count + 1, rank))
            if rank == index:
                mine.append(place)
        return [items[place] for place in sorted(mine)]

    return applied(upstream, part)

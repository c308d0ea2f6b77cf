"""`shard_batch`: one rank's part of each batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from numbers import Real
from typing import Any, TypeVar

from lazyckpt.combinators.map import applied
from lazyckpt.combinators.map import map as mapped
from lazyckpt.combinators.shard import check_index
from lazyckpt.core.call import Call
from lazyckpt.core.checks import brief, function, natural, positive
from lazyckpt.core.machine import Machine
from lazyckpt.core.registry import Elastic
from lazyckpt.decorators import combinator, giving
from lazyckpt.pipeline import Keeping, Stage

A = TypeVar("A", bound=Any)  # bound to Any, so that pyright doesn't check the body of a lambda


def _cost(key: Callable[[Any], float], item: Any) -> float:
    found: Any = key(item)
    is_number = isinstance(found, Real) and not isinstance(found, bool)
    if not is_number or not found >= 0:
        raise TypeError(
            f"shard_batch: key must return a number >= 0, got {brief(found)} "
            f"({type(found).__name__}) for {brief(item)}"
        )
    return float(found)


def _part(num_shards: int, index: int, key: Callable[[Any], float], items: Any) -> list[Any]:
    if not isinstance(items, (list, tuple)):
        raise TypeError(
            f"shard_batch: a batch must be a list, got {brief(items)} ({type(items).__name__})"
        )
    costs = [_cost(key, item) for item in items]
    loads = [(0.0, 0, rank) for rank in range(num_shards)]
    mine = []
    for place in sorted(range(len(items)), key=lambda place: (-costs[place], place)):
        load, count, rank = heappop(loads)
        heappush(loads, (load + costs[place], count + 1, rank))
        if rank == index:
            mine.append(place)
    return [items[place] for place in sorted(mine)]


def _traced(call: Call, tracing: Any) -> Stage[Any, Any]:
    """Keep the origins of each item of a list, and give any other batch's part all of them."""
    tracing.look()
    given = call.arguments
    part, key = partial(_part, given["num_shards"], given["index"]), given["key"]

    def traced(batch: Any) -> Any:
        if isinstance(batch, (list, tuple)):
            return part(lambda item: key(tracing.plain(item)), batch)
        return tracing.traced(part(key, tracing.plain(batch)), tracing.origins(batch))

    return mapped(traced)


@giving(Keeping)
@combinator(
    checks={"num_shards": positive, "index": natural, "key": function},
    validate=lambda num_shards, index, key: check_index("shard_batch", num_shards, index),
    unrecorded=("index",),
    elastic=Elastic(changes={"num_shards": "here"}),
    pointwise=True,
    trace=_traced,
)
def shard_batch(
    upstream: Machine[Sequence[A]], *, num_shards: int, index: int, key: Callable[[A], float]
) -> Machine[list[A]]:
    """Select this rank's items of each batch, balancing the cost across ranks.

    Items are assigned from most to least expensive, each to the rank with the lowest total so
    far. The busiest rank gets at most 4/3 of the best possible maximum. All ranks take the same
    number of steps, and together they get each item once. Use it after `token_batch` or
    `bucket_batch` with the budget of all ranks together.

    Args:
        num_shards: The number of ranks, an int >= 1.
        index: This rank, an int >= 0.
        key: Function from an item to its cost, a number >= 0, such as its length.

    Raises:
        TypeError: If a batch is not a list, or a cost is not a number >= 0.

    State:
        None.

    Resume:
        Re-reads nothing, also with a different number of shards (`rebase`).

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
    part = partial(_part, num_shards, index, key)
    share = upstream.share.dealt(num_shards, index, is_even=True)
    return applied(upstream, part)._replace(share=share)

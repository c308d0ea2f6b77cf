"""`shard`: which rank gets what."""

from __future__ import annotations

from typing import Any, TypeVar

from lazyckpt.combinators.machines.sharding import (
    Remainder,
    contiguous_part,
    dealt_stream,
    padded,
    share_of,
    strided,
)
from lazyckpt.core.checks import boolean, brief, natural, one_of, optional, positive
from lazyckpt.core.machine import Machine
from lazyckpt.core.registry import Elastic
from lazyckpt.decorators import combinator
from lazyckpt.errors import ArgumentError

A = TypeVar("A")


def check_index(name: str, num_shards: int, index: int) -> None:
    """Raise `ArgumentError` for a rank that there is none of."""
    if index >= num_shards:
        raise ArgumentError(
            f"{name}: index must be below num_shards={num_shards}, got index={index}"
        )


def _fitting(num_shards: int, index: int, remainder: Remainder, pad: Any, **_: Any) -> None:
    check_index("shard", num_shards, index)
    if pad is not None and remainder != "pad":
        raise ArgumentError(
            f'shard: pad={brief(pad)} wants remainder="pad", got remainder={remainder!r}'
        )


@combinator(
    keeps_items=True,
    checks={
        "num_shards": positive,
        "index": natural,
        "contiguous": boolean,
        "remainder": optional(one_of("drop", "pad", "repeat")),
    },
    validate=_fitting,
    unrecorded=("index",),
    elastic=Elastic(changes={"num_shards": "lockstep", "pad": "blind"}),
)
def shard(
    upstream: Machine[A],
    *,
    num_shards: int,
    index: int,
    contiguous: bool = False,
    remainder: Remainder = None,
    pad: Any = None,
) -> Machine[A]:
    """Every `num_shards`-th item, beginning with item `index`; or part `index` of equal parts.

    Together the ranks get every item once; the lower ranks get one more where
    the number doesn't divide.

    With random access before it, no function is called for items of other ranks, so none fails
    at them. Nor is one after a `mix` of pipelines that have random access, with `map` and
    `repeat` between the two, unless workers make the items. Other streams are read for all
    ranks, so put `shard` early. In the stages right before it only its own items are made:
    `map`, `starmap`, `tap` and the `collate` of `batch` aren't called for others, and
    `pack_first_fit`, `pack_best_fit` and `concat_then_split` don't fill the rows of others.
    For a stream, "repeat" re-reads its beginning.

    Args:
        num_shards: The number of ranks, an int >= 1.
        index: This rank, an int >= 0.
        contiguous: Whether a rank gets consecutive items, rank 0 the first part, and so on.
        remainder: How to give all ranks as many items where the number doesn't divide:
            "drop" leaves out the last items, fewer than `num_shards`; "repeat" goes on
            with the beginning of the stream, again if need be; "pad" gives `pad`.
        pad: What stands in for items beyond the end, as an item that is told from others.

    Raises:
        ArgumentError: With `contiguous`, where upstream has no random access or no end.

    State:
        None; with `contiguous`, a count of the part's items, equal on all ranks. The
        place is that in the global stream; with `contiguous`, where the epoch begins.

    Resume:
        Re-reads nothing, with another number of shards too (`rebase`), unless
        `contiguous`.

    Random access:
        Kept.

    Rank-invariant:
        Yes.

    >>> import lazyckpt as lz
    >>> [list(lz.source(range(5)) | lz.shard(num_shards=2, index=rank)) for rank in (0, 1)]
    [[0, 2, 4], [1, 3]]
    >>> last = lz.shard(num_shards=2, index=1, contiguous=True, remainder="repeat")
    >>> list(lz.source(range(5)) | last)
    [3, 4, 0]
    >>> list(lz.source(range(5)) | lz.shard(num_shards=2, index=1, remainder="pad", pad=-1))
    [1, 3, -1]
    """
    if contiguous:
        return contiguous_part(upstream, num_shards, index, remainder, pad)
    length = share_of(upstream.length, num_shards, index, remainder)
    if upstream.skip is None:
        return dealt_stream(upstream, num_shards, index, remainder, pad, length)
    if remainder == "pad":
        return padded(upstream, num_shards, index, pad, length)
    return strided(upstream, num_shards, index, remainder, length)

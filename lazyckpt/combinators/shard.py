"""`shard`: one rank's part of the stream."""

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
    """Raise `ArgumentError` if there is no such rank."""
    if index >= num_shards:
        raise ArgumentError(
            f"{name}: index must be below num_shards={num_shards}, got index={index}"
        )


def _fitting(num_shards: int, index: int, remainder: Remainder, pad: Any, **_: Any) -> None:
    check_index("shard", num_shards, index)
    if pad is not None and remainder != "pad":
        raise ArgumentError(
            f'shard: pad={brief(pad)} requires remainder="pad", got remainder={remainder!r}'
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
    """Yield every `num_shards`-th item from item `index` on; or part `index` of equal parts.

    Together, the ranks get each item once. If the number of items isn't divisible by the number
    of ranks, lower ranks get one item more; `remainder` changes that.

    With random access before `shard`, items of other ranks are not computed. The same holds after
    a `mix` of pipelines with random access, with only `map` and `repeat` in between; if workers
    compute the items, with only `repeat`. Any other stream is read by every rank, so put `shard`
    early. Even then, the stages directly before it compute only this rank's items: `map`,
    `starmap`, `tap` and the `collate` of `batch` aren't called for other items, and
    `pack_first_fit`, `pack_best_fit` and `concat_then_split` don't fill other rows. Exceptions:
    `on_error="skip"`, as an item that fails shifts those of other ranks; work shared by all ranks,
    where each item is computed once; and workers with `remainder="pad"`.

    Args:
        num_shards: The number of ranks, an int >= 1.
        index: This rank, an int >= 0.
        contiguous: If True, a rank gets consecutive items: rank 0 the first part, and so on.
        remainder: How to give all ranks the same number of items. "drop" drops the last items,
            fewer than `num_shards`; "repeat" continues with the beginning of the stream, again if
            needed, and re-reads it if there is no random access; "pad" yields `pad`.
        pad: Stand-in for items beyond the end, distinguishable from an item.

    Raises:
        ArgumentError: With `contiguous`, if upstream has no random access or no end.

    State:
        None; with `contiguous`, a count of the part's items, equal on all ranks. The position is
        that in the global stream; with `contiguous`, the beginning of the epoch.

    Resume:
        Re-reads nothing, also with a different number of shards (`rebase`), unless `contiguous`.

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

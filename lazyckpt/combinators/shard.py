"""`shard`: which rank gets what."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any, Literal, TypeVar

import numpy as np

from lazyckpt.core.checks import boolean, natural, one_of, optional, positive
from lazyckpt.core.flow import Flow, Position, View, counted
from lazyckpt.core.machine import End, Machine, Rate, within
from lazyckpt.core.prng import Indices, affine, as_array
from lazyckpt.core.stages import stateful, stateless
from lazyckpt.decorators import combinator
from lazyckpt.errors import ArgumentError

A = TypeVar("A")

Remainder = Literal["pad", "drop"] | None


def check_index(name: str, num_shards: int, index: int) -> None:
    """Raise `ArgumentError` for a rank that there is none of."""
    if index >= num_shards:
        raise ArgumentError(
            f"{name}: index must be below num_shards={num_shards}, got index={index}"
        )


def _within(num_shards: int, index: int, **_: Any) -> None:
    check_index("shard", num_shards, index)


@combinator(
    keeps_items=True,
    checks={
        "num_shards": positive,
        "index": natural,
        "contiguous": boolean,
        "remainder": optional(one_of("pad", "drop")),
    },
    validate=_within,
    unrecorded=("index",),
    rebasable={"num_shards": "lockstep"},
)
def shard(
    upstream: Machine[A],
    *,
    num_shards: int,
    index: int,
    contiguous: bool = False,
    remainder: Remainder = None,
) -> Machine[A]:
    """Every `num_shards`-th item, beginning with item `index`; or part `index` of equal parts.

    Together the ranks get every item once; the lower ranks get one more where
    the number doesn't divide.

    It reads other ranks' items, and drops them, only where there is no random
    access: put it early. There, "pad" re-reads the beginning of the stream.

    Args:
        num_shards: The number of ranks, an int >= 1.
        index: This rank, an int >= 0.
        contiguous: Whether a rank gets consecutive items, rank 0 the first part, and so on.
        remainder: How to give all ranks as many items where the number doesn't divide:
            "pad" goes on with the beginning of the stream, again if need be, and
            "drop" leaves out the last items.

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

    Rank-free:
        Yes.

    >>> import lazyckpt as lz
    >>> [list(lz.source(range(5)) | lz.shard(num_shards=2, index=rank)) for rank in (0, 1)]
    [[0, 2, 4], [1, 3]]
    >>> last = lz.shard(num_shards=2, index=1, contiguous=True, remainder="pad")
    >>> list(lz.source(range(5)) | last)
    [3, 4, 0]
    """
    if contiguous:
        return _part(upstream, num_shards, index, remainder)
    length = _share(upstream.length, num_shards, index, remainder)
    if upstream.skip is None:
        return _dealt(upstream, num_shards, index, remainder, length)
    return _strided(upstream, num_shards, index, remainder, length)


def _share(
    length: int | float | None, num_shards: int, index: int, remainder: Remainder
) -> int | float | None:
    if length is None or length == math.inf:
        return length
    whole, rest = divmod(int(length), num_shards)
    return whole + (rest > 0 if remainder == "pad" else rest > index and remainder is None)


def _strided(
    upstream: Machine[A],
    num_shards: int,
    index: int,
    remainder: Remainder,
    length: int | float | None,
) -> Machine[A]:
    jump, view = upstream.skip, upstream.view
    alone: Any = upstream.item
    assert jump is not None

    def skip(position: Position, n: int) -> tuple[Position, int]:
        after, passed = jump(position, n * num_shards)
        return after, int(_share(passed, num_shards, index, remainder) or 0)

    def wrapped(position: Position, beyond: Any) -> tuple[Position, Any]:
        """The epoch's beginning, and which of its items stand in for those beyond the end."""
        begin = upstream.init(upstream.epoch(position))
        return begin, beyond % jump(begin, num_shards)[1]

    def step(position: Position) -> tuple[Position, A]:
        after, passed = skip(position, 1)
        if not passed:
            raise End(after)
        here, reached = jump(position, index)
        dealt = jump(position, num_shards)[1]
        if dealt <= index:
            begin, reached = wrapped(position, index - dealt)
            here = jump(begin, reached)[0]
        return after, upstream.step(here)[1]

    def item(position: Position, n: int) -> A:
        found: A = alone(position, index + n * num_shards)
        return found

    def ahead(position: Position, offsets: Indices) -> Indices:
        assert view is not None
        wanted = affine(offsets, index, num_shards)
        if remainder != "pad" or not len(wanted):
            return view.ahead(position, wanted)
        last = int(wanted[-1] if isinstance(wanted, range) else wanted.max())
        left = jump(position, last + 1)[1]
        if left > last:
            return view.ahead(position, wanted)
        places = as_array(wanted)
        found = np.empty_like(places)
        inside = places < left
        found[inside] = view.ahead(position, places[inside])
        found[~inside] = view.ahead(*wrapped(position, places[~inside] - left))
        return found

    return stateless(
        upstream,
        rate=Rate(),
        share=upstream.share.dealt(num_shards, index),
        step=step,
        skip=skip,
        item=None if remainder == "pad" else item,
        length=length,
        view=view and View(view.table, ahead, view.moved(index, num_shards)),
    )


def _part(upstream: Machine[A], num_shards: int, index: int, remainder: Remainder) -> Machine[A]:
    jump, length, view = upstream.skip, upstream.length, upstream.view
    if jump is None or not isinstance(length, int):
        why = "is endless" if length == math.inf else "has no random access"
        raise ArgumentError(
            f"shard: contiguous=True, and what comes before it {why}; "
            "put it before the stage that makes it so"
        )
    base, extra = divmod(length, num_shards)
    size = _share(length, num_shards, index, remainder)
    assert isinstance(size, int)
    start = index * size if remainder else index * base + min(index, extra)

    def step(position: Position) -> tuple[Position, A]:
        begin, given = position
        if given >= size:
            raise End(position)
        item = upstream.step(jump(begin, (start + given) % length)[0])[1]
        return (begin, given + 1), item

    def flow(position: Position) -> Flow[A]:
        begin, given = position
        items = upstream.flow(jump(begin, start + given)[0])
        some, taken = counted(islice(items, size - given))
        return Flow(some, lambda: (begin, given + taken()))

    def skip(position: Position, n: int) -> tuple[Position, int]:
        begin, given = position
        passed = min(n, size - given)
        return (begin, given + passed), passed

    def ahead(position: Position, offsets: Indices) -> Indices:
        assert view is not None
        begin, given = position
        places = affine(offsets, start + given)
        return view.ahead(begin, places if start + size <= length else as_array(places) % length)

    return stateful(
        "shard",
        upstream,
        check=lambda given: within("shard", given, size),
        rate=Rate(whole_epoch=True),
        share=upstream.share.cut(start, num_shards, index),
        step=step,
        flow=flow if start + size <= length else None,
        skip=skip,
        length=size,
        view=view and View(view.table, ahead, view.moved(start)),
    )


def _dealt(
    upstream: Machine[A],
    num_shards: int,
    index: int,
    remainder: Remainder,
    length: int | float | None,
) -> Machine[A]:
    """Over a stream, which has to be read for all ranks."""

    def mine(position: Position, dealt: list[A]) -> list[A]:
        """What this rank gets of what was dealt in one round: one item, or none at the end."""
        if remainder == "drop" and len(dealt) < num_shards:
            return []
        if remainder == "pad" and dealt and len(dealt) <= index:
            beyond = index - len(dealt)
            begin = upstream.init(upstream.epoch(position))
            found = list(islice(upstream.flow(begin), beyond + 1))
            return [found[beyond % len(found)]]
        return dealt[index : index + 1]

    def step(position: Position) -> tuple[Position, A]:
        dealt: list[A] = []
        while len(dealt) < num_shards:
            try:
                position, item = upstream.step(position)
            except End as end:
                position = end.position
                break
            dealt.append(item)
        for item in mine(position, dealt):
            return position, item
        raise End(position)

    def flow(position: Position) -> Flow[A]:
        items = upstream.flow(position)

        def hands() -> Iterator[A]:
            stream = iter(items)
            while dealt := list(islice(stream, num_shards)):
                hand = mine(position, dealt)
                yield from hand
                if not hand:
                    return

        return Flow(hands(), items.snapshot)

    rate = Rate(num_shards, num_shards if remainder == "pad" else 0)
    share = upstream.share.dealt(num_shards, index)
    return stateless(upstream, rate=rate, share=share, step=step, flow=flow, length=length)

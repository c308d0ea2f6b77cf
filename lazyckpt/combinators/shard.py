"""Which rank gets what: `shard`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any, Literal, TypeVar

import numpy as np

from lazyckpt.core.checks import boolean, natural, one_of, optional, positive
from lazyckpt.core.machine import (
    End,
    Flow,
    Machine,
    Position,
    View,
    counted,
    machine,
    stateless,
    within,
)
from lazyckpt.core.prng import Indices, affine, as_array
from lazyckpt.core.registry import Taken
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import combinator

A = TypeVar("A")

Remainder = Literal["pad", "drop"] | None


def _within(num_shards: int, index: int, contiguous: bool, remainder: Remainder) -> None:
    if index >= num_shards:
        raise ArgumentError(
            f"shard: index must be below num_shards={num_shards}, got index={index}"
        )


def _taken(
    upstream: Machine[Any], num_shards: int, index: int, contiguous: bool, remainder: Remainder
) -> Taken:
    if upstream.skip is not None:
        return Taken()
    return Taken(num_shards, num_shards if remainder == "pad" else 0)


@combinator(
    keeps_items=True,
    checks={
        "num_shards": positive,
        "index": natural,
        "contiguous": boolean,
        "remainder": optional(one_of("pad", "drop")),
    },
    validate=_within,
    free=("index",),
    elastic={"num_shards": "lockstep"},
    lockstep=True,
    rigid=lambda num_shards, index, contiguous, remainder: contiguous,
    takes=_taken,
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

    - `contiguous`: consecutive items, the first part for rank 0, and so on
    - `remainder`: how to give all ranks as many items where the number doesn't divide:
      "pad" goes on with the beginning of the stream, again if need be, and
      "drop" leaves out the last items

    State: none; the place is that in the global stream. With `contiguous`, the
    place where the epoch begins and a count of the part's items, equal on all ranks.
    Resume: reads nothing again, also with another number of shards (`rebase`),
    unless `contiguous`.
    Random access: kept.
    Rank-free: yes.
    Errors: `ArgumentError` with `contiguous` where upstream has no random access
    or no end.

    Other ranks' items are read, and dropped, only where there is no random
    access: put it early. There, "pad" reads the beginning of the stream again.

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
        within = places < left
        found[within] = view.ahead(position, places[within])
        found[~within] = view.ahead(*wrapped(position, places[~within] - left))
        return found

    return stateless(
        upstream,
        step=step,
        skip=skip,
        length=length,
        view=view and View(view.table, ahead),
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
        items = upstream.flow(jump(begin, start + within("shard", given, size))[0])
        some, taken = counted(islice(items, size - given))
        return Flow(some, lambda: (begin, given + taken()))

    def skip(position: Position, n: int) -> tuple[Position, int]:
        begin, given = position
        jump(begin, 0)  # which checks it
        passed = min(n, size - within("shard", given, size))
        return (begin, given + passed), passed

    def ahead(position: Position, offsets: Indices) -> Indices:
        assert view is not None
        begin, given = position
        places = affine(offsets, start + given)
        return view.ahead(begin, places if start + size <= length else as_array(places) % length)

    return machine(
        init=lambda epoch: (upstream.init(epoch), 0),
        epoch=lambda position: upstream.epoch(position[0]),
        step=step,
        flow=flow if start + size <= length else None,
        skip=skip,
        length=size,
        view=view and View(view.table, ahead),
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

    return stateless(upstream, step=step, flow=flow, length=length)

"""Machines for `shard`: parts of a stream, one per rank."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, islice, repeat
from typing import Any, Literal, TypeVar

import numpy as np

from lazyckpt.core.flow import Flow, Position, View, counted, picking
from lazyckpt.core.machine import MOST, End, Machine, Rate, Share, within
from lazyckpt.core.prng import Indices, affine, as_array
from lazyckpt.core.stages import stateful, stateless
from lazyckpt.errors import ArgumentError

A = TypeVar("A")

Remainder = Literal["drop", "pad", "repeat"] | None


def share_of(
    length: int | float | None, num_shards: int, index: int, remainder: Remainder
) -> int | float | None:
    """Return how many of a number of items a rank gets."""
    if length is None or length == math.inf:
        return length
    whole, rest = divmod(int(length), num_shards)
    fills = remainder in ("pad", "repeat")
    return whole + (rest > 0 if fills else rest > index and remainder is None)


def _is_even(length: int | float | None, num_shards: int, remainder: Remainder) -> bool:
    """Return whether all ranks get the same number of items."""
    divides = length is not None and (length == math.inf or length % num_shards == 0)
    return remainder is not None or divides


def _dealt(upstream: Machine[Any], num_shards: int, index: int, remainder: Remainder) -> Share:
    """Return the items of the global stream that one rank is dealt."""
    is_even = _is_even(upstream.length, num_shards, remainder)
    return upstream.share.dealt(num_shards, index, is_even=is_even)


def strided(
    upstream: Machine[A],
    num_shards: int,
    index: int,
    remainder: Remainder,
    length: int | float | None,
) -> Machine[A]:
    """Yield every `num_shards`-th item, over random access."""
    jump, view = upstream.skip, upstream.view
    alone: Any = upstream.item
    assert jump is not None

    def skip(position: Position, n: int) -> tuple[Position, int]:
        after, passed = jump(position, n * num_shards)
        return after, int(share_of(passed, num_shards, index, remainder) or 0)

    def wrapped(position: Position, beyond: Any) -> tuple[Position, Any]:
        """Return the epoch's beginning, and the number of the item used for item `beyond`."""
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
        if remainder != "repeat" or not len(wanted):
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
        share=_dealt(upstream, num_shards, index, remainder),
        step=step,
        skip=skip,
        item=None if remainder == "repeat" else item,
        length=length,
        view=view and View(view.table, ahead, view.moved(index, num_shards)),
    )


def padded(
    upstream: Machine[A], num_shards: int, index: int, pad: A, length: int | float | None
) -> Machine[A]:
    """Yield a rank's items, and one item more if other ranks have more."""
    mine = strided(upstream, num_shards, index, None, None)
    jump = upstream.skip
    assert jump is not None

    def skip(position: Position, n: int) -> tuple[Position, int]:
        after, passed = jump(position, n * num_shards)
        return after, int(share_of(passed, num_shards, index, "pad") or 0)

    def step(position: Position) -> tuple[Position, A]:
        try:
            return mine.step(position)
        except End as end:
            if not jump(position, 1)[1]:
                raise
            return end.position, pad

    def flow(position: Position) -> Flow[A]:
        items = mine.flow(position)

        def tail() -> Iterator[A]:
            left = jump(position, MOST)[1] % num_shards
            if 0 < left <= index:
                yield pad

        return Flow(chain(items, tail()), items.snapshot)

    share = _dealt(upstream, num_shards, index, "pad")
    return stateless(
        upstream, rate=Rate(), share=share, step=step, flow=flow, skip=skip, length=length
    )


def contiguous_part(
    upstream: Machine[A], num_shards: int, index: int, remainder: Remainder, pad: A
) -> Machine[A]:
    """Yield consecutive items, over random access."""
    jump, length, view = upstream.skip, upstream.length, upstream.view
    if jump is None or not isinstance(length, int):
        why = "is endless" if length == math.inf else "has no random access"
        raise ArgumentError(
            f"shard: contiguous=True, and the pipeline before it {why}; "
            "put it before the stage that removes random access"
        )
    base, extra = divmod(length, num_shards)
    size = share_of(length, num_shards, index, remainder)
    assert isinstance(size, int)
    start = index * size if remainder else index * base + min(index, extra)
    is_inside, last = start + size <= length, max(length - start, 0)

    def step(position: Position) -> tuple[Position, A]:
        begin, given = position
        if given >= size:
            raise End(position)
        if remainder == "pad" and given >= last:
            return (begin, given + 1), pad
        item = upstream.step(jump(begin, (start + given) % length)[0])[1]
        return (begin, given + 1), item

    def flow(position: Position) -> Flow[A]:
        begin, given = position
        own = max(min(size, last) - given, 0)
        items = islice(upstream.flow(jump(begin, start + given)[0]), own)
        beyond = repeat(pad, size - given - own)
        some, taken = counted(items if is_inside else chain(items, beyond))
        return Flow(some, lambda: (begin, given + taken()))

    def skip(position: Position, n: int) -> tuple[Position, int]:
        begin, given = position
        passed = min(n, size - given)
        return (begin, given + passed), passed

    def ahead(position: Position, offsets: Indices) -> Indices:
        assert view is not None
        begin, given = position
        places = affine(offsets, start + given)
        return view.ahead(begin, places if is_inside else as_array(places) % length)

    seen = view and View(view.table, ahead, view.moved(start))
    if not is_inside and remainder == "pad":
        seen = None  # no table has the padding
    return stateful(
        "shard",
        upstream,
        check=lambda given: within("shard", given, size),
        rate=Rate(whole_epoch=True),
        share=upstream.share.cut(
            start, num_shards, index, is_even=_is_even(length, num_shards, remainder)
        ),
        step=step,
        flow=flow if is_inside or remainder == "pad" else None,
        skip=skip,
        length=size,
        view=seen,
    )


def dealt_stream(
    upstream: Machine[A],
    num_shards: int,
    index: int,
    remainder: Remainder,
    pad: A,
    length: int | float | None,
) -> Machine[A]:
    """Yield a rank's items of a stream; items of other ranks are skipped, or else read.

    Pending work, such as the function of `map` and the filling of packed rows, is done only for
    this rank's items.
    """

    def mine(position: Position, dealt: int, own: list[A]) -> list[A]:
        """Return this rank's item of a round, or none at the end."""
        if remainder == "drop" and dealt < num_shards:
            return []
        if remainder == "pad" and 0 < dealt <= index:
            return [pad]
        if remainder == "repeat" and 0 < dealt <= index:
            beyond = index - dealt
            begin = upstream.init(upstream.epoch(position))
            found = list(islice(upstream.flow(begin), beyond + 1))
            return [found[beyond % len(found)]]
        return own

    def flow(position: Position) -> Flow[A]:
        items = upstream.flow(position)
        if num_shards == 1:
            return items
        _, _, pick = picking(items)

        def hands() -> Iterator[A]:
            while hand := mine(position, *pick(num_shards, index)):
                yield from hand

        return Flow(hands(), items.snapshot)

    rate = Rate(num_shards, num_shards if remainder == "repeat" else 0)
    share = _dealt(upstream, num_shards, index, remainder)
    return stateless(upstream, rate=rate, share=share, flow=flow, length=length)

"""Which rank gets what: `shard`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

from lazyckpt.checks import natural, positive
from lazyckpt.errors import ArgumentError
from lazyckpt.machine import End, Flow, Machine, Position, View, stateless
from lazyckpt.noise import Indices, affine
from lazyckpt.pipeline import combinator

A = TypeVar("A")


def _within(num_shards: int, index: int) -> None:
    if index >= num_shards:
        raise ArgumentError(
            f"shard: index must be below num_shards={num_shards}, got index={index}"
        )


@combinator(
    keeps_items=True,
    checks={"num_shards": positive, "index": natural},
    validate=_within,
    free=("index",),
    elastic={"num_shards": "lockstep"},
    lockstep=True,
)
def shard(upstream: Machine[A], *, num_shards: int, index: int) -> Machine[A]:
    """Every `num_shards`-th item, beginning with item `index`.

    Together the ranks get every item once; the lower ranks get one more where
    the number doesn't divide.

    State: none; the place is that in the global stream.
    Resume: reads nothing again, also with another number of shards (`rebase`).
    Random access: kept.
    Rank-free: yes.

    Other ranks' items are read, and dropped, only where there is no random
    access: put it early.

    >>> import lazyckpt as lz
    >>> [list(lz.source(range(5)) | lz.shard(num_shards=2, index=rank)) for rank in (0, 1)]
    [[0, 2, 4], [1, 3]]
    """
    jump, length = upstream.skip, upstream.length
    if length is not None and length != math.inf:
        length = max(0, -(-(int(length) - index) // num_shards))
    if jump is None:
        return _dealt(upstream, num_shards, index, length)

    def skip(position: Position, n: int) -> tuple[Position, int]:
        after, passed = jump(position, n * num_shards)
        whole, rest = divmod(passed, num_shards)
        return after, whole + (rest > index)

    def step(position: Position) -> tuple[Position, A]:
        after, passed = skip(position, 1)
        if not passed:
            raise End(after)
        return after, upstream.step(jump(position, index)[0])[1]

    view = upstream.view

    def ahead(position: Position, offsets: Indices) -> Indices:
        assert view is not None
        return view.ahead(position, affine(offsets, index, num_shards))

    return stateless(
        upstream,
        step=step,
        skip=skip,
        length=length,
        view=view and View(view.table, ahead),
    )


def _dealt(
    upstream: Machine[A], num_shards: int, index: int, length: int | float | None
) -> Machine[A]:
    """Over a stream, which has to be read for all ranks."""

    def step(position: Position) -> tuple[Position, A]:
        mine: list[A] = []
        for number in range(num_shards):
            try:
                position, item = upstream.step(position)
            except End as end:
                if not mine:
                    raise
                return end.position, mine[0]
            if number == index:
                mine.append(item)
        return position, mine[0]

    def flow(position: Position) -> Flow[A]:
        items = upstream.flow(position)

        def mine() -> Iterator[A]:
            stream = iter(items)
            while dealt := list(islice(stream, num_shards)):
                if len(dealt) <= index:
                    return
                yield dealt[index]

        return Flow(mine(), items.snapshot)

    return stateless(upstream, step=step, flow=flow, length=length)

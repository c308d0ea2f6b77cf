"""`lru_cache`: recently used items kept in memory."""

from __future__ import annotations

import functools
from typing import TypeVar

from lazyckpt.core.checks import positive
from lazyckpt.core.flow import Position, Table, View
from lazyckpt.core.machine import End, Machine, Rate
from lazyckpt.core.stages import stateless
from lazyckpt.decorators import combinator
from lazyckpt.errors import ArgumentError

A = TypeVar("A")


@combinator(keeps_items=True, checks={"size": positive}, unrecorded=("size",))
def lru_cache(upstream: Machine[A], size: int) -> Machine[A]:
    """Keep the `size` most recently used items in memory instead of recomputing them.

    Over a table, an item is kept from one epoch to the next, so put it before `shuffle` and
    `repeat`. A table is a source with random access, followed by any of `map`, `take`, `skip`,
    `gather`, `shard`, `repeat` and `shuffle` without a buffer. Otherwise an item is kept within
    its epoch. Each process has its own cache.

    Args:
        size: Number of items to keep.

    Raises:
        ArgumentError: If upstream has no random access.

    State:
        None; after a resume the cache is empty.

    Resume:
        Re-reads nothing.

    Random access:
        Kept.

    Rank-invariant:
        Yes.

    Memory:
        `size` items. They are shared: don't change them in place.

    >>> import lazyckpt as lz
    >>> seen = lz.source([1, 2]) | lz.tap(print) | lz.lru_cache(2) | lz.repeat(3)
    >>> sum(seen)
    1
    2
    9
    """
    jump, view = upstream.skip, upstream.view
    if jump is None:
        raise ArgumentError("lru_cache: the pipeline before it has no random access")
    if view is None:
        return stateless(
            upstream,
            rate=Rate(),
            step=functools.lru_cache(size)(upstream.step),
            skip=jump,
            length=upstream.length,
        )
    get = functools.lru_cache(size)(view.table.get)

    def step(position: Position) -> tuple[Position, A]:
        after, passed = jump(position, 1)
        if not passed:
            raise End(after)
        return after, get(int(view.ahead(position, range(1))[0]))

    return stateless(
        upstream,
        rate=Rate(),
        step=step,
        skip=jump,
        length=upstream.length,
        view=View(Table(get), view.ahead, view.block_starts),
    )

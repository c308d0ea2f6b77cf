"""`lru_cache`: items kept rather than made again."""

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
    """The items as they are, the `size` last used of them kept rather than made again.

    Over a table (a source with random access, through any of `map`, `take`,
    `skip`, `gather`, `shard`, `repeat`, `shuffle` without a buffer) an item is kept
    from one epoch to the next: put it before `shuffle` and `repeat`. Elsewhere
    it is kept within its epoch. Each process has a cache of its own.

    Args:
        size: How many items are kept.

    Raises:
        ArgumentError: Where upstream has no random access.

    State:
        None; a cache begins empty.

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
        raise ArgumentError("lru_cache: what comes before it has no random access")
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

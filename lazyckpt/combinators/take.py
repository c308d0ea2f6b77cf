"""`take`, `skip`: the first items, and the items after them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from lazyckpt.core.checks import natural
from lazyckpt.core.flow import (
    WALKS,
    FirstItems,
    Flow,
    Position,
    View,
    blocks_of,
    counted,
    in_blocks,
)
from lazyckpt.core.machine import End, Machine, Rate, within
from lazyckpt.core.prng import Indices
from lazyckpt.core.stages import stateful
from lazyckpt.decorators import combinator

A = TypeVar("A")


@combinator(keeps_items=True, checks={"n": natural})
def take(upstream: Machine[A], n: int) -> Machine[A]:
    """Keep the first `n` items of an epoch; the rest is not read.

    Args:
        n: Number of items, an int >= 0.

    State:
        A count of items.

    Resume:
        Re-reads nothing.

    Random access:
        Kept.

    Rank-invariant:
        Yes.

    >>> import lazyckpt as lz
    >>> list(lz.source(range(10**9)) | lz.take(3))
    [0, 1, 2]
    """

    alone: Any = upstream.item

    def step(position: Position) -> tuple[Position, A]:
        before, taken = position
        if taken >= n:
            raise End(position)
        try:
            after, item = upstream.step(before)
        except End as end:
            raise End((end.position, taken)) from None
        return (after, taken + 1), item

    def flow(position: Position) -> Flow[A]:
        before, taken = position
        items, left = upstream.flow(before), min(n - taken, sys.maxsize)
        if left and items.has_blocks:
            blocks, given, _ = blocks_of(items)
            return in_blocks(
                _first_of(blocks, left, given),
                lambda: (items.snapshot(), taken + given()),
                given,
            )
        some, given = counted(islice(items, left))
        return Flow(some, lambda: (items.snapshot(), taken + given()))

    def skip(position: Position, count: int) -> tuple[Position, int]:
        assert upstream.skip is not None
        before, taken = position
        after, passed = upstream.skip(before, min(count, n - taken))
        return (after, taken + passed), passed

    def ahead(position: Position, offsets: Indices) -> Indices:
        assert upstream.view is not None
        return upstream.view.ahead(position[0], offsets)

    return stateful(
        "take",
        upstream,
        check=lambda taken: within("take", taken, n),
        rate=Rate(),
        step=step,
        flow=flow,
        skip=upstream.skip and skip,
        item=lambda position, count: alone(position[0], count),
        length=None if upstream.length is None else min(n, upstream.length),
        view=upstream.view and upstream.view._replace(ahead=ahead),
    )


def _first_of(
    blocks: Iterable[Iterator[A]], n: int, taken: Callable[[], int]
) -> Iterator[Iterator[A]]:
    """Yield blocks of `n` items in all; `taken()` is the number of items taken so far."""
    for block in blocks:
        first = FirstItems if type(block) in WALKS else islice
        yield first(block, n - taken())
        if taken() >= n:
            return


@combinator(keeps_items=True, checks={"n": natural})
def skip(upstream: Machine[A], n: int) -> Machine[A]:
    """Skip the first `n` items of an epoch.

    Args:
        n: Number of items, an int >= 0.

    State:
        Whether the `n` items were passed.

    Resume:
        Re-reads nothing.

    Random access:
        Kept; the `n` items are not read.

    Rank-invariant:
        Yes.

    >>> import lazyckpt as lz
    >>> list(lz.source(range(5)) | lz.skip(3))
    [3, 4]
    """
    length = None if upstream.length is None else max(0, upstream.length - n)
    jump, view = upstream.skip, upstream.view
    alone: Any = upstream.item
    if jump is None:
        return stateful(
            "skip",
            upstream,
            check=_is_passed,
            rate=Rate(1, n),
            flow=_reading_over(upstream, n),
            length=length,
        )

    def skipped(position: Position) -> Position:
        """Return upstream's position after the n items."""
        before, passed = position
        return before if passed else jump(before, n)[0]

    def step(position: Position) -> tuple[Position, A]:
        try:
            after, item = upstream.step(skipped(position))
        except End as end:
            raise End((end.position, 1)) from None
        return (after, 1), item

    def flow(position: Position) -> Flow[A]:
        items = upstream.flow(skipped(position))
        return items.with_snapshot(lambda: (items.snapshot(), 1))

    def skip(position: Position, count: int) -> tuple[Position, int]:
        after, passed = jump(skipped(position), count)
        return (after, 1), passed

    def ahead(position: Position, offsets: Indices) -> Indices:
        assert view is not None
        return view.ahead(skipped(position), offsets)

    return stateful(
        "skip",
        upstream,
        init=lambda epoch: (jump(upstream.init(epoch), n)[0], 1),
        check=_is_passed,
        rate=Rate(),
        step=step,
        flow=flow,
        skip=skip,
        item=lambda position, count: alone(skipped(position), count),
        length=length,
        view=view and View(view.table, ahead, view.moved(n)),
    )


def _is_passed(passed: int) -> None:
    within("skip", passed, 1)


def _reading_over(upstream: Machine[A], n: int) -> Callable[[Position], Flow[A]]:
    """Return the flow of `skip` without random access."""

    def flow(position: Position) -> Flow[A]:
        before, passed = position
        items = upstream.flow(before)

        def rest() -> Iterator[A]:
            nonlocal passed
            stream = iter(items)
            if not passed:
                for _ in islice(stream, min(n, sys.maxsize)):
                    pass
                passed = 1
            yield from stream

        return Flow(rest(), lambda: (items.snapshot(), passed))

    return flow

"""Which items: `filter`, `take`, `skip`, `take_while`, `drop_while`."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

from lazyckpt.core.checks import function, natural
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
from lazyckpt.core.prng import Indices
from lazyckpt.core.registry import Taken
from lazyckpt.pipeline import combinator

A = TypeVar("A")


@combinator(checks={"predicate": function}, transparent=True)
def filter(upstream: Machine[A], predicate: Callable[[A], Any]) -> Machine[A]:
    """The items for which `predicate(item)` is true.

    State: none.
    Resume: reads nothing again.
    Random access: no.
    Rank-free: no.

    >>> import lazyckpt as lz
    >>> list(lz.source(range(6)) | lz.filter(lambda x: x % 2))
    [1, 3, 5]
    """

    def step(position: Position) -> tuple[Position, A]:
        while True:
            position, item = upstream.step(position)
            if predicate(item):
                return position, item

    def flow(position: Position) -> Flow[A]:
        before = upstream.flow(position)
        return Flow(_kept(before.pull, before.fn, predicate), before.snapshot)

    return stateless(upstream, step=step, flow=flow)


def _kept(
    pull: Iterator[Any], fn: Callable[[Any], A] | None, predicate: Callable[[A], Any]
) -> Iterator[A]:
    """One loop for a pending function and the predicate: half the cost of two."""
    if fn is None:
        for item in pull:
            if predicate(item):
                yield item
    else:
        for each in pull:
            item = fn(each)
            if predicate(item):
                yield item


@combinator(
    keeps_items=True,
    checks={"n": natural},
    takes=Taken(),
)
def take(upstream: Machine[A], n: int) -> Machine[A]:
    """The first n items of an epoch; the rest is not read.

    State: a count of items.
    Resume: reads nothing again.
    Random access: kept.
    Rank-free: yes.

    >>> import lazyckpt as lz
    >>> list(lz.source(range(10**9)) | lz.take(3))
    [0, 1, 2]
    """

    def step(position: Position) -> tuple[Position, A]:
        before, taken = position
        if within("take", taken, n) == n:
            raise End(position)
        try:
            after, item = upstream.step(before)
        except End as end:
            raise End((end.position, taken)) from None
        return (after, taken + 1), item

    def flow(position: Position) -> Flow[A]:
        before, taken = position
        items = upstream.flow(before)
        some, given = counted(islice(items, min(n - within("take", taken, n), sys.maxsize)))
        return Flow(some, lambda: (items.snapshot(), taken + given()))

    def skip(position: Position, count: int) -> tuple[Position, int]:
        assert upstream.skip is not None
        before, taken = position
        after, passed = upstream.skip(before, min(count, n - within("take", taken, n)))
        return (after, taken + passed), passed

    def ahead(position: Position, offsets: Indices) -> Indices:
        assert upstream.view is not None
        return upstream.view.ahead(position[0], offsets)

    return machine(
        init=lambda epoch: (upstream.init(epoch), 0),
        epoch=lambda position: upstream.epoch(position[0]),
        step=step,
        flow=flow,
        skip=upstream.skip and skip,
        length=None if upstream.length is None else min(n, upstream.length),
        view=upstream.view and View(upstream.view.table, ahead),
    )


@combinator(
    keeps_items=True,
    checks={"n": natural},
    takes=lambda upstream, n: Taken(1, 0 if upstream.skip else n),
)
def skip(upstream: Machine[A], n: int) -> Machine[A]:
    """Everything but the first n items of an epoch.

    State: none with random access; else whether the n items were passed.
    Resume: reads nothing again.
    Random access: kept; the n items are not read.
    Rank-free: yes.

    >>> import lazyckpt as lz
    >>> list(lz.source(range(5)) | lz.skip(3))
    [3, 4]
    """
    if upstream.skip is not None:
        return _jumping(upstream, n)

    def flow(position: Position) -> Flow[A]:
        before, passed = position
        within("skip", passed, 1)
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

    return machine(
        init=lambda epoch: (upstream.init(epoch), 0),
        epoch=lambda position: upstream.epoch(position[0]),
        flow=flow,
        length=_less(upstream.length, n),
    )


@combinator(
    checks={"predicate": function},
    takes=Taken(1, 1),
)
def take_while(upstream: Machine[A], predicate: Callable[[A], Any]) -> Machine[A]:
    """The items of an epoch before the first for which `predicate(item)` is false.

    That one is read, and what comes behind it is not.

    State: whether it has ended.
    Resume: reads nothing again.
    Random access: no.
    Rank-free: no.

    >>> import lazyckpt as lz
    >>> list(lz.count() | lz.take_while(lambda x: x < 3))
    [0, 1, 2]
    """

    def flow(position: Position) -> Flow[A]:
        before, ended = position
        items = upstream.flow(before)

        def first() -> Iterator[A]:
            nonlocal ended
            if not ended:
                for item in items:
                    if not predicate(item):
                        break
                    yield item
                ended = 1

        return Flow(first(), lambda: (items.snapshot(), ended))

    return machine(
        init=lambda epoch: (upstream.init(epoch), 0),
        epoch=lambda position: upstream.epoch(position[0]),
        flow=flow,
    )


@combinator(
    checks={"predicate": function},
    takes=Taken(1, math.inf),
)
def drop_while(upstream: Machine[A], predicate: Callable[[A], Any]) -> Machine[A]:
    """The items of an epoch from the first on for which `predicate(item)` is false.

    State: whether that one was found.
    Resume: reads nothing again.
    Random access: no.
    Rank-free: no.

    >>> import lazyckpt as lz
    >>> list(lz.source([1, 5, 2]) | lz.drop_while(lambda x: x < 3))
    [5, 2]
    """

    def flow(position: Position) -> Flow[A]:
        before, found = position
        items = upstream.flow(before)

        def rest() -> Iterator[A]:
            nonlocal found
            stream = iter(items)
            for item in () if found else stream:
                if not predicate(item):
                    found = 1
                    yield item
                    break
            yield from stream

        return Flow(rest(), lambda: (items.snapshot(), found))

    return machine(
        init=lambda epoch: (upstream.init(epoch), 0),
        epoch=lambda position: upstream.epoch(position[0]),
        flow=flow,
    )


def _jumping(upstream: Machine[A], n: int) -> Machine[A]:
    jump = upstream.skip
    assert jump is not None
    return machine(
        init=lambda epoch: jump(upstream.init(epoch), n)[0],
        epoch=upstream.epoch,
        step=upstream.step,
        flow=upstream.flow,
        skip=jump,
        length=_less(upstream.length, n),
        view=upstream.view,
    )


def _less(length: int | float | None, n: int) -> int | float | None:
    return None if length is None else max(0, length - n)

"""One item in, another out, or several: `map`, `flat_map`, `unbatch`, `scan`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, TypeVar, cast

import numpy as np

from lazyckpt.checks import brief, function
from lazyckpt.errors import SourceChanged
from lazyckpt.frozen import freeze, thaw
from lazyckpt.machine import End, Flow, Machine, Position, Table, View, counted, machine, stateless
from lazyckpt.noise import Indices
from lazyckpt.pipeline import Pipeline, combinator

A = TypeVar("A")
B = TypeVar("B")
S = TypeVar("S")


@combinator(checks={"fn": function}, lockstep=True)
def map(upstream: Machine[A], fn: Callable[[A], B]) -> Machine[B]:
    """`fn(item)` for every item.

    State: none.
    Resume: reads nothing again.
    Random access: kept; an item passed over is not computed.
    Rank-free: yes.

    >>> import lazyckpt as lz
    >>> list(lz.source([1, 2, 3]) | lz.map(str))
    ['1', '2', '3']
    """

    def step(position: Position) -> tuple[Position, B]:
        position, item = upstream.step(position)
        return position, fn(item)

    return stateless(
        upstream,
        step=step,
        flow=lambda position: upstream.flow(position).map(fn),
        skip=upstream.skip,
        length=upstream.length,
        view=None if upstream.view is None else _mapped(upstream.view, fn),
    )


def _mapped(view: View[A], fn: Callable[[A], B]) -> View[B]:
    get, rows = view.table.get, view.table.rows

    def many(indices: Indices) -> list[B]:
        assert rows is not None
        return [fn(item) for item in rows(indices)]

    return View(Table(lambda index: fn(get(index)), rows and many), view.ahead)


@combinator(checks={"fn": function})
def flat_map(upstream: Machine[A], fn: Callable[[A], Iterable[B]]) -> Machine[B]:
    """The items of `fn(item)` for every item, one after another.

    - `fn`: returns an iterable, which a resume goes through again up to where
      it was, or a pipeline, which a resume enters at its own state

    State: the place before the current item, and how far its expansion is.
    Resume: calls `fn` on one item again, and passes over what it gave.
    Random access: no.
    Rank-free: no.
    Errors: an expansion that became shorter raises `SourceChanged`; a `fn` that
    returns no iterable raises `TypeError`.

    >>> import lazyckpt as lz
    >>> list(lz.source(["a b", "c"]) | lz.flat_map(str.split))
    ['a', 'b', 'c']
    """
    return _expanding(upstream, fn)


@combinator()
def unbatch(upstream: Machine[Any]) -> Machine[Any]:
    """The items of every batch: the inverse of `batch`, with or without `collate=stack`.

    A list gives its items and an array its rows. A dict of batches gives dicts,
    a tuple of batches tuples, by field.

    State: the place before the current batch, and a count of its items given.
    Resume: reads one batch again.
    Random access: no.
    Rank-free: with batches of one size.

    >>> import lazyckpt as lz
    >>> list(lz.source([{"x": [1, 2], "y": [3, 4]}]) | lz.unbatch())
    [{'x': 1, 'y': 3}, {'x': 2, 'y': 4}]
    """
    return _expanding(upstream, unstacked)


def unstacked(batch: Any) -> Iterable[Any]:
    """The items of one batch, as an iterable."""
    if isinstance(batch, dict):
        fields = [unstacked(value) for value in batch.values()]
        return [dict(zip(batch, row, strict=True)) for row in zip(*fields, strict=True)]
    if isinstance(batch, tuple):
        rows = zip(*[unstacked(value) for value in batch], strict=True)
        make = getattr(batch, "_make", tuple)
        return [make(row) for row in rows]
    if isinstance(batch, (list, np.ndarray)) or hasattr(batch, "__iter__"):
        return cast(Iterable[Any], batch)
    raise TypeError(f"unbatch: expected a batch, got {brief(batch)} ({type(batch).__name__})")


def _expanding(upstream: Machine[A], fn: Callable[[A], Iterable[B]]) -> Machine[B]:
    def flow(position: Position) -> Flow[B]:
        anchor, inside = position
        epoch = upstream.epoch(anchor)
        before = upstream.flow(anchor)
        inner: Flow[B] | None = None

        def expansions() -> Iterator[Flow[B]]:
            nonlocal anchor, inside, inner
            here = anchor
            for item in before:
                found = opened(fn(item), inside, epoch)
                anchor, inside, inner = here, 0, found
                yield found
                here = before.snapshot()
            anchor, inside, inner = before.snapshot(), 0, None

        def snapshot() -> Position:
            return anchor, inside if inner is None else inner.snapshot()

        return Flow(chain.from_iterable(expansions()), snapshot)

    return machine(
        init=lambda epoch: (upstream.init(epoch), 0),
        epoch=lambda position: upstream.epoch(position[0]),
        flow=flow,
    )


def opened(expansion: Iterable[B], inside: Position, epoch: int) -> Flow[B]:
    """An expansion from where it stood: a count for an iterable, a position for a pipeline."""
    if isinstance(expansion, Pipeline):
        inner: Machine[B] = expansion.machine
        return inner.flow(inside or inner.init(epoch))
    stream, taken = counted(expansion)
    passed = sum(1 for _ in islice(stream, inside))
    if passed < inside:
        raise SourceChanged(
            f"the state stands after item {inside} of an expansion that now has {passed}"
        )
    return Flow(stream, taken)


@combinator(checks={"step": function})
def scan(upstream: Machine[A], step: Callable[[S, A], tuple[S, B]], init: S) -> Machine[B]:
    """The outputs of a Mealy machine: `step(state, item) -> (state, output)`.

    - `init`: the first state; None, bool, int, float, str, and lists, dicts and
      tuples of them. `step` may change its state in place

    State: your own, as it is.
    Resume: reads nothing again.
    Random access: no.
    Rank-free: no.
    Errors: a state of other types raises `InvalidState` when it is first taken.

    >>> import lazyckpt as lz
    >>> list(lz.source([1, 2, 3]) | lz.scan(lambda total, x: (total + x, total + x), 0))
    [1, 3, 6]
    """
    first = freeze(init, "scan")

    def once(position: Position) -> tuple[Position, B]:
        before, mine = position
        try:
            after, item = upstream.step(before)
        except End as end:
            raise End((end.position, mine)) from None
        state, output = step(thaw(mine), item)
        return (after, freeze(state, "scan")), output

    def flow(position: Position) -> Flow[B]:
        before, mine = position
        items = upstream.flow(before)
        state = thaw(mine)

        def outputs() -> Iterator[B]:
            nonlocal state
            for item in items:
                state, output = step(state, item)
                yield output

        return Flow(outputs(), lambda: (items.snapshot(), freeze(state, "scan")))

    return machine(
        init=lambda epoch: (upstream.init(epoch), first),
        epoch=lambda position: upstream.epoch(position[0]),
        step=once,
        flow=flow,
        length=upstream.length,
    )

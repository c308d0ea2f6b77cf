"""One item in, another out, or several: `map`, `starmap`, `tap`, `flat_map`, `unbatch`, `scan`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MappingView, Set
from itertools import chain, islice
from operator import length_hint
from typing import Any, TypeVar, cast

import numpy as np

from lazyckpt.catalogue import Again, Taken
from lazyckpt.checks import boolean, brief, function
from lazyckpt.combinators.grouping import stack
from lazyckpt.errors import SourceChanged
from lazyckpt.frozen import freeze, storable, thaw
from lazyckpt.machine import (
    End,
    Flow,
    Machine,
    Position,
    Table,
    View,
    counted,
    entered,
    machine,
    stateless,
    within,
)
from lazyckpt.noise import Indices
from lazyckpt.pipeline import Pipeline, combinator

A = TypeVar("A")
B = TypeVar("B")
S = TypeVar("S")


@combinator(
    checks={"fn": function, "vectorized": boolean},
    free=("vectorized",),
    lockstep=True,
    pointwise=True,
)
def map(upstream: Machine[A], fn: Callable[[A], B], *, vectorized: bool = False) -> Machine[B]:
    """`fn(item)` for every item.

    - `vectorized`: `fn` gets many items at once, stacked as `lazyckpt.stack`
      does, and gives as many, stacked alike. Before `batch(n, collate=stack)`
      and over a table (a source with random access, through any of `map`,
      `take`, `skip`, `gather`, `shard`, `repeat`, `shuffle` without a buffer) it gets
      whole batches; elsewhere, one item at a time. It must treat each alone

    State: none.
    Resume: reads nothing again.
    Random access: kept; an item passed over is not computed.
    Rank-free: yes.
    Errors: `ValueError` if a vectorized `fn` gives more or fewer than it got.

    >>> import lazyckpt as lz
    >>> list(lz.source([1, 2, 3]) | lz.map(str))
    ['1', '2', '3']
    >>> halves = lz.source(np.arange(6)) | lz.map(lambda x: x / 2, vectorized=True)
    >>> list(halves | lz.batch(3, collate=lz.stack))
    [array([0. , 0.5, 1. ]), array([1.5, 2. , 2.5])]
    """
    if not vectorized:
        return applied(upstream, fn)

    def alone(item: A) -> B:
        (made,) = unstacked(_holding(1, fn(stack([item]))))
        return cast(B, made)

    found = applied(upstream, alone)
    if upstream.view is None:
        return found
    get, rows, stacked = upstream.view.table

    def many(indices: Indices) -> Any:
        if stacked is not None:
            items = stacked(indices)
        else:
            items = stack(rows(indices) if rows else [get(int(i)) for i in indices])
        return _holding(len(indices), fn(items))

    table = Table(
        lambda index: alone(get(index)),
        lambda indices: list(unstacked(many(indices))) if len(indices) else [],
        many,
    )
    return found._replace(view=View(table, upstream.view.ahead))


def _holding(count: int, made: Any) -> Any:
    """What a vectorized function made, if every field of it has `count` rows."""
    if isinstance(made, (dict, tuple)):
        for field in made.values() if isinstance(made, dict) else made:
            _holding(count, field)
    elif len(made) != count:
        raise ValueError(f"map: a vectorized function got {count} items and gave {len(made)}")
    return made


@combinator(checks={"fn": function}, lockstep=True, pointwise=True)
def starmap(upstream: Machine[Any], fn: Callable[..., B]) -> Machine[B]:
    """`fn(*item)` for every item.

    State: none.
    Resume: reads nothing again.
    Random access: kept; an item passed over is not computed.
    Rank-free: yes.

    >>> import lazyckpt as lz
    >>> list(lz.source([(2, 5), (3, 2)]) | lz.starmap(pow))
    [32, 9]
    """
    return applied(upstream, lambda item: fn(*item))


@combinator(keeps_items=True, checks={"fn": function}, lockstep=True, pointwise=True)
def tap(upstream: Machine[A], fn: Callable[[A], Any]) -> Machine[A]:
    """The items as they are, after `fn(item)` was called for each.

    To look at a stream, not to count it: an item that is made again, by a
    resume or to look ahead, is shown again.

    State: none.
    Resume: reads nothing again.
    Random access: kept; an item passed over is not shown.
    Rank-free: yes.

    >>> import lazyckpt as lz
    >>> sum(lz.source([1, 2]) | lz.tap(print))
    1
    2
    3
    """

    def shown(item: A) -> A:
        fn(item)
        return item

    return applied(upstream, shown)


def applied(upstream: Machine[A], fn: Callable[[A], B]) -> Machine[B]:
    """The machine of `map(fn)`."""

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


@combinator(
    checks={"fn": function},
    again=lambda position, **_: [Again(position[0], 1 if position[1] else 0)],
)
def flat_map(upstream: Machine[A], fn: Callable[[A], Iterable[B]]) -> Machine[B]:
    """The items of `fn(item)` for every item, one after another.

    - `fn`: returns an iterable, which a resume goes through again up to where
      it was, or a pipeline, which a resume enters at its own state; called again
      it must give the same items in the same order

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


@combinator(
    again=lambda position, **_: [Again(position[0], 1 if position[1] else 0)],
)
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

    def rows(item: Any) -> Iterable[Any]:
        return item if type(item) is list else unstacked(item)

    return _expanding(upstream, rows)


def unstacked(batch: Any) -> Iterable[Any]:
    """The items of one batch, as an iterable."""
    if isinstance(batch, (list, np.ndarray)):
        return batch
    if isinstance(batch, (dict, tuple)):
        named = batch.items() if isinstance(batch, dict) else enumerate(batch)
        fields = {name: list(unstacked(field)) for name, field in named}
        lengths = {name: len(field) for name, field in fields.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"unbatch: the fields of a batch have unequal lengths {lengths}")
        rows = zip(*fields.values(), strict=True)
        if isinstance(batch, dict):
            return [dict(zip(batch, row, strict=True)) for row in rows]
        make = getattr(batch, "_make", tuple)
        return [make(row) for row in rows]
    if hasattr(batch, "__iter__") and not isinstance(batch, (str, bytes)):
        return cast(Iterable[Any], batch)
    raise TypeError(f"unbatch: expected a batch, got {brief(batch)} ({type(batch).__name__})")


def _expanding(upstream: Machine[A], fn: Callable[[A], Iterable[B]]) -> Machine[B]:
    jump = upstream.skip

    def flow(position: Position) -> Flow[B]:
        anchor, inside = first, _ = position
        epoch = upstream.epoch(first)
        before = upstream.flow(first)
        sources, read = counted(before)
        inner: Flow[B] | None = None
        taken: Callable[[], int]
        whole: list[B] = []
        items = iter(whole)
        passed = 0  # items of the expansions before

        def expansions() -> Iterator[Iterable[B]]:
            nonlocal anchor, inside, inner, taken, whole, items, passed
            begun = False
            for item in sources:
                expansion = fn(item)
                if begun and type(expansion) is list:  # what `opened` does, for small ones
                    whole, items = expansion, iter(expansion)
                    yield items
                    passed, whole = passed + len(whole), []
                else:
                    found = opened(expansion, inside, epoch)
                    stream, taken = counted(found)
                    inside, inner, begun = 0, found, True
                    yield stream
                    passed, inner = passed + taken(), None
                if jump is None:
                    anchor = before.snapshot()
            anchor, inside = before.snapshot(), 0

        def here() -> Position:
            """The place before the current item."""
            return anchor if jump is None else jump(first, read() - 1)[0]

        def snapshot() -> Position:
            if inner is not None:
                return here(), inner.snapshot()
            return (here(), len(whole) - length_hint(items)) if whole else (anchor, inside)

        def given() -> int:
            return passed + (len(whole) - length_hint(items) if inner is None else taken())

        return Flow(chain.from_iterable(expansions()), snapshot, taken=given)

    return machine(
        init=lambda epoch: (upstream.init(epoch), 0),
        epoch=lambda position: upstream.epoch(position[0]),
        flow=flow,
    )


def opened(expansion: Iterable[B], inside: Position, epoch: int) -> Flow[B]:
    """An expansion from where it stood: a count for an iterable, a position for a pipeline."""
    if isinstance(expansion, Pipeline):
        inner: Machine[B] = expansion.machine
        return entered(inner, inner.init(epoch) if inside == 0 else inside)
    within("flat_map", inside)
    if isinstance(expansion, Set) and not isinstance(expansion, MappingView):
        raise TypeError(
            f"flat_map: a set has no order that lasts, give sorted(...) of it: {brief(expansion)}"
        )
    if type(expansion) is list and inside <= len(expansion):
        items: Any = iter(expansion)
        if inside:
            items.__setstate__(inside)
        return Flow(items, lambda: len(expansion) - length_hint(items))
    stream, taken = counted(expansion)
    passed = sum(1 for _ in islice(stream, inside)) if inside else 0
    if passed < inside:
        raise SourceChanged(
            f"the state stands after item {inside} of an expansion that now has {passed}"
        )
    return Flow(stream, taken, taken=lambda: taken() - passed)


@combinator(
    checks={"step": function, "init": storable},
    takes=Taken(),
)
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
        stream, read = counted(items)
        state, lost = thaw(mine), 0

        def outputs() -> Iterator[B]:
            nonlocal state, lost
            for item in stream:
                try:
                    state, output = step(state, item)
                except BaseException:
                    lost = 1
                    raise
                yield output

        return Flow(
            outputs(),
            lambda: (items.snapshot(), freeze(state, "scan")),
            taken=lambda: read() - lost,
        )

    return machine(
        init=lambda epoch: (upstream.init(epoch), first),
        epoch=lambda position: upstream.epoch(position[0]),
        step=once,
        flow=flow,
        length=upstream.length,
    )

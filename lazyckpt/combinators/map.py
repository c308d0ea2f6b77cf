"""`map`, `starmap`, `tap`: one item in, one out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, TypeVarTuple, cast, overload

from lazyckpt.combinators.flat_map import unstacked
from lazyckpt.combinators.machines.stacking import restacked, stack
from lazyckpt.core.checks import boolean, function
from lazyckpt.core.flow import Position, Table, View
from lazyckpt.core.machine import Machine, Rate
from lazyckpt.core.prng import Indices
from lazyckpt.core.registry import Elastic
from lazyckpt.core.stages import applying, stateless
from lazyckpt.decorators import combinator
from lazyckpt.pipeline import Keeping, Stage

A = TypeVar("A", bound=Any)  # bound to Any, so that pyright doesn't check the body of a lambda
B = TypeVar("B")
Ts = TypeVarTuple("Ts")


class _Map(Protocol):
    """The types of `map`. The second overload is for functions for which pyright finds no `Ts`."""

    @overload
    def __call__(
        self, fn: Callable[[*Ts, A], B], *args: *Ts, vectorized: bool = False
    ) -> Stage[A, B]: ...
    @overload
    def __call__(self, fn: Callable[[A], B], *, vectorized: bool = False) -> Stage[A, B]: ...


class _Tap(Protocol):
    """The type of `tap`: unlike other stages that keep items, it may not take every item."""

    def __call__(self, fn: Callable[[A], Any]) -> Keeping[A]: ...


def _typed_map(public: Any) -> _Map:
    found: _Map = public
    return found


def _typed_tap(public: Any) -> _Tap:
    found: _Tap = public
    return found


@_typed_map
@combinator(
    checks={"fn": function, "vectorized": boolean},
    unrecorded=("vectorized",),
    elastic=Elastic(changes={"args": "blind"}),
    functions=lambda fn, args, vectorized: {} if vectorized else {"fn": "item"},
    pointwise=True,
)
def map(
    upstream: Machine[A], fn: Callable[[*Ts, A], B], *args: *Ts, vectorized: bool = False
) -> Machine[B]:
    """Apply `fn` to each item.

    Args:
        fn: Function of one item. With `args`, it is called as `fn(*args, item)`, as by
            `functools.partial`.
        args: Arguments before the item.
        vectorized: If True, `fn` takes many items, stacked as by `lazyckpt.stack`, and returns
            as many, stacked in the same way. It must treat each item independently. It gets
            whole batches before `batch(n, collate=stack)` over a table, and single items
            otherwise. A table is a source with random access, followed by any of `map`, `take`,
            `skip`, `gather`, `shard`, `repeat` and `shuffle` without a buffer.

    Raises:
        ValueError: If a vectorized `fn` returns a different number of items.

    State:
        None.

    Resume:
        Re-reads nothing.

    Random access:
        Kept; skipped items are not computed.

    Rank-invariant:
        Yes.

    >>> import lazyckpt as lz
    >>> list(lz.source([1, 2, 3]) | lz.map(str))
    ['1', '2', '3']
    >>> import numpy as np
    >>> halves = lz.source(np.arange(6)) | lz.map(lambda x: x / 2, vectorized=True)
    >>> list(halves | lz.batch(3, collate=lz.stack))
    [array([0. , 0.5, 1. ]), array([1.5, 2. , 2.5])]
    """
    made_by = applying(fn, args)
    if not vectorized:
        return applied(upstream, made_by)

    def alone(item: A) -> B:
        (made,) = unstacked(_holding(1, made_by(stack([item]))))
        return cast(B, made)

    found = applied(upstream, alone)
    if upstream.view is None:
        return found
    get, rows, stacked = upstream.view.table[:3]

    def many(indices: Indices) -> Any:
        if stacked is not None:
            items = stacked(indices)
        else:
            items = stack(rows(indices) if rows else [get(int(i)) for i in indices])
        return _holding(len(indices), made_by(items))

    table = Table(
        lambda index: alone(get(index)),
        lambda indices: list(unstacked(many(indices))) if len(indices) else [],
        lambda indices: restacked(many(indices)),
    )
    return found._replace(view=View(table, upstream.view.ahead, upstream.view.block_starts))


def _holding(count: int, made: Any) -> Any:
    """Return the result of a vectorized function, if each of its fields has `count` rows."""
    if isinstance(made, (Mapping, tuple)):
        for field in made.values() if isinstance(made, Mapping) else made:
            _holding(count, field)
    elif len(made) != count:
        raise ValueError(f"map: a vectorized function got {count} items and returned {len(made)}")
    return made


@combinator(checks={"fn": function}, functions={"fn": "star"}, pointwise=True)
def starmap(upstream: Machine[Any], fn: Callable[..., B]) -> Machine[B]:
    """Apply `fn` to the parts of each item: `fn(*item)`.

    Args:
        fn: Function of the parts of one item.

    State:
        None.

    Resume:
        Re-reads nothing.

    Random access:
        Kept; skipped items are not computed.

    Rank-invariant:
        Yes.

    >>> import lazyckpt as lz
    >>> list(lz.source([(2, 5), (3, 2)]) | lz.starmap(pow))
    [32, 9]
    """
    return applied(upstream, lambda item: fn(*item))


@_typed_tap
@combinator(keeps_items=True, checks={"fn": function}, functions={"fn": "tap"}, pointwise=True)
def tap(upstream: Machine[A], fn: Callable[[A], Any]) -> Machine[A]:
    """Call `fn(item)` for each item, and yield the item itself.

    Use it to inspect a stream, not to count items: `fn` is called again if an item is recomputed,
    for example by a resume or to read ahead.

    Args:
        fn: Function of one item; its result is dropped.

    State:
        None.

    Resume:
        Re-reads nothing.

    Random access:
        Kept; `fn` is not called for skipped items.

    Rank-invariant:
        Yes.

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
    alone: Any = upstream.item

    def step(position: Position) -> tuple[Position, B]:
        position, item = upstream.step(position)
        return position, fn(item)

    return stateless(
        upstream,
        rate=Rate(),
        step=step,
        flow=lambda position: upstream.flow(position).map(fn),
        skip=upstream.skip,
        item=lambda position, n: fn(alone(position, n)),
        length=upstream.length,
        view=None if upstream.view is None else _mapped(upstream.view, fn),
    )


def _mapped(view: View[A], fn: Callable[[A], B]) -> View[B]:
    get, rows = view.table.get, view.table.rows

    def many(indices: Indices) -> list[B]:
        assert rows is not None
        return [fn(item) for item in rows(indices)]

    return View(Table(lambda index: fn(get(index)), rows and many), view.ahead, view.block_starts)

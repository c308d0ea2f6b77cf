"""`flat_map`, `unbatch`: one item in, several out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MappingView, Set, Sized
from itertools import chain, islice
from typing import Any, TypeVar, cast

import numpy as np

from lazyckpt.core.call import Call
from lazyckpt.core.checks import brief, function
from lazyckpt.core.flow import Flow, Position, counted, in_blocks, noted
from lazyckpt.core.frames import is_reader
from lazyckpt.core.iterators import iterate, remaining
from lazyckpt.core.machine import Machine, Reread, anchored, fitting, within
from lazyckpt.core.stages import stateful
from lazyckpt.decorators import combinator, giving
from lazyckpt.errors import SourceChanged
from lazyckpt.pipeline import Pipeline, Stage, Unbatching

A = TypeVar("A", bound=Any)  # by which pyright lets a lambda do anything with it
B = TypeVar("B")


@combinator(checks={"fn": function}, functions={"fn": "expand"}, itemwise=True)
def flat_map(upstream: Machine[A], fn: Callable[[A], Iterable[B]]) -> Machine[B]:
    """The items of `fn(item)` for every item, one after another.

    Args:
        fn: It returns an iterable, which a resume goes through again up to where it
            was, or a pipeline or rows of `lazyckpt.io`, which a resume enters where it
            was. Called again it must give the same items in the same order.

    Raises:
        SourceChanged: Where an expansion became shorter.
        TypeError: Where `fn` returns no iterable.

    State:
        The place before the current item, and how far its expansion is.

    Resume:
        Calls `fn` on one item again, and passes over what it gave.

    Random access:
        No.

    Rank-free:
        No.

    >>> import lazyckpt as lz
    >>> list(lz.source(["a b", "c"]) | lz.flat_map(str.split))
    ['a', 'b', 'c']
    """
    return _expanding("flat_map", upstream, fn)


def _traced_rows(call: Call, tracing: Any) -> Stage[Any, Any]:
    """Rows of a list keep their own origins; of any other batch they have the batch's."""

    def rows(batch: Any) -> Iterable[Any]:
        if type(batch) is list:
            return batch
        return [tracing.traced(row, tracing.origins(batch)) for row in _rows(tracing.plain(batch))]

    return flat_map(rows)


@giving(Unbatching)
@combinator(trace=_traced_rows, itemwise=True)
def unbatch(upstream: Machine[Any]) -> Machine[Any]:
    """The items of every batch: the inverse of `batch`, with or without `collate=stack`.

    A list gives its items and an array its rows. A dict of batches gives dicts,
    a tuple of batches tuples, by field.

    State:
        The place before the current batch, and a count of its items given.

    Resume:
        Re-reads one batch.

    Random access:
        No.

    Rank-free:
        With batches of one size.

    >>> import lazyckpt as lz
    >>> list(lz.source([{"x": [1, 2], "y": [3, 4]}]) | lz.unbatch())
    [{'x': 1, 'y': 3}, {'x': 2, 'y': 4}]
    """

    def rows(batch: Any) -> Iterable[Any]:  # by whose name an error's note knows the stage
        return _rows(batch)

    return _expanding("unbatch", upstream, rows)


def _rows(batch: Any) -> Iterable[Any]:
    return batch if type(batch) is list else unstacked(batch)


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


def _expanding(name: str, upstream: Machine[A], fn: Callable[[A], Iterable[B]]) -> Machine[B]:
    def flow(position: Position) -> Flow[B]:
        first, inside = position
        epoch = upstream.epoch(first)
        sources, last = noted(anchored(upstream, first))
        anchor: Position = None  # just before the current item, once somebody has asked
        rest = position  # where there is no current item: at the beginning, and at the end
        inner: Flow[B] | None = None
        taken: Callable[[], int]
        inner_last: Callable[[], Position]
        whole: list[B] = []
        items: Any = iterate(whole)
        passed = 0  # items of the expansions before

        def expansions() -> Iterator[Iterator[B]]:
            nonlocal anchor, rest, inside, inner, inner_last, taken, whole, items, passed
            begun = False
            for item in sources:
                expansion, anchor = fn(item), None
                if begun and type(expansion) is list:  # what `opened` does, for small ones
                    whole, items = expansion, iterate(expansion)
                    yield items
                    passed, whole = passed + len(whole), []
                else:
                    inner, inner_last = noted(opened(expansion, inside, epoch))
                    stream, taken = counted(inner)
                    inside, begun = 0, True
                    yield stream
                    passed, inner = passed + taken(), None
            rest = sources.snapshot(), 0

        def here() -> Position:
            nonlocal anchor
            if anchor is None:
                anchor = last()
            return anchor

        def snapshot() -> Position:
            if inner is not None:
                return here(), inner.snapshot()
            return (here(), len(whole) - remaining(items)) if whole else rest

        def before() -> Position:
            if inner is not None:
                return here(), inner_last()
            return here(), len(whole) - remaining(items) - 1

        def given() -> int:
            return passed + (len(whole) - remaining(items) if inner is None else taken())

        return in_blocks(expansions(), snapshot, given, before=before)

    return stateful(
        name,
        upstream,
        check=lambda inside: check_inside(name, inside),
        rereads=lambda position: (Reread(position[0], 1 if position[1] else 0),),
        flow=flow,
    )


def check_inside(stage: str, inside: Position) -> None:
    """Check how far an expansion is; what a pipeline's position is only `opened` can tell."""
    if type(inside) is not tuple:
        within(stage, inside)


def opened(expansion: Iterable[B], inside: Position, epoch: int) -> Flow[B]:
    """An expansion from where it stood: a count for an iterable, a position for a pipeline."""
    if isinstance(expansion, Pipeline):
        inner: Machine[B] = expansion.machine
        start = inner.init(epoch) if inside == 0 else inside
        with fitting(start):
            inner.check(start)
            return anchored(inner, start)
    within("flat_map", inside)
    if isinstance(expansion, Set) and not isinstance(expansion, MappingView):
        raise TypeError(
            f"a set has no order that lasts, give sorted(...) of it: {brief(expansion)}"
        )
    if type(expansion) is list and inside <= len(expansion):
        items = iterate(expansion, inside)
        reached: Callable[[], int] = lambda: len(expansion) - remaining(items)  # noqa: E731
        return _counting(items, reached, inside)
    if is_reader(expansion) and inside <= len(cast(Sized, expansion)):
        rows, given = counted(chain.from_iterable(cast(Any, expansion).iter_blocks(inside)))
        return _counting(rows, lambda: inside + given(), inside)
    stream, taken = counted(expansion)
    passed = sum(1 for _ in islice(stream, inside)) if inside else 0
    if passed < inside:
        raise SourceChanged(
            f"the state stands after item {inside} of an expansion that now has {passed}"
        )
    return _counting(stream, taken, passed)


def _counting(items: Iterator[B], reached: Callable[[], int], start: int) -> Flow[B]:
    """A flow whose position is how many items come before it."""
    return Flow(items, reached, taken=lambda: reached() - start, before=lambda: reached() - 1)

"""Expansions: the outputs that a function makes of one item, for `flat_map` and similar stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MappingView, Set, Sized
from itertools import chain, islice
from typing import Any, TypeVar, cast

from lazyckpt.core.checks import brief
from lazyckpt.core.content import is_reader
from lazyckpt.core.flow import Flow, Position, counted, in_blocks, noted
from lazyckpt.core.iterators import iterate, remaining
from lazyckpt.core.machine import Machine, Reread, anchored, fitting, within
from lazyckpt.core.stages import stateful
from lazyckpt.errors import SourceChanged
from lazyckpt.pipeline import Pipeline

A = TypeVar("A", bound=Any)  # bound to Any, so that pyright doesn't check the body of a lambda
B = TypeVar("B")


def expanded(name: str, upstream: Machine[A], fn: Callable[[A], Iterable[B]]) -> Machine[B]:
    """Yield the items of `fn(item)` for each item."""

    def flow(position: Position) -> Flow[B]:
        first, inside = position
        epoch = upstream.epoch(first)
        sources, last = noted(anchored(upstream, first))
        anchor: Position = None  # just before the current item, once requested
        rest = position  # if there is no current item: at the beginning, and at the end
        inner: Flow[B] | None = None
        taken: Callable[[], int]
        inner_last: Callable[[], Position]
        whole: list[B] = []
        items: Any = iterate(whole)
        passed = 0  # items of the earlier expansions

        def expansions() -> Iterator[Iterator[B]]:
            nonlocal anchor, rest, inside, inner, inner_last, taken, whole, items, passed
            begun = False
            for item in sources:
                expansion, anchor = fn(item), None
                if begun and type(expansion) is list:  # the same as `opened`, for small ones
                    if expansion:
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
    """Check the position within an expansion; only `opened` can check that of a pipeline."""
    if type(inside) is not tuple:
        within(stage, inside)


def opened(expansion: Iterable[B], inside: Position, epoch: int) -> Flow[B]:
    """Open an expansion at a position: a count for an iterable, otherwise a pipeline's."""
    if isinstance(expansion, Pipeline):
        inner: Machine[B] = expansion.machine
        start = inner.init(epoch) if inside == 0 else inside
        with fitting(start):
            inner.check(start)
            return anchored(inner, start)
    within("flat_map", inside)
    if isinstance(expansion, Set) and not isinstance(expansion, MappingView):
        raise TypeError(f"a set has no stable order; return sorted(...) of it: {brief(expansion)}")
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
            f"the state is after item {inside} of an expansion that now has {passed}"
        )
    return _counting(stream, taken, passed)


def _counting(items: Iterator[B], reached: Callable[[], int], start: int) -> Flow[B]:
    """A flow whose position is the number of items before it."""
    return Flow(items, reached, taken=lambda: reached() - start, before=lambda: reached() - 1)

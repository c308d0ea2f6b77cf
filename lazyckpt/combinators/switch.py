"""`case`, `switch`: for each item, one of several pipelines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

from lazyckpt.combinators.map import applied
from lazyckpt.core.checks import brief, is_integer
from lazyckpt.core.flow import Flow, Position, Table, View, from_lists, looked_up
from lazyckpt.core.machine import Machine, Rate
from lazyckpt.core.registry import registry
from lazyckpt.core.stages import stateless, step_by
from lazyckpt.decorators import source_combinator
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Pipeline

A = TypeVar("A")


@source_combinator(
    validate=lambda selector, pipelines: _picked("case", selector, *pipelines),
    functions={"selector": "selector"},
)
def case(selector: Pipeline[int], *pipelines: Pipeline[A]) -> Machine[A]:
    """For each i, yield item i of the pipeline that `selector[i]` names; stop with the shortest.

    The other pipelines advance too. If they have random access, their items are not computed;
    otherwise items are computed and dropped.

    Args:
        selector: A pipeline of pipeline numbers, ints from 0.
        pipelines: One or more pipelines.

    Raises:
        TypeError: If a selector is not an int.
        ValueError: If a selector is out of range.

    State:
        The state of each pipeline, and whether one has ended.

    Resume:
        Re-reads what each pipeline re-reads.

    Random access:
        If all pipelines have it.

    Rank-invariant:
        If all pipelines are.

    >>> import lazyckpt as lz
    >>> low, high = lz.count(), lz.count(100)
    >>> list(lz.case(lz.source([0, 1, 1, 0]), low, high))
    [0, 101, 102, 3]
    """

    def chosen(item: Any) -> int:
        if not is_integer(item):
            raise TypeError(
                f"case: a selector must be an int, got {brief(item)} ({type(item).__name__})"
            )
        if not 0 <= item < len(pipelines):
            raise ValueError(
                f"case: selector {item} is out of range for {len(pipelines)} pipelines"
            )
        return int(item)

    return _picking(selector, pipelines, chosen)


@source_combinator(
    validate=lambda condition, if_true, if_false: _picked("switch", condition, if_true, if_false),
    functions={"condition": "selector"},
)
def switch(condition: Pipeline[Any], if_true: Pipeline[A], if_false: Pipeline[A]) -> Machine[A]:
    """For each i, yield item i of `if_true` if `condition[i]` is true, otherwise of `if_false`.

    The stream ends with the shortest of the three pipelines. The pipeline that isn't chosen
    advances too. If it has random access, its item is not computed; otherwise the item is
    computed and dropped.

    Args:
        condition: A pipeline of conditions, true or false in Python's sense.
        if_true: The pipeline for true conditions.
        if_false: The pipeline for false conditions.

    State:
        The state of each pipeline, and whether one has ended.

    Resume:
        Re-reads what each pipeline re-reads.

    Random access:
        If all pipelines have it.

    Rank-invariant:
        If all pipelines are.

    >>> import lazyckpt as lz
    >>> list(lz.switch(lz.source([True, False, True]), lz.count(), lz.count(100)))
    [0, 101, 2]
    """

    def pick(rows: Iterable[Any]) -> list[A]:
        return [true if item else false for item, true, false in rows]

    return _picking(condition, (if_true, if_false), lambda item: 0 if item else 1, pick)


def _picked(name: str, selector: Any, *pipelines: Any) -> None:
    if not pipelines:
        raise ArgumentError(f"{name}: at least one pipeline to pick from is needed, got none")
    for pipeline in (selector, *pipelines):
        if not isinstance(pipeline, Pipeline):
            raise ArgumentError(
                f"{name}: every argument must be a pipeline, got {brief(pipeline)} "
                f"({type(pipeline).__name__}); wrap data in source(...)"
            )


def _is_in_memory(pipeline: Pipeline[Any]) -> bool:
    """Return whether its items need no computing, so that reading each costs nothing."""
    view = pipeline.machine.view
    return view is not None and view.table.is_in_memory


class _Deferred(NamedTuple):
    machine: Machine[Callable[[], Any]]


def _picking(
    selector: Pipeline[Any],
    pipelines: tuple[Pipeline[A], ...],
    chosen: Callable[[Any], int],
    pick: Callable[[Iterable[Any]], list[A]] | None = None,
) -> Machine[A]:
    """Build the machine of the chosen items.

    Args:
        selector: The pipeline that decides.
        pipelines: The pipelines to choose from.
        chosen: Function from an item of the selector to the number of a pipeline.
        pick: The same for many: a function from rows of items of all pipelines to the chosen ones.
    """
    is_in_memory = all(map(_is_in_memory, pipelines))
    joined = (
        pipelines if is_in_memory else [_Deferred(_deferring(each.machine)) for each in pipelines]
    )
    rows: Machine[Any] = registry["zip"].build(selector, *joined)
    if is_in_memory:
        picked = applied(rows, lambda row: row[1 + chosen(row[0])])
    else:
        picked = applied(rows, lambda row: row[1 + chosen(row[0])]())
    children = tuple([each.machine for each in (selector, *pipelines)])
    lone: list[Any] = [each.item for each in children]

    def item(position: Position, n: int) -> A:
        positions = position[0]
        number = 1 + chosen(lone[0](positions[0], n))
        found: A = lone[number](positions[number], n)
        return found

    flow = picked.flow
    if pick is not None and is_in_memory and _is_in_memory(selector):
        flow = partial(_picked_from_lists, rows, children, picked, pick)
    return rows._replace(
        step=picked.step,
        flow=flow,
        item=rows.item and item,
        children=children,
    )


def _picked_from_lists(
    rows: Machine[Any],
    children: tuple[Any, ...],
    picked: Machine[A],
    pick: Callable[..., list[A]],
    position: Position,
) -> Flow[A]:
    skip, passed = rows.skip, 0
    assert skip is not None

    def lists() -> Iterator[list[A]]:
        nonlocal passed
        positions, ended = position
        if ended:
            return
        # All are cut into lists of equal lengths, so the first that differs is the last.
        found = [
            looked_up(each.skip, each.view, inner)
            for each, inner in zip(children, positions, strict=True)
        ]
        try:
            for some in zip(*found, strict=False):
                yield (items := pick(zip(*some, strict=False)))
                passed += len(items)
        except Exception:  # from a selector: the items before it come first
            yield from ([item] for item in picked.flow(skip(position, passed)[0]))

    return from_lists(skip, position, lists())


def _deferring(upstream: Machine[A]) -> Machine[Callable[[], A]]:
    """Yield functions that compute the items, or, without random access, return computed ones."""
    jump = upstream.skip
    if jump is None:
        return applied(upstream, lambda item: lambda: item)

    def deferred(position: Position) -> Callable[[], A]:
        return lambda: upstream.step(position)[1]

    alone: Any = upstream.item
    view = None
    if upstream.view is not None:  # finds many positions in one call
        view = View(Table(partial(partial, upstream.view.table.get)), upstream.view.ahead)
    return stateless(
        upstream,
        rate=Rate(),
        step=step_by(jump, deferred),
        skip=jump,
        item=partial(partial, alone),
        length=upstream.length,
        view=view,
    )

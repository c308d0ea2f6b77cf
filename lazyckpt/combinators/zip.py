"""`zip`: several pipelines side by side."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from itertools import chain, repeat
from operator import call
from typing import Any, Protocol, TypeVar, overload

from lazyckpt.combinators.machines.join import joined
from lazyckpt.core.checks import boolean
from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import End, Machine, Rate, within
from lazyckpt.core.stages import joining
from lazyckpt.decorators import source_combinator
from lazyckpt.errors import ArgumentError, PipelineError
from lazyckpt.pipeline import Pipeline

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")


class _Zip(Protocol):
    """The types of up to four pipelines, as for the built-in `zip`."""

    @overload
    def __call__(self, a: Pipeline[A], /, *, strict: bool = False) -> Pipeline[tuple[A]]: ...
    @overload
    def __call__(
        self, a: Pipeline[A], b: Pipeline[B], /, *, strict: bool = False
    ) -> Pipeline[tuple[A, B]]: ...
    @overload
    def __call__(
        self, a: Pipeline[A], b: Pipeline[B], c: Pipeline[C], /, *, strict: bool = False
    ) -> Pipeline[tuple[A, B, C]]: ...
    @overload
    def __call__(
        self,
        a: Pipeline[A],
        b: Pipeline[B],
        c: Pipeline[C],
        d: Pipeline[D],
        /,
        *,
        strict: bool = False,
    ) -> Pipeline[tuple[A, B, C, D]]: ...
    @overload
    def __call__(
        self, *pipelines: Pipeline[A], strict: bool = False
    ) -> Pipeline[tuple[A, ...]]: ...


def _typed(public: Any) -> _Zip:
    found: _Zip = public
    return found


@_typed
@source_combinator(
    keeps_items=True,
    checks={"strict": boolean},
    unrecorded=("strict",),
    validate=lambda pipelines, strict: joined("zip", pipelines),
)
def zip(*pipelines: Pipeline[Any], strict: bool = False) -> Machine[tuple[Any, ...]]:
    """Yield tuples of one item from each pipeline, until the shortest ends.

    Args:
        pipelines: One or more pipelines.
        strict: If True, raise an error if one pipeline ends before another.

    Raises:
        ArgumentError: If called without pipelines, or if `strict` and the known lengths differ.
        PipelineError: With `strict`, if one pipeline ends before the others.

    State:
        The state of each pipeline, and whether one has ended.

    Resume:
        Re-reads what each pipeline re-reads.

    Random access:
        If all pipelines have it.

    Rank-invariant:
        If all pipelines are.

    >>> import lazyckpt as lz
    >>> list(lz.zip(lz.source([1, 2, 3]), lz.source("a b".split())))
    [(1, 'a'), (2, 'b')]
    """
    machines: list[Machine[Any]] = [pipeline.machine for pipeline in pipelines]
    lengths = [each.length for each in machines]
    if strict and len(set(lengths) - {None}) > 1:
        raise ArgumentError(f"zip: strict=True requires pipelines of one length, got {lengths}")

    def step(position: Position) -> tuple[Position, tuple[Any, ...]]:
        states, ended = position
        if ended:
            raise End(position)
        states, items, over = list(states), [], []
        for number, (each, state) in enumerate(builtins.zip(machines, states, strict=True)):
            try:
                states[number], item = each.step(state)
            except End as end:
                states[number] = end.position
                over.append(number)
                if not strict:
                    break
            else:
                items.append(item)
        if over and strict:
            _even([number not in over for number in range(len(machines))])
        if over:
            raise End((tuple(states), 1))
        return (tuple(states), 0), tuple(items)

    def flow(position: Position) -> Flow[tuple[Any, ...]]:
        states, ended = position
        flows = [each.flow(state) for each, state in builtins.zip(machines, states, strict=True)]

        streams = [counted(each) for each in flows] if strict else []
        last = flows[-1]
        rows = builtins.zip(*([stream for stream, _ in streams] or flows), strict=False)

        def rest() -> Iterator[tuple[Any, ...]]:
            nonlocal ended
            for stream, _ in streams:
                next(stream, None)
            _even([taken() for _, taken in streams])
            ended = 1
            yield from ()

        return Flow(
            iter(()) if ended else chain(rows, rest()),
            lambda: (tuple(each.snapshot() for each in flows), ended),
            taken=None if strict or last.fn else last.taken,
        )

    def skip(position: Position, n: int) -> tuple[Position, int]:
        states, ended = position
        if ended:
            return position, 0
        reached = [jump(state, n) for jump, state in builtins.zip(jumps, states, strict=True)]
        counts = [count for _, count in reached]
        passed = min(counts)
        if passed == n or strict:
            _even(counts)
            return (tuple(state for state, _ in reached), int(passed < n)), passed
        first = counts.index(passed)  # the pipelines before the first to end are one ahead
        after = [
            reached[first][0] if number == first else jump(state, passed + (number < first))[0]
            for number, (jump, state) in enumerate(builtins.zip(jumps, states, strict=True))
        ]
        return (tuple(after), 1), passed

    def item(position: Position, n: int) -> tuple[Any, ...]:
        return tuple(map(call, lone, position[0], repeat(n)))

    lone: list[Any] = [each.item for each in machines]
    jumps = [each.skip for each in machines if each.skip is not None]
    return joining(
        "zip",
        machines,
        first=(0,),
        check=lambda ended: within("zip", ended, 1),
        rate=Rate(every=True),
        step=step,
        flow=flow,
        skip=skip if len(jumps) == len(machines) else None,
        item=item,
        length=None if None in lengths else min(each for each in lengths if each is not None),
    )


def _even(counts: list[int]) -> None:
    if len(set(counts)) > 1:
        short, long = counts.index(min(counts)), counts.index(max(counts))
        raise PipelineError(
            f"zip: strict=True, but argument {short + 1} ends before argument {long + 1}"
        )

"""`concat`: pipelines one after another."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, chain
from typing import Any, TypeVar

from lazyckpt.combinators.machines.join import joined
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import End, Machine, Rate, within
from lazyckpt.core.stages import joining
from lazyckpt.decorators import source_combinator
from lazyckpt.pipeline import Pipeline

A = TypeVar("A")


@source_combinator(keeps_items=True, validate=lambda pipelines: joined("concat", pipelines))
def concat(*pipelines: Pipeline[A]) -> Machine[A]:
    """Yield the items of the first pipeline, then those of the second, and so on.

    Args:
        pipelines: One or more pipelines.

    Raises:
        ArgumentError: If called without pipelines.

    State:
        The state of the current pipeline, and its number.

    Resume:
        Re-reads what the current pipeline re-reads.

    Random access:
        If all pipelines have it.

    Rank-invariant:
        If all pipelines are.

    >>> import lazyckpt as lz
    >>> list(lz.concat(lz.source([1, 2]), lz.source([3])))
    [1, 2, 3]
    """
    machines: list[Machine[A]] = [pipeline.machine for pipeline in pipelines]
    closed = ((),) * len(machines)

    def at(inner: Position, number: int) -> Position:
        return (*closed[:number], inner, *closed[number + 1 :]), number

    def step(position: Position) -> tuple[Position, A]:
        positions, number = position
        inner = positions[number]
        while True:
            try:
                after, item = machines[number].step(inner)
                return at(after, number), item
            except End as end:
                if number + 1 == len(machines):
                    raise End(at(end.position, number)) from None
                epoch = machines[number].epoch(inner)
            number += 1
            inner = machines[number].init(epoch)

    def flow(position: Position) -> Flow[A]:
        positions, number = position
        epoch = machines[number].epoch(positions[number])
        current = machines[number].flow(positions[number])

        def parts() -> Iterator[Flow[A]]:
            nonlocal current, number
            yield current
            while number + 1 < len(machines):
                number += 1
                current = machines[number].flow(machines[number].init(epoch))
                yield current

        return Flow(chain.from_iterable(parts()), lambda: at(current.snapshot(), number))

    def skip(position: Position, n: int) -> tuple[Position, int]:
        positions, number = position
        inner, left = positions[number], n
        epoch = machines[number].epoch(inner)
        while True:
            jump = machines[number].skip
            assert jump is not None
            inner, passed = jump(inner, left)
            left -= passed
            if not left or number + 1 == len(machines):
                return at(inner, number), n - left
            number += 1
            inner = machines[number].init(epoch)

    known: tuple[Position, list[float]] = (), []  # of the last requested position
    lengths = [each.length for each in machines if each.length is not None]

    def ends(position: Position) -> tuple[Position, list[float]]:
        """Count the items from a position to the end of each pipeline, from the open one on."""
        positions, number = position
        jump: Any = machines[number].skip
        first = lengths[number]
        left = jump(positions[number], first)[1] if isinstance(first, int) else math.inf
        return position, list(accumulate([left, *lengths[number + 1 :]]))

    def item(position: Position, n: int) -> A:
        nonlocal known
        (positions, number), behind = position, known
        if behind[0] is not position:
            known = behind = ends(position)
        passed, inner = bisect_right(behind[1], n), positions[number]
        if passed:
            inner = machines[number + passed].init(machines[number].epoch(inner))
            n -= int(behind[1][passed - 1])
        alone: Any = machines[number + passed].item
        found: A = alone(inner, n)
        return found

    return joining(
        "concat",
        machines,
        check=lambda number: within("concat", number, len(machines) - 1),
        opened=lambda number: (number,),
        init=lambda epoch: at(machines[0].init(epoch), 0),
        epoch=lambda position: machines[position[1]].epoch(position[0][position[1]]),
        rate=Rate(),
        step=step,
        flow=flow,
        skip=skip if all(each.skip for each in machines) else None,
        item=item if len(lengths) == len(machines) else None,
        length=sum(lengths) if len(lengths) == len(machines) else None,
    )

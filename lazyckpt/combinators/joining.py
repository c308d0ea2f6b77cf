"""Several pipelines as one: `zip`, `concat`."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from itertools import chain
from typing import Any, TypeVar

from lazyckpt.checks import brief
from lazyckpt.errors import ArgumentError
from lazyckpt.machine import End, Flow, Machine, Position, machine, within
from lazyckpt.pipeline import Pipeline, producer

A = TypeVar("A")


def _joined(name: str, pipelines: tuple[Any, ...]) -> None:
    if not pipelines:
        raise ArgumentError(f"{name}: at least one pipeline is needed, got none")
    for number, pipeline in enumerate(pipelines):
        if not isinstance(pipeline, Pipeline):
            raise ArgumentError(
                f"{name}: argument {number + 1} must be a pipeline, got {brief(pipeline)} "
                f"({type(pipeline).__name__}); source(...) makes one of data"
            )


@producer(validate=lambda pipelines: _joined("zip", pipelines))
def zip(*pipelines: Pipeline[Any]) -> Machine[tuple[Any, ...]]:
    """Tuples of one item from each pipeline, until the shortest ends.

    State: that of each pipeline, and whether one has ended.
    Resume: reads again what each of them does.
    Random access: where all have it.
    Rank-free: where all are.
    Errors: none given.

    >>> import lazyckpt as lz
    >>> list(lz.zip(lz.source([1, 2, 3]), lz.source("a b".split())))
    [(1, 'a'), (2, 'b')]
    """
    machines: list[Machine[Any]] = [pipeline.machine for pipeline in pipelines]

    def step(position: Position) -> tuple[Position, tuple[Any, ...]]:
        states, ended = position
        if within("zip", ended, 1):
            raise End(position)
        states, items = list(states), []
        for number, (each, state) in enumerate(builtins.zip(machines, states, strict=True)):
            try:
                states[number], item = each.step(state)
            except End as end:
                states[number] = end.position
                raise End((tuple(states), 1)) from None
            items.append(item)
        return (tuple(states), 0), tuple(items)

    def flow(position: Position) -> Flow[tuple[Any, ...]]:
        states, ended = position
        flows = [each.flow(state) for each, state in builtins.zip(machines, states, strict=True)]

        def end() -> Iterator[tuple[Any, ...]]:
            nonlocal ended
            ended = 1
            yield from ()

        rows = () if within("zip", ended, 1) else builtins.zip(*flows, strict=False)
        return Flow(chain(rows, end()), lambda: (tuple(f.snapshot() for f in flows), ended))

    def skip(position: Position, n: int) -> tuple[Position, int]:
        states, ended = position
        if within("zip", ended, 1):
            return position, 0
        reached = [jump(state, n) for jump, state in builtins.zip(jumps, states, strict=True)]
        counts = [count for _, count in reached]
        passed = min(counts)
        if passed == n:
            return (tuple(state for state, _ in reached), 0), n
        first = counts.index(passed)  # those before the first to end are one ahead
        after = [
            jump(state, passed + (number <= first))[0]
            for number, (jump, state) in enumerate(builtins.zip(jumps, states, strict=True))
        ]
        return (tuple(after), 1), passed

    jumps = [each.skip for each in machines if each.skip is not None]
    lengths = [each.length for each in machines if each.length is not None]
    return machine(
        init=lambda epoch: (tuple(each.init(epoch) for each in machines), 0),
        epoch=lambda position: machines[0].epoch(position[0][0]),
        step=step,
        flow=flow,
        skip=skip if len(jumps) == len(machines) else None,
        length=min(lengths) if len(lengths) == len(machines) else None,
    )


@producer(validate=lambda pipelines: _joined("concat", pipelines))
def concat(*pipelines: Pipeline[A]) -> Machine[A]:
    """The items of the first pipeline, then of the second, and so on.

    State: that of the pipeline being read, and its number.
    Resume: reads again what that one does.
    Random access: where all have it.
    Rank-free: where all are.
    Errors: none given.

    >>> import lazyckpt as lz
    >>> list(lz.concat(lz.source([1, 2]), lz.source([3])))
    [1, 2, 3]
    """
    machines: list[Machine[A]] = [pipeline.machine for pipeline in pipelines]

    def step(position: Position) -> tuple[Position, A]:
        state, number = position
        while True:
            try:
                after, item = machines[number].step(state)
                return (after, number), item
            except End as end:
                if number + 1 == len(machines):
                    raise End((end.position, number)) from None
                epoch = machines[number].epoch(state)
            number += 1
            state = machines[number].init(epoch)

    def flow(position: Position) -> Flow[A]:
        state, number = position
        epoch = machines[number].epoch(state)
        current = machines[number].flow(state)

        def parts() -> Iterator[Flow[A]]:
            nonlocal current, number
            yield current
            while number + 1 < len(machines):
                number += 1
                current = machines[number].flow(machines[number].init(epoch))
                yield current

        return Flow(chain.from_iterable(parts()), lambda: (current.snapshot(), number))

    def skip(position: Position, n: int) -> tuple[Position, int]:
        state, number = position
        epoch, left = machines[number].epoch(state), n
        while True:
            jump = machines[number].skip
            assert jump is not None
            state, passed = jump(state, left)
            left -= passed
            if not left or number + 1 == len(machines):
                return (state, number), n - left
            number += 1
            state = machines[number].init(epoch)

    lengths = [each.length for each in machines if each.length is not None]
    return machine(
        init=lambda epoch: (machines[0].init(epoch), 0),
        epoch=lambda position: machines[position[1]].epoch(position[0]),
        step=step,
        flow=flow,
        skip=skip if all(each.skip for each in machines) else None,
        length=sum(lengths) if len(lengths) == len(machines) else None,
    )

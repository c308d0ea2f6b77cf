"""Several pipelines as one: `zip`, `concat`, `multiplex`."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from lazyckpt.core.checks import Unfit, boolean, brief, is_integer
from lazyckpt.core.machine import End, Flow, Machine, Position, counted, machine, within
from lazyckpt.core.registry import Taken
from lazyckpt.errors import ArgumentError, PipelineError
from lazyckpt.pipeline import Pipeline, source_combinator

A = TypeVar("A")

_END: Any = object()


def joined(name: str, pipelines: tuple[Any, ...]) -> None:
    """Refuse what is not one pipeline or more."""
    if not pipelines:
        raise ArgumentError(f"{name}: at least one pipeline is needed, got none")
    for number, pipeline in enumerate(pipelines):
        if not isinstance(pipeline, Pipeline):
            raise ArgumentError(
                f"{name}: argument {number + 1} must be a pipeline, got {brief(pipeline)} "
                f"({type(pipeline).__name__}); source(...) makes one of data"
            )


def several(value: Any) -> tuple[Any, ...]:
    """A list or tuple as a tuple."""
    if not isinstance(value, (list, tuple)):
        raise Unfit("a list of pipelines")
    return tuple(value)


def abreast(
    position: Position, arguments: Mapping[str, Any]
) -> tuple[dict[int, Position], Position]:
    """The places of pipelines that all go on: they stand first in the position."""
    return dict(builtins.enumerate(position[0])), position[1:]


def named(number: int) -> str:
    """How errors call one of a list of pipelines."""
    return f"pipelines[{number}]"


@source_combinator(
    checks={"strict": boolean},
    free=("strict",),
    validate=lambda pipelines, strict: joined("zip", pipelines),
    parts=abreast,
)
def zip(*pipelines: Pipeline[Any], strict: bool = False) -> Machine[tuple[Any, ...]]:
    """Tuples of one item from each pipeline, until the shortest ends.

    - `strict`: that one ends before another is an error

    State: that of each pipeline, and whether one has ended.
    Resume: reads again what each of them does.
    Random access: where all have it.
    Rank-free: where all are.
    Errors: none given; with `strict`, pipelines of unequal lengths: `ArgumentError`
    where they are known, else `PipelineError` at the end of the shortest.

    >>> import lazyckpt as lz
    >>> list(lz.zip(lz.source([1, 2, 3]), lz.source("a b".split())))
    [(1, 'a'), (2, 'b')]
    """
    machines: list[Machine[Any]] = [pipeline.machine for pipeline in pipelines]
    lengths = [each.length for each in machines]
    if strict and len(set(lengths) - {None}) > 1:
        raise ArgumentError(f"zip: strict=True wants pipelines of one length, got {lengths}")

    def step(position: Position) -> tuple[Position, tuple[Any, ...]]:
        states, ended = position
        if within("zip", ended, 1):
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
            iter(()) if within("zip", ended, 1) else chain(rows, rest()),
            lambda: (tuple(each.snapshot() for each in flows), ended),
            taken=None if strict or last.fn else last.taken,
        )

    def skip(position: Position, n: int) -> tuple[Position, int]:
        states, ended = position
        if within("zip", ended, 1):
            return position, 0
        reached = [jump(state, n) for jump, state in builtins.zip(jumps, states, strict=True)]
        counts = [count for _, count in reached]
        passed = min(counts)
        if passed == n or strict:
            _even(counts)
            return (tuple(state for state, _ in reached), int(passed < n)), passed
        first = counts.index(passed)  # those before the first to end are one ahead
        after = [
            jump(state, passed + (number <= first))[0]
            for number, (jump, state) in enumerate(builtins.zip(jumps, states, strict=True))
        ]
        return (tuple(after), 1), passed

    jumps = [each.skip for each in machines if each.skip is not None]
    return machine(
        init=lambda epoch: (tuple(each.init(epoch) for each in machines), 0),
        epoch=lambda position: machines[0].epoch(position[0][0]),
        step=step,
        flow=flow,
        skip=skip if len(jumps) == len(machines) else None,
        length=None if None in lengths else min(each for each in lengths if each is not None),
    )


def _even(counts: list[int]) -> None:
    if len(set(counts)) > 1:
        short, long = counts.index(min(counts)), counts.index(max(counts))
        raise PipelineError(
            f"zip: strict=True, but argument {short + 1} ends before argument {long + 1}"
        )


@source_combinator(
    validate=lambda pipelines: joined("concat", pipelines),
    parts=lambda position, arguments: ({position[1]: position[0]}, position[1:]),
    takes=Taken(),
)
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


def _controlled(control: Any, pipelines: tuple[Any, ...]) -> None:
    joined("multiplex", (control, *pipelines))
    joined("multiplex", pipelines)


@source_combinator(
    checks={"pipelines": several},
    validate=_controlled,
    parts=lambda position, arguments: (
        dict(builtins.enumerate((position[0], *position[1]))),
        (),
    ),
)
def multiplex(control: Pipeline[int], pipelines: Sequence[Pipeline[A]]) -> Machine[A]:
    """For every index that `control` gives, the next item of that pipeline.

    - `control`: a pipeline of ints in `[0, len(pipelines))`; the stream ends with it

    State: that of `control` and of each pipeline.
    Resume: reads again what each of them does.
    Random access: no.
    Rank-free: no.
    Errors: an index out of range, a negative one or no int, and a pipeline that
    is asked for an item after its end, raise `PipelineError` and name it.

    >>> import lazyckpt as lz
    >>> a, b = lz.source(["a", "b"]), lz.source([1, 2, 3])
    >>> list(lz.multiplex(lz.source([0, 1, 1, 0]), [a, b]))
    ['a', 1, 2, 'b']
    """
    chosen, machines = control.machine, [pipeline.machine for pipeline in pipelines]
    count = len(machines)

    def place(index: Any) -> int:
        if not is_integer(index) or not 0 <= index < count:
            raise PipelineError(
                f"multiplex: control must give ints from 0 to {count - 1}, "
                f"got {brief(index)} ({type(index).__name__})"
            )
        return operator.index(index)

    def exhausted(number: int) -> PipelineError:
        return PipelineError(
            f"multiplex: {named(number)} has ended, and control asks for another item of it"
        )

    def step(position: Position) -> tuple[Position, A]:
        before, states = position
        try:
            before, index = chosen.step(before)
        except End as end:
            raise End((end.position, states)) from None
        number, states = place(index), list(states)
        try:
            states[number], item = machines[number].step(states[number])
        except End:
            raise exhausted(number) from None
        return (before, tuple(states)), item

    def flow(position: Position) -> Flow[A]:
        before, states = position
        indices = chosen.flow(before)
        numbered, asked = counted(indices)
        lost = 0
        flows = [each.flow(state) for each, state in builtins.zip(machines, states, strict=True)]

        def items() -> Iterator[A]:
            nonlocal lost
            streams = [iter(each) for each in flows]
            for index in numbered:
                try:
                    if type(index) is not int or not 0 <= index < count:
                        index = place(index)
                    item = next(streams[index], _END)
                    if item is _END:
                        raise exhausted(index)
                except BaseException:
                    lost = 1
                    raise
                yield item

        return Flow(
            items(),
            lambda: (indices.snapshot(), tuple(f.snapshot() for f in flows)),
            taken=lambda: asked() - lost,
        )

    return machine(
        init=lambda epoch: (chosen.init(epoch), tuple(each.init(epoch) for each in machines)),
        epoch=lambda position: chosen.epoch(position[0]),
        step=step,
        flow=flow,
        length=chosen.length,
    )

"""`multiplex`: pipelines chosen by a pipeline of indices."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from lazyckpt.combinators.machines.join import joined, named, several
from lazyckpt.core.checks import brief, is_integer
from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import End, Machine, Rate
from lazyckpt.core.stages import joining
from lazyckpt.decorators import source_combinator
from lazyckpt.errors import PipelineError
from lazyckpt.pipeline import Pipeline

A = TypeVar("A")

_END: Any = object()


def _controlled(control: Any, pipelines: tuple[Any, ...]) -> None:
    joined("multiplex", (control, *pipelines))
    joined("multiplex", pipelines)


@source_combinator(
    checks={"pipelines": several}, validate=_controlled, functions={"control": "control"}
)
def multiplex(control: Pipeline[int], pipelines: Sequence[Pipeline[A]]) -> Machine[A]:
    """For each index of `control`, yield the next item of the pipeline with that index.

    Args:
        control: A pipeline of ints in `[0, len(pipelines))`; the stream ends with it.
        pipelines: One or more pipelines.

    Raises:
        PipelineError: If an index is out of range or not an int; or if a pipeline is chosen
            after its end.

    State:
        The state of `control` and of each pipeline.

    Resume:
        Re-reads what each pipeline re-reads.

    Random access:
        No.

    Rank-invariant:
        No.

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
                f"multiplex: control must yield ints from 0 to {count - 1}, "
                f"got {brief(index)} ({type(index).__name__})"
            )
        return operator.index(index)

    def exhausted(number: int) -> PipelineError:
        return PipelineError(f"multiplex: {named(number)} has ended, and control chooses it again")

    def step(position: Position) -> tuple[Position, A]:
        ((before, *states),) = position
        try:
            before, index = chosen.step(before)
        except End as end:
            raise End(((end.position, *states),)) from None
        number = place(index)
        try:
            states[number], item = machines[number].step(states[number])
        except End:
            raise exhausted(number) from None
        return ((before, *states),), item

    def flow(position: Position) -> Flow[A]:
        ((before, *states),) = position
        indices = chosen.flow(before)
        numbered, asked = counted(indices)
        lost = 0
        moved = set[int]()  # the pipelines that were chosen since the last snapshot
        flows = [each.flow(state) for each, state in zip(machines, states, strict=True)]

        def items() -> Iterator[A]:
            nonlocal lost
            streams = [iter(each) for each in flows]
            for index in numbered:
                try:
                    if type(index) is not int or not 0 <= index < count:
                        index = place(index)
                    moved.add(index)
                    item = next(streams[index], _END)
                    if item is _END:
                        raise exhausted(index)
                except BaseException:
                    lost = 1
                    raise
                yield item

        def snapshot() -> Position:
            for number in moved:
                states[number] = flows[number].snapshot()
            moved.clear()
            return ((indices.snapshot(), *states),)

        return Flow(items(), snapshot, taken=lambda: asked() - lost)

    def choices(position: Position, n: int) -> Iterator[int]:
        assert chosen.skip is not None
        return map((1).__add__, chosen.flow(chosen.skip(position[0][0], n)[0]))

    return joining(
        "multiplex",
        [chosen, *machines],
        rate=Rate(every=True),
        step=step,
        flow=flow,
        length=chosen.length,
        choices=choices if chosen.skip and chosen.view and chosen.view.table.is_in_memory else None,
    )

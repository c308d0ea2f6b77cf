"""`scan`: one item in, one out, with a state of your own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from lazyckpt.core.checks import function
from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import End, Machine, Rate
from lazyckpt.core.stages import stateful
from lazyckpt.core.user_state import copied, freeze, storable, thaw
from lazyckpt.decorators import combinator

A = TypeVar("A", bound=Any)  # bound to Any, so that pyright doesn't check the body of a lambda
B = TypeVar("B")
S = TypeVar("S")


@combinator(
    checks={"step": function, "init": storable},
    functions={"step": "step"},
)
def scan(upstream: Machine[A], step: Callable[[S, A], tuple[S, B]], init: S) -> Machine[B]:
    """Yield the outputs of a Mealy machine: `step(state, item) -> (state, output)`.

    Args:
        step: Function of the state and an item. It may change the state in place, because it is
            called on a copy.
        init: The first state: None, bool, int, float, str, and lists, dicts and tuples of them.

    Raises:
        InvalidState: If a state is of another type; raised when that state is first read.

    State:
        Your own state, as it is.

    Resume:
        Re-reads nothing.

    Random access:
        No.

    Rank-invariant:
        No.

    >>> import lazyckpt as lz
    >>> list(lz.source([1, 2, 3]) | lz.scan(lambda total, x: (total + x, total + x), 0))
    [1, 3, 6]
    """

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
                    found, output = step(copied(state, "scan"), item)
                    state = copied(found, "scan")
                except BaseException:
                    lost = 1
                    raise
                yield output

        return Flow(
            outputs(),
            lambda: (items.snapshot(), freeze(state, "scan")),
            taken=lambda: read() - lost,
        )

    return stateful(
        "scan",
        upstream,
        first=(freeze(init, "scan"),),
        check=thaw,
        rate=Rate(),
        step=once,
        flow=flow,
        length=upstream.length,
    )

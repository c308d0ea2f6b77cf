"""`sliding_window`: tuples of neighbours."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from itertools import chain, cycle, islice, repeat
from typing import Any, TypeVar

from lazyckpt.core.checks import positive
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import End, Machine, Rate, Reread, begun
from lazyckpt.core.stages import stateless
from lazyckpt.decorators import combinator, giving
from lazyckpt.pipeline import Sliding, Stage

A = TypeVar("A")


@giving(Sliding)
@combinator(
    checks={"width": positive, "stride": positive},
    trace=lambda call, tracing: Stage((call,)),
)
def sliding_window(upstream: Machine[A], width: int, *, stride: int = 1) -> Machine[tuple[A, ...]]:
    """Yield tuples of `width` consecutive items, starting every `stride` items.

    A stream shorter than `width` has no windows. If `stride` is larger than `width`, the items
    between windows are read and dropped.

    Args:
        width: Number of items per window, an int >= 1.
        stride: Distance between the starts of two windows, an int >= 1.

    State:
        None; the position is that of the next window's first item.

    Resume:
        Re-reads the items that windows share: `width - stride`.

    Random access:
        Kept.

    Rank-invariant:
        If all ranks get the same number of items.

    Memory:
        One window.

    >>> import lazyckpt as lz
    >>> list(lz.source(range(5)) | lz.sliding_window(3))
    [(0, 1, 2), (1, 2, 3), (2, 3, 4)]
    """
    jump, length = upstream.skip, upstream.length
    shared = max(0, width - stride)
    if length is not None and length != math.inf:
        length = max(0, (int(length) - width) // stride + 1)

    def step(position: Position) -> tuple[Position, tuple[Any, ...]]:
        items: list[Any] = []
        following = position
        for number in range(max(width, stride)):
            try:
                position, item = upstream.step(position)
            except End as end:
                if number < width:
                    raise
                return end.position, tuple(items)
            if number < width:
                items.append(item)
            if number < stride:
                following = position
        return following, tuple(items)

    def apart(position: Position) -> Flow[tuple[Any, ...]]:
        before = upstream.flow(position)

        def windows() -> Iterator[tuple[Any, ...]]:
            stream = iter(before)
            while len(some := list(islice(stream, stride))) >= width:
                yield tuple(some[:width])

        return Flow(windows(), before.snapshot)

    def overlapping(position: Position) -> Flow[tuple[Any, ...]]:
        before = upstream.flow(position)
        # Without random access, upstream's last few positions have to be kept.
        marks: deque[Position] = deque([position], shared + 1)
        given, ended = 0, False
        turns = [True] + [False] * (stride - 1)

        def windows() -> Iterator[tuple[Any, ...]]:
            nonlocal given, ended
            held: deque[Any] = deque(maxlen=width)
            dues = chain(repeat(False, width - 1), cycle(turns))
            for item, due in zip(before, dues, strict=False):
                held.append(item)
                if jump is None:
                    marks.append(before.snapshot())
                if due:
                    given += 1
                    yield tuple(held)
            ended = True

        def reached() -> Position:
            if ended:
                return before.snapshot()
            if not given:
                return position
            return marks[0] if jump is None else jump(position, given * stride)[0]

        return Flow(windows(), reached, taken=lambda: given)

    def skip(position: Position, n: int) -> tuple[Position, int]:
        assert jump is not None
        if not n:
            return jump(position, 0)
        wanted = (n - 1) * stride + width
        after, passed = jump(position, wanted)
        if passed == wanted:
            return jump(position, n * stride)[0], n
        return after, max(0, (passed - width) // stride + 1)

    def rereads(position: Position) -> list[Reread]:
        return [Reread(position, shared * begun(upstream, position))]

    return stateless(
        upstream,
        rate=Rate(stride, shared),
        rereads=rereads if shared else None,
        step=step,
        flow=apart if width <= stride else overlapping,
        skip=jump and skip,
        length=length,
    )

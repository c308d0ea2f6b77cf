"""`interleave_map`: several items expanded at the same time, in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from lazyckpt.combinators.machines.expansions import opened
from lazyckpt.core.checks import function, positive
from lazyckpt.core.flow import Flow, Position, noted
from lazyckpt.core.machine import End, Machine, Reread, anchored, within
from lazyckpt.core.stages import stateful
from lazyckpt.decorators import combinator
from lazyckpt.errors import InvalidState, SourceChanged

A = TypeVar("A", bound=Any)  # bound to Any, so that pyright doesn't check the body of a lambda
B = TypeVar("B")

_END: Any = object()


@combinator(
    checks={"fn": function, "cycle_length": positive, "block_length": positive},
    functions={"fn": "expand"},
)
def interleave_map(
    upstream: Machine[A],
    fn: Callable[[A], Iterable[B]],
    *,
    cycle_length: int,
    block_length: int = 1,
) -> Machine[B]:
    """Expand several items at a time, and yield the outputs of each in turn.

    When an expansion ends, the next input takes its place at its next turn, as in tf.data's
    `interleave`.

    Args:
        fn: Function from an item to an iterable or a pipeline, as for `flat_map`.
        cycle_length: Number of expansions open at the same time.
        block_length: Number of consecutive outputs from one expansion before the next one's turn.

    Raises:
        SourceChanged: If an expansion became shorter.
        TypeError: If `fn` doesn't return an iterable.

    State:
        For each open expansion, the position before its input and the position within it;
        whether the inputs have ended, whose turn it is, and a count of the items yielded in that
        turn. Its size grows with `cycle_length`: per expansion, about twice the size of
        upstream's position, which is some 20 bytes over a list.

    Resume:
        Calls `fn` again for each open expansion, and skips the outputs already yielded.

    Random access:
        No.

    Rank-invariant:
        No.

    >>> import lazyckpt as lz
    >>> texts = lz.source(["a b", "1 2 3", "x y"])
    >>> list(texts | lz.interleave_map(str.split, cycle_length=2))
    ['a', '1', 'b', '2', '3', 'x', 'y']
    """

    def check(ended: int, turn: int, yielded: int, positions: Any) -> None:
        within("interleave_map", ended, 1), within("interleave_map", turn, cycle_length - 1)
        within("interleave_map", yielded, block_length - 1)
        if len(positions) != cycle_length:
            raise InvalidState(
                f"interleave_map: {len(positions)} positions for cycle_length={cycle_length}"
            )
        for inner in positions:
            if inner != ():
                anchor, _ = inner
                upstream.check(anchor)

    def rereads(position: Position) -> list[Reread]:
        before, ended, _, _, positions = position
        open_ones = [Reread(inner[0], 1) for inner in positions if inner]
        return [Reread(before, ended=bool(ended)), *open_ones]

    def flow(position: Position) -> Flow[B]:
        before, ended, turn, yielded, positions = position
        epoch = upstream.epoch(before)
        inputs, last = noted(anchored(upstream, before))
        anchors: list[tuple[Position, Position] | tuple[()]] = list(positions)
        flows: list[Flow[B] | None] = [None] * cycle_length
        moved = set[int]()  # the inputs read since the last snapshot

        def reopened(anchor: Position, inside: Position) -> Flow[B]:
            try:
                return opened(fn(upstream.step(anchor)[1]), inside, epoch)
            except End:
                raise SourceChanged("interleave_map: an open input no longer exists") from None

        def items() -> Iterator[B]:
            nonlocal ended, turn, yielded
            stream = iter(inputs)
            streams: list[Iterator[B]] = [iter(())] * cycle_length
            order = deque([*range(turn, cycle_length), *range(turn)])
            while order:
                turn = order[0]
                if flows[turn] is None:
                    inner = anchors[turn]
                    if inner:
                        current = reopened(*inner)
                    elif ended:
                        order.popleft()
                        continue
                    else:
                        item = next(stream, _END)
                        if item is _END:
                            ended = 1
                            continue
                        current = opened(fn(item), 0, epoch)
                        anchors[turn] = last(), 0
                    flows[turn], streams[turn] = current, iter(current)
                moved.add(turn)
                for output in streams[turn]:
                    yielded += 1
                    yield output
                    if yielded == block_length:
                        break
                else:
                    anchors[turn], flows[turn] = (), None
                order.rotate(-1)
                yielded = 0
            turn = 0

        def snapshot() -> Position:
            for number in moved:
                inner, current = anchors[number], flows[number]
                if inner and current is not None:
                    anchors[number] = inner[0], current.snapshot()
            moved.clear()
            moved.add(turn)  # which may yield more
            reached = tuple(anchors)
            if yielded == block_length:
                return inputs.snapshot(), ended, (turn + 1) % cycle_length, 0, reached
            return inputs.snapshot(), ended, turn, yielded, reached

        return Flow(items(), snapshot)

    return stateful(
        "interleave_map",
        upstream,
        first=(0, 0, 0, ((),) * cycle_length),
        check=check,
        rereads=rereads,
        flow=flow,
    )

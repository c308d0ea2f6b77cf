"""Several streams by turns: `interleave`, `interleave_map`."""

from __future__ import annotations

import builtins
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, cycle, repeat
from typing import Any, TypeVar

from lazyckpt.combinators.flat_map import opened
from lazyckpt.combinators.join import abreast, joined
from lazyckpt.core.checks import function, positive
from lazyckpt.core.machine import End, Flow, Machine, Position, counted, machine, within
from lazyckpt.core.registry import Again, Taken
from lazyckpt.errors import SourceChanged
from lazyckpt.pipeline import Pipeline, combinator, source_combinator

A = TypeVar("A")
B = TypeVar("B")

_END: Any = object()


@source_combinator(
    checks={"block_length": positive},
    validate=lambda pipelines, block_length: joined("interleave", pipelines),
    parts=abreast,
    takes=Taken(),
)
def interleave(*pipelines: Pipeline[A], block_length: int = 1) -> Machine[A]:
    """Items of each pipeline in turn, round and round over those that still have some.

    - `block_length`: how many items one gives before it is the next one's turn

    State: that of each pipeline, which have ended, whose turn it is, and a count
    of the items given in it.
    Resume: reads again what each of them does.
    Random access: where all have it.
    Rank-free: where all are.
    Errors: none given.

    >>> import lazyckpt as lz
    >>> list(lz.interleave(lz.source([1, 2, 3]), lz.source([10]), lz.source([20, 30])))
    [1, 10, 20, 2, 30, 3]
    """
    machines: list[Machine[A]] = [pipeline.machine for pipeline in pipelines]
    width = len(machines)

    def turned(turn: int, given: int, ended: int) -> tuple[int, int]:
        """Whose turn it is, those passed over that have ended or had theirs."""
        if given == block_length:
            turn, given = (turn + 1) % width, 0
        while ended >> turn & 1 and ended + 1 < 1 << width:
            turn = (turn + 1) % width
        return (turn, given) if ended + 1 < 1 << width else (0, 0)

    def init(epoch: int) -> Position:
        return tuple(each.init(epoch) for each in machines), 0, 0, 0

    def step(position: Position) -> tuple[Position, A]:
        states, ended, turn, given = position
        states = list(states)
        while ended + 1 < 1 << width:
            try:
                states[turn], item = machines[turn].step(states[turn])
            except End as end:
                states[turn], ended = end.position, ended | 1 << turn
                turn, given = turned(turn, 0, ended)
            else:
                return (tuple(states), ended, *turned(turn, given + 1, ended)), item
        raise End((tuple(states), ended, turn, given))

    def flow(position: Position) -> Flow[A]:
        states, ended, turn, given = position
        within("interleave", ended, (1 << width) - 1), within("interleave", turn, width - 1)
        within("interleave", given, block_length - 1)
        flows = [each.flow(state) for each, state in builtins.zip(machines, states, strict=True)]

        order, before = [turn], 0
        taken: Callable[[], int] = lambda: 0  # noqa: E731  # replaced when reading begins

        def rounds() -> Iterator[Iterator[A]]:
            """The items until one pipeline ends, then those until the next one does."""
            nonlocal ended, turn, given, order, before, taken
            streams = [iter(each) for each in flows]
            while ended + 1 < 1 << width:
                numbers = chain(range(turn, width), range(turn))
                order = [number for number in numbers if not ended >> number & 1]
                turns: Iterator[Iterator[A]] = cycle([streams[number] for number in order])
                if block_length > 1:
                    first = repeat(next(turns), block_length - given)
                    others = map(repeat, turns, repeat(block_length))
                    turns = chain(first, chain.from_iterable(others))
                items, taken = counted(map(next, turns))
                yield items
                turn, before, taken = whose()[0], before + taken(), lambda: 0
                ended |= 1 << turn
                turn, given = turned(turn, 0, ended)

        def whose() -> tuple[int, int]:
            """Whose turn it is, and how many items were given in it."""
            blocks, inside = divmod(given + taken(), block_length)
            return order[blocks % len(order)], inside

        def snapshot() -> Position:
            return (tuple(each.snapshot() for each in flows), ended, *turned(*whose(), ended))

        items = chain.from_iterable(rounds())
        return Flow(items, snapshot, taken=lambda: before + taken())

    def skip(position: Position, n: int) -> tuple[Position, int]:
        states, ended, turn, given = position
        has = [jump(state, n)[1] for jump, state in builtins.zip(jumps, states, strict=True)]
        taken, left = [0] * width, n

        def give() -> None:
            """Go through the rest of one turn."""
            nonlocal ended, turn, given, left
            some = min(block_length - given, has[turn] - taken[turn], left)
            taken[turn], left, given = taken[turn] + some, left - some, given + some
            if left and given < block_length:
                ended, given = ended | 1 << turn, 0
                taken[turn] += 1  # asked once more, it ends
            turn, given = turned(turn, given, ended)

        if left and given:
            give()
        rest = {
            number: has[number] - taken[number]
            for number in range(width)
            if not ended >> number & 1
        }
        whole = block_length * _rounds(left, [*rest.values()], block_length)
        for number, most in rest.items():
            left -= min(whole, most)
            taken[number] += min(whole, most + 1)
            ended |= (most < whole) << number
        turn, given = turned(turn, given, ended)
        while left and ended + 1 < 1 << width:
            give()
        after = [
            jump(state, count)[0]
            for jump, state, count in builtins.zip(jumps, states, taken, strict=True)
        ]
        return (tuple(after), ended, turn, given), n - left

    jumps = [each.skip for each in machines if each.skip is not None]
    lengths = [each.length for each in machines if each.length is not None]
    return machine(
        init=init,
        epoch=lambda position: machines[0].epoch(position[0][0]),
        step=step,
        flow=flow,
        skip=skip if len(jumps) == width else None,
        length=sum(lengths) if len(lengths) == width else None,
    )


def _rounds(left: int, rest: list[int], block_length: int) -> int:
    """How many times it goes round before the last of `left` items; `rest`: what each one has."""
    low, high = 0, max(rest, default=0) // block_length + 1
    while low < high:
        middle = (low + high + 1) // 2
        is_before = sum(min(middle * block_length, each) for each in rest) < left
        low, high = (middle, high) if is_before else (low, middle - 1)
    return low


@combinator(
    checks={"fn": function, "cycle_length": positive, "block_length": positive},
    again=lambda position, **_: [
        Again(position[0]),
        *[Again(place[0], 1) for place in position[4] if place],
    ],
)
def interleave_map(
    upstream: Machine[A],
    fn: Callable[[A], Iterable[B]],
    *,
    cycle_length: int,
    block_length: int = 1,
) -> Machine[B]:
    """The items of `fn(item)` for every item, several items open at once and read by turns.

    - `fn`: returns an iterable or a pipeline, as for `flat_map`
    - `cycle_length`: how many are open at once
    - `block_length`: how many items one gives before it is the next one's turn

    When one has ended, the next input takes its place at its next turn, as in
    tf.data's `interleave`.

    State: the place upstream, and for each open one the place before its input
    and how far it is: it grows with `cycle_length`, by about twice the size of
    upstream's place for each, some 20 bytes over a list.
    Resume: calls `fn` again for each open one, and passes over what it gave.
    Random access: no.
    Rank-free: no.
    Errors: as `flat_map`'s.

    >>> import lazyckpt as lz
    >>> texts = lz.source(["a b", "1 2 3", "x y"])
    >>> list(texts | lz.interleave_map(str.split, cycle_length=2))
    ['a', '1', 'b', '2', '3', 'x', 'y']
    """

    def init(epoch: int) -> Position:
        return upstream.init(epoch), 0, 0, 0, ((),) * cycle_length

    def flow(position: Position) -> Flow[B]:
        before, ended, turn, given, places = position
        within("interleave_map", ended, 1), within("interleave_map", turn, cycle_length - 1)
        within("interleave_map", given, block_length - 1)
        for place, _ in zip(places, range(cycle_length), strict=True):
            if place != ():
                anchor, _ = place
                upstream.flow(anchor)  # which checks it
        epoch = upstream.epoch(before)
        inputs = upstream.flow(before)
        anchors: list[tuple[Position, Position] | tuple[()]] = list(places)
        flows: list[Flow[B] | None] = [None] * cycle_length

        def reopened(anchor: Position, inside: Position) -> Flow[B]:
            try:
                return opened(fn(upstream.step(anchor)[1]), inside, epoch)
            except End:
                raise SourceChanged("interleave_map: an input that was open is gone") from None

        def items() -> Iterator[B]:
            nonlocal ended, turn, given
            stream = iter(inputs)
            streams: list[Iterator[B]] = [iter(())] * cycle_length
            order = deque([*range(turn, cycle_length), *range(turn)])
            while order:
                turn = order[0]
                if flows[turn] is None:
                    place = anchors[turn]
                    if place:
                        current = reopened(*place)
                    elif ended:
                        order.popleft()
                        continue
                    else:
                        here = inputs.snapshot()
                        item = next(stream, _END)
                        if item is _END:
                            ended = 1
                            continue
                        current = opened(fn(item), 0, epoch)
                        anchors[turn] = here, 0
                    flows[turn], streams[turn] = current, iter(current)
                for output in streams[turn]:
                    given += 1
                    yield output
                    if given == block_length:
                        break
                else:
                    anchors[turn], flows[turn] = (), None
                order.rotate(-1)
                given = 0
            turn = 0

        def snapshot() -> Position:
            reached = tuple(
                place if each is None or not place else (place[0], each.snapshot())
                for place, each in zip(anchors, flows, strict=True)
            )
            if given == block_length:
                return inputs.snapshot(), ended, (turn + 1) % cycle_length, 0, reached
            return inputs.snapshot(), ended, turn, given, reached

        return Flow(items(), snapshot)

    return machine(
        init=init,
        epoch=lambda position: upstream.epoch(position[0]),
        flow=flow,
    )

"""`Turns`: machines that take turns, for `interleave` and `lanes`."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, cycle, pairwise, repeat
from typing import Any, Generic, TypeVar

from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import End, Machine, Rate, within
from lazyckpt.core.stages import joining

A = TypeVar("A")


class Turns(Generic[A]):
    """A machine that takes items from several machines in turn.

    Its own part of the position: one bit per machine that has ended, the number of the machine
    whose turn it is, and the number of items yielded in that turn.
    """

    def __init__(self, machines: Sequence[Machine[A]], block_length: int = 1) -> None:
        self.machines = machines
        self.width = len(machines)
        self.block_length = block_length
        self._known: tuple[Position, _Rounds] | None = None  # of the last requested position

    def machine(self, name: str) -> Machine[A]:
        skips = [each.skip for each in self.machines]
        return joining(
            name,
            self.machines,
            first=(0, 0, 0),
            check=lambda ended, turn, yielded: self.check(name, ended, turn, yielded),
            rate=Rate(),
            step=self.step,
            flow=self.flow,
            skip=self.skip if None not in skips else None,
            item=self.item if self.length is not None else None,
            length=self.length,
        )

    @property
    def length(self) -> int | float | None:
        lengths = [each.length for each in self.machines if each.length is not None]
        return sum(lengths) if len(lengths) == self.width else None

    def check(self, name: str, ended: int, turn: int, yielded: int) -> None:
        within(name, ended, (1 << self.width) - 1), within(name, turn, self.width - 1)
        within(name, yielded, self.block_length - 1)

    def turned(self, turn: int, yielded: int, ended: int) -> tuple[int, int]:
        """Return the turn and its count, past a turn that is over and machines that have ended."""
        if yielded == self.block_length:
            turn, yielded = (turn + 1) % self.width, 0
        while ended >> turn & 1 and ended + 1 < 1 << self.width:
            turn = (turn + 1) % self.width
        return (turn, yielded) if ended + 1 < 1 << self.width else (0, 0)

    def step(self, position: Position) -> tuple[Position, A]:
        (*positions,), ended, turn, yielded = position
        while ended + 1 < 1 << self.width:
            try:
                positions[turn], item = self.machines[turn].step(positions[turn])
            except End as end:
                positions[turn], ended = end.position, ended | 1 << turn
                turn, yielded = self.turned(turn, 0, ended)
            else:
                return (tuple(positions), ended, *self.turned(turn, yielded + 1, ended)), item
        raise End((tuple(positions), ended, turn, yielded))

    def flow(self, position: Position) -> Flow[A]:
        positions, ended, turn, yielded = position
        block_length, turned = self.block_length, self.turned
        flows = [each.flow(inner) for each, inner in zip(self.machines, positions, strict=True)]

        order, before = [turn], 0
        taken: Callable[[], int] = int  # 0 until reading begins
        now = list(positions)  # positions after a number of items of this round:
        noted: int | None = 0  # None if any may have advanced since

        def rounds() -> Iterator[Iterator[A]]:
            """Yield the items until one pipeline ends, then those until the next one does."""
            nonlocal ended, turn, yielded, order, before, taken, noted
            streams = [iter(each) for each in flows]
            while ended + 1 < 1 << self.width:
                numbers = chain(range(turn, self.width), range(turn))
                order = [number for number in numbers if not ended >> number & 1]
                turns: Iterator[Iterator[A]] = cycle([streams[number] for number in order])
                if block_length > 1:
                    first = repeat(next(turns), block_length - yielded)
                    others = map(repeat, turns, repeat(block_length))
                    turns = chain(first, chain.from_iterable(others))
                items, taken = counted(map(next, turns))
                yield items
                turn, before, taken = whose()[0], before + taken(), lambda: 0
                ended |= 1 << turn
                turn, yielded = turned(turn, 0, ended)
                noted = None

        def whose() -> tuple[int, int]:
            """Return the turn, and the number of items yielded in it."""
            blocks, inside = divmod(yielded + taken(), block_length)
            return order[blocks % len(order)], inside

        def snapshot() -> Position:
            nonlocal noted
            here, moved = taken(), set(range(len(flows)))
            if noted is not None:
                turns = range(
                    (yielded + noted) // block_length, -(-(yielded + here) // block_length)
                )
                moved = {order[each % len(order)] for each in turns[-len(order) :]}
            for number in moved:
                now[number] = flows[number].snapshot()
            noted = here
            return tuple(now), ended, *turned(*whose(), ended)

        items = chain.from_iterable(rounds())
        return Flow(items, snapshot, taken=lambda: before + taken())

    def skip(self, position: Position, n: int) -> tuple[Position, int]:
        positions, ended, turn, yielded = position
        has = [self._jump(i, inner, n)[1] for i, inner in enumerate(positions)]
        taken, left = [0] * self.width, n

        def give() -> None:
            """Take the rest of one turn."""
            nonlocal ended, turn, yielded, left
            some = min(self.block_length - yielded, has[turn] - taken[turn], left)
            taken[turn], left, yielded = taken[turn] + some, left - some, yielded + some
            if left and yielded < self.block_length:
                ended, yielded = ended | 1 << turn, 0
                taken[turn] += 1  # the next request ends it
            turn, yielded = self.turned(turn, yielded, ended)

        if left and yielded:
            give()
        rest = {
            number: has[number] - taken[number]
            for number in range(self.width)
            if not ended >> number & 1
        }
        whole = self.block_length * _rounds(left, [*rest.values()], self.block_length)
        for number, most in rest.items():
            left -= min(whole, most)
            taken[number] += min(whole, most + 1)
            ended |= (most < whole) << number
        turn, yielded = self.turned(turn, yielded, ended)
        while left and ended + 1 < 1 << self.width:
            give()
        after = [self._jump(i, inner, taken[i])[0] for i, inner in enumerate(positions)]
        return (tuple(after), ended, turn, yielded), n - left

    def item(self, position: Position, n: int) -> A:
        known = self._known
        if known is None or known[0] is not position:
            self._known = known = position, self._rounds(position)
        number, behind = known[1].find(n)
        alone: Any = self.machines[number].item
        found: A = alone(position[0][number], behind)
        return found

    def _rounds(self, position: Position) -> _Rounds:
        positions, _, turn, yielded = position
        has = [
            self._jump(i, inner, each.length)[1] if isinstance(each.length, int) else math.inf
            for i, (each, inner) in enumerate(zip(self.machines, positions, strict=True))
        ]
        first = min(self.block_length - yielded, has[turn]) if yielded else 0
        has[turn] -= first
        order = [*range(turn + bool(yielded), self.width), *range(turn + bool(yielded))]
        return _Rounds([(i, has[i]) for i in order], self.block_length, turn, first)

    def _jump(self, number: int, position: Position, n: int) -> tuple[Position, int]:
        jump: Any = self.machines[number].skip
        found: tuple[Position, int] = jump(position, n)
        return found


class _Rounds:
    """The order of the items of machines that take turns, if their lengths are known.

    Args:
        order: The machines in the order of a round, each with the number of its items.
        block_length: Number of items per turn.
        turn: The machine whose turn is in progress.
        first: Number of its items before the first whole round.
    """

    def __init__(
        self, order: list[tuple[int, float]], block_length: int, turn: int, first: int
    ) -> None:
        self._order, self._block_length = order, block_length
        self._turn, self._first = turn, first
        # The numbers of items per machine at which machines end, and the total number by then.
        self._taken = [0, *sorted([has for _, has in order])]
        pairs = enumerate(pairwise(self._taken))
        parts = [(b - a) * (len(order) - i) if b > a else 0 for i, (a, b) in pairs]
        self._totals = [*accumulate(parts, initial=0)]
        self._found: dict[int, list[tuple[int, float]]] = {}

    def find(self, n: int) -> tuple[int, int]:
        """Return the machine of the item n items later, and that item's number within it."""
        first, block_length = self._first, self._block_length
        if n < first:
            return self._turn, n
        n -= first
        ended = bisect_right(self._totals, n) - 1
        more, rest = divmod(n - int(self._totals[ended]), len(self._order) - ended)
        taken = int(self._taken[ended]) + more
        if block_length == 1:
            number = self._active(ended)[rest][0]
        else:
            taken -= taken % block_length  # back to the beginning of the round
            ended = bisect_right(self._taken, taken) - 1
            before = (taken - self._taken[ended]) * (len(self._order) - ended)
            rest = n - int(self._totals[ended] + before)
            for number, has in self._active(ended):  # noqa: B007  # used after the loop
                some = min(block_length, has - taken)
                if rest < some:
                    break
                rest -= int(some)
            taken += rest
        return number, taken + (first if number == self._turn else 0)

    def _active(self, ended: int) -> list[tuple[int, float]]:
        """Return the machines that still have items after `ended` of them have ended."""
        found = self._found.get(ended)
        if found is None:
            taken = self._taken[ended]
            found = self._found[ended] = [pair for pair in self._order if pair[1] > taken]
        return found


def _rounds(left: int, rest: list[int], block_length: int) -> int:
    """Return the number of whole rounds before the last of `left` items.

    Args:
        left: Number of items that are left.
        rest: Number of items of each machine.
        block_length: Number of items per turn.
    """
    low, high = 0, max(rest, default=0) // block_length + 1
    while low < high:
        middle = (low + high + 1) // 2
        is_before = sum(min(middle * block_length, each) for each in rest) < left
        low, high = (middle, high) if is_before else (low, middle - 1)
    return low

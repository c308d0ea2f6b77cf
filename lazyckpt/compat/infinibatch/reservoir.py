"""`Reservoir`: a streaming shuffle by slots drawn one after another; Infinibatch's order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazyckpt.compat.infinibatch.mersenne import Seed, Words, origin_of
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.iterators import iterate, remaining
from lazyckpt.core.machine import Machine, Rate, Reread, within
from lazyckpt.core.stages import stateful
from lazyckpt.errors import SourceChanged

Mark: TypeAlias = tuple[int, ...]

_NAME = "BufferedShuffleIterator"
_MISSING: Any = object()
_AT_ONCE = 1 << 13  # draws, which so stay in the processor's cache
_MOST = 1 << 62  # inputs


class _Slots(Words):
    """The slots that `random.Random.randrange` draws for one input after another."""

    @property
    def mark(self) -> tuple[int, int]:
        """Where the second slot of the last draw comes from: a state may begin there."""
        return self.origin, self.second


class Reservoir:
    """A streaming shuffle whose buffer is a function of the slots drawn.

    An input goes to the slot drawn for it, whose occupant, if there is one, is
    the next output. So a slot holds the last input that drew it, and the state
    is (upstream's position at input `start`, `start`, a count, the slots' mark
    there), where `start` is no later than the oldest input held. The count is
    of inputs, and at the end of those flushed too. Inputs are cut in blocks;
    `start` is chosen at the first input of each block, and is the second input
    of a block or 0, so that it depends on the count alone.

    Args:
        upstream: What is shuffled.
        size: How many items are held.
        seed: Of the `random.Random` that draws slots.
    """

    def __init__(self, upstream: Machine[Any], size: int, seed: Seed) -> None:
        self.upstream, self.size, self.seed = upstream, size, seed
        self.block = min(max(size, 256), 1 << 16)

    def machine(self) -> Machine[Any]:
        upstream = self.upstream
        return stateful(
            _NAME,
            upstream,
            first=(0, 0, origin_of(self.seed), 0),
            check=self._check,
            rate=Rate(1, self.size),
            rereads=lambda position: [Reread(position[0], position[2] - position[1])],
            flow=self.flow,
            length=upstream.length,
        )

    def _check(self, start: Any, given: Any, *mark: Any) -> None:
        within(_NAME, given, _MOST), within(_NAME, start, given)
        _Slots(self.seed, *mark)

    def flow(self, position: Position) -> Flow[Any]:
        anchor, start, given, *mark = position
        slots = _Slots(self.seed, *mark)
        before = self.upstream.flow(anchor)
        ticks: Iterator[int] = iterate(())
        ahead = given  # the count when ticks run out

        def outputs() -> Iterator[Any]:
            nonlocal ticks, ahead
            held = self._opened(slots, before, anchor, start, tuple(mark), given)

            def drawn() -> Iterator[Iterator[int]]:
                """Slots, many at once; they are asked for when their first input has been read."""
                nonlocal anchor, start, mark, ticks, ahead
                first = held.arrived
                while True:
                    stop = min(_next(first, self.block), _next(first, _AT_ONCE))
                    some = slots.below(self.size, stop - first)
                    if first and first % self.block == 0:
                        held.marks[first + 1] = held.snapshot(), slots.mark
                        start, anchor, mark = held.oldest_mark()
                    held.inputs[some] = np.arange(first, stop)  # of equal ones the last stays
                    ticks, ahead = iterate(some.tolist()), stop
                    yield ticks
                    first = stop

            buffer = held.items
            free = np.count_nonzero(held.inputs < 0)
            pairs = zip(held.stream, chain.from_iterable(drawn()), strict=False)
            for item, slot in pairs if free else ():
                if buffer[slot] is _MISSING:
                    free -= 1
                else:
                    yield buffer[slot]
                buffer[slot] = item
                if not free:
                    break
            for item, slot in () if free else pairs:
                yield buffer[slot]
                buffer[slot] = item
            passed = reached()
            used = [item is not _MISSING for item in buffer] if free else np.ones(len(buffer))
            occupied = np.flatnonzero(used)
            flushed = max(0, given - held.arrived)
            if flushed > len(occupied):
                raise SourceChanged(
                    f"{_NAME}: the state stands after item {given} of what now has {held.arrived}"
                )
            rest = occupied[::-1][flushed:].tolist()
            ticks, ahead = iterate(rest), passed + len(rest)
            for slot in ticks:
                yield buffer[slot]

        def reached() -> int:
            counted: int = ahead - remaining(ticks)
            return max(counted, 0)

        return Flow(outputs(), lambda: (anchor, start, reached(), *mark))

    def _opened(
        self,
        slots: _Slots,
        flow: Flow[Any],
        anchor: Position,
        start: int,
        mark: Mark,
        target: int,
    ) -> _Held:
        """What was held after so many inputs, or at the end of the stream."""
        buffer, inputs = [_MISSING] * self.size, np.full(self.size, -1)
        marks, arrived, stream = {start: (anchor, mark)}, start, iter(flow)
        while arrived < target:
            opens = arrived and arrived % self.block == 0
            stop = arrived + 1 if opens else min(target, _next(arrived, self.block))
            drawn, first = slots.below(self.size, stop - arrived), arrived
            for slot, item in zip(drawn.tolist(), islice(stream, stop - arrived), strict=False):
                buffer[slot] = item
                arrived += 1
            inputs[drawn[: arrived - first]] = np.arange(first, arrived)
            if arrived < stop:
                stream = iter(())
                break
            if opens:
                marks[arrived] = flow.snapshot(), slots.mark
        return _Held(buffer, inputs, arrived, stream, flow.snapshot, marks)


class _Held(NamedTuple):
    """A buffer, and how it goes on.

    - `items`, `inputs`: what each slot holds, and which input that is; -1 if none
    - `arrived`: inputs read; `stream`: the rest of them; `snapshot`: the place there
    - `marks`: places that a state may begin at, by the number of the input there
    """

    items: list[Any]
    inputs: NDArray[np.int64]
    arrived: int
    stream: Iterator[Any]
    snapshot: Callable[[], Position]
    marks: dict[int, tuple[Position, Mark]]

    def oldest_mark(self) -> tuple[int, Position, Mark]:
        """The last mark that is no later than any input held; those before it are dropped."""
        oldest = int(self.inputs.min())
        if oldest < 0:
            oldest = int(self.inputs[self.inputs >= 0].min(initial=_MOST))
        start = max(mark for mark in self.marks if mark <= oldest)
        for mark in [mark for mark in self.marks if mark < start]:
            del self.marks[mark]
        return start, *self.marks[start]


def _next(number: int, step: int) -> int:
    """The first multiple of a step that is more than a number."""
    return number - number % step + step

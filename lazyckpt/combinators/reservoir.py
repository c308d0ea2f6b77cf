"""`Reservoir`: the streaming shuffle, a buffer whose contents are a function of a counter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain, islice
from operator import length_hint
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazyckpt.combinators.slots import MOST, HashedSlots, Mark, Slots
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine, Rate, Reread, within
from lazyckpt.core.prng import as_array
from lazyckpt.core.stages import stateful
from lazyckpt.errors import InvalidState, SourceChanged

_MISSING: Any = object()
_AT_ONCE = 1 << 13  # draws, which so stay in the processor's cache

_Marks = dict[int, tuple[Position, Mark]]


class Reservoir:
    """A streaming shuffle whose buffer is a function of the slots drawn.

    An input goes to the slot drawn for it, whose occupant, if there is one, is
    the next output. So a slot holds the last input that drew it, and the state
    is (upstream's position at input `start`, `start`, a count, the slots' mark
    there), where `start` is no later than the oldest input held. The count is
    of inputs, and at the end of those flushed too; with hashed slots less the
    inputs that fill the buffer, and so one of outputs. Inputs are cut in
    blocks; `start` is chosen at the first input of each block, and is the
    second input of a block or 0, so that it depends on the count alone.

    Args:
        name: What errors call the stage.
        upstream: What is shuffled.
        size: How many items are held.
        slots: From the epoch, the number of an input and the mark there, which
            it checks, to the slots from there on.
        first: The mark before the first input.
    """

    def __init__(
        self,
        name: str,
        upstream: Machine[Any],
        size: int,
        slots: Callable[..., Slots],
        first: Mark = (),
    ) -> None:
        self.name, self.upstream, self.size = name, upstream, size
        self.slots, self.first = slots, first
        self.block = min(max(size, 256), 1 << 16)
        # That an item stays for longer has a chance below exp(-50).
        self._longest = 2 * self.block + size * (math.ceil(math.log(size)) + 51)

    def machine(self) -> Machine[Any]:
        upstream = self.upstream
        return stateful(
            self.name,
            upstream,
            first=(0, 0, *self.first),
            check=self._check,
            rate=Rate(1, self.size),
            rereads=self._rereads,
            flow=self.flow,
            length=upstream.length,
        )

    def _check(self, start: Any, given: Any, *mark: Any) -> None:
        within(self.name, given, MOST), within(self.name, start, given)
        if isinstance(self.slots(0, start, *mark), HashedSlots):
            within(self.name, given - start, self._longest)

    def _rereads(self, position: Position) -> list[Reread]:
        """The items held, or over a stream all from the oldest one's anchor on."""
        anchor, start, given, *mark = position
        if not given:
            return [Reread(anchor)]
        is_hashed = isinstance(self.slots(0, start, *mark), HashedSlots)
        passed = given - start + (self.size if is_hashed else 0)
        jump, length = self.upstream.skip, self.upstream.length
        if jump is None or length is None or not is_hashed:
            return [Reread(anchor, passed)]
        held = min(self.size, length)
        return [Reread(jump(anchor, passed)[0]), Reread(anchor, held, alone=True)]

    def flow(self, position: Position) -> Flow[Any]:
        anchor, start, given, *mark = position
        slots = self.slots(self.upstream.epoch(anchor), start, *mark)
        is_hashed = isinstance(slots, HashedSlots)
        lead = self.size if is_hashed else 0  # inputs that do not count
        before = self.upstream.flow(anchor)
        ticks: Iterator[int] = iter(())
        ahead = given  # the count when ticks run out

        def outputs() -> Iterator[Any]:
            nonlocal ticks, ahead
            target = given and lead + given
            held = self._opened(slots, before, anchor, start, tuple(mark), target)

            def drawn() -> Iterator[Iterator[int]]:
                """Slots, many at once; they are asked for when their first input has been read."""
                nonlocal anchor, start, mark, ticks, ahead
                first = held.arrived
                while True:
                    stop = min(_next(first, self.block), _next(first, _AT_ONCE))
                    some = slots.draw(stop - first)
                    if first and first % self.block == 0:
                        held.marks[first + 1] = held.snapshot(), slots.mark
                        start, anchor, mark = held.oldest_mark()
                    held.inputs[some] = np.arange(first, stop)  # of equal ones the last stays
                    ticks, ahead = iter(some.tolist()), stop - lead
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
            flushed = max(0, given - max(0, held.arrived - lead))
            if flushed > len(occupied):
                raise SourceChanged(
                    f"{self.name}: the state stands after item {given} of what now has "
                    f"{held.arrived}"
                )
            rest = slots.flush(occupied, passed - flushed)[flushed:].tolist()
            ticks, ahead = iter(rest), passed + len(rest)
            for slot in ticks:
                yield buffer[slot]

        def reached() -> int:
            counted: int = ahead - length_hint(ticks)
            return max(counted, 0)

        return Flow(
            outputs(),
            lambda: (anchor, start, reached(), *mark),
            taken=(lambda: reached() - given) if is_hashed else None,
        )

    def _opened(
        self,
        slots: Slots,
        flow: Flow[Any],
        anchor: Position,
        start: int,
        mark: Mark,
        target: int,
    ) -> _Held:
        """What was held after so many inputs, or at the end of the stream."""
        marks, upstream = {start: (anchor, mark)}, self.upstream
        if not isinstance(slots, HashedSlots):
            return self._replayed(slots, self._empty(flow, start, marks), target)
        if target and upstream.skip is not None and upstream.length is not None:
            return self._looked_up(slots, anchor, start, target, marks)
        if not start:
            held = self._filled(slots, flow, marks)
            is_full = held.arrived == self.size
            return self._replayed(slots, held, target) if is_full else held
        held = self._replayed(slots, self._empty(flow, start, marks), target)
        if held.arrived == target and (held.inputs < 0).any():
            raise _too_late(self.name, start)
        return held

    def _empty(self, flow: Flow[Any], start: int, marks: _Marks) -> _Held:
        items, inputs = [_MISSING] * self.size, np.full(self.size, -1)
        return _Held(items, inputs, start, iter(flow), flow.snapshot, marks)

    def _filled(self, slots: HashedSlots, flow: Flow[Any], marks: _Marks) -> _Held:
        """The first items; of a stream that is shorter, a buffer that is."""
        stream = iter(flow)
        buffer = list(islice(stream, self.size))
        arrived = len(buffer)
        rest = stream if arrived == self.size else iter(())
        return _Held(buffer, slots.go(arrived), arrived, rest, flow.snapshot, marks)

    def _replayed(self, slots: Slots, held: _Held, target: int) -> _Held:
        """What is held so many inputs on, or at the end of the stream."""
        buffer, inputs, arrived, stream, snapshot, marks = held
        while arrived < target:
            opens = arrived and arrived % self.block == 0
            stop = arrived + 1 if opens else min(target, _next(arrived, self.block))
            drawn, first = slots.draw(stop - arrived), arrived
            for slot, item in zip(drawn.tolist(), islice(stream, stop - arrived), strict=False):
                buffer[slot] = item
                arrived += 1
            inputs[drawn[: arrived - first]] = np.arange(first, arrived)
            if arrived < stop:
                stream = iter(())
                break
            if opens:
                marks[arrived] = snapshot(), slots.mark
        return held._replace(arrived=arrived, stream=stream)

    def _looked_up(
        self, slots: HashedSlots, anchor: Position, start: int, target: int, marks: _Marks
    ) -> _Held:
        """Over random access only the items held are read."""
        upstream, jump = self.upstream, self.upstream.skip
        assert jump is not None
        here, passed = jump(anchor, target - start)
        arrived = start + passed
        inputs = slots.go(arrived)
        held = inputs - start
        oldest = int(held.min(initial=arrived - start))
        if oldest < 0:
            raise _too_late(self.name, start)
        if upstream.view is None:
            buffer = [upstream.step(jump(anchor, int(t))[0])[1] for t in held]
        else:
            get, rows = upstream.view.table.get, upstream.view.table.rows
            places = as_array(upstream.view.ahead(anchor, held))
            buffer = [get(i) for i in places.tolist()] if rows is None else rows(places)
        first = start + max(0, oldest - self.block - 1)
        for mark in range(_next(first, self.block) + 1, arrived + 1, self.block):
            if mark > self.size:
                marks[mark] = jump(anchor, mark - start)[0], slots.mark_at(mark)
        flow = upstream.flow(here)
        return _Held(buffer, inputs, arrived, iter(flow), flow.snapshot, marks)


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
    marks: _Marks

    def oldest_mark(self) -> tuple[int, Position, Mark]:
        """The last mark that is no later than any input held; those before it are dropped."""
        oldest = int(self.inputs.min())
        if oldest < 0:
            oldest = int(self.inputs[self.inputs >= 0].min(initial=MOST))
        start = max(mark for mark in self.marks if mark <= oldest)
        for mark in [mark for mark in self.marks if mark < start]:
            del self.marks[mark]
        return start, *self.marks[start]


def _too_late(name: str, start: int) -> InvalidState:
    return InvalidState(f"{name}: a state that begins at item {start} lacks some of the buffer")


def _next(number: int, step: int) -> int:
    """The first multiple of a step that is more than a number."""
    return number - number % step + step

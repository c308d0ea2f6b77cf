"""The streaming shuffle: a buffer whose contents are a function of a counter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain, islice
from operator import length_hint
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.machine import Flow, Machine, Position, machine, within
from lazyckpt.core.prng import Permutation, as_array, derive, draws
from lazyckpt.core.registry import Again
from lazyckpt.errors import InvalidState, SourceChanged

_MOST = 1 << 62  # inputs
_MISSING: Any = object()
_AT_ONCE = 1 << 13  # draws, which so stay in the processor's cache

_Marks = dict[int, tuple[Position, tuple[int, ...]]]


class Slots(Protocol):
    """The slots that a reservoir draws for one input after another."""

    @property
    def mark(self) -> tuple[int, ...]:
        """What tells, beside an input's number, where its slot comes from.

        It is that of the second input of the last draw: a state may begin there.
        """

    def draw(self, count: int) -> NDArray[np.int64]:
        """The slots of the next inputs, one at least."""

    def flush(self, occupied: NDArray[np.int64]) -> NDArray[np.int64]:
        """The order in which slots are emptied at the end of the stream."""


class HashedSlots:
    """Slots that are hashes of an input's number, so that any can be had at any time.

    Input t goes to slot t while there are free ones, then to slot hash(t).
    """

    mark = ()

    def __init__(self, seed: int, size: int, epoch: int, number: int) -> None:
        self._seed, self._size, self._epoch, self._number = seed, size, epoch, number
        self._key = derive(seed, "shuffle", "buffer", epoch)

    def draw(self, count: int) -> NDArray[np.int64]:
        first, self._number = self._number, self._number + count
        return self._between(first, self._number)

    def flush(self, occupied: NDArray[np.int64]) -> NDArray[np.int64]:
        count = len(occupied)
        order = Permutation(derive(self._seed, "shuffle", "flush", self._epoch), max(1, count))
        return occupied[order.at(range(count))]

    def go(self, number: int) -> NDArray[np.int64]:
        """Go to an input; the result is which input each slot holds before it, or -1."""
        size, self._number = self._size, number
        held = np.full(size, -1)
        stop = number
        while stop > size and (held < 0).any():
            begin = max(size, stop - 4 * size - 1024)
            last = np.full(size, -1)
            last[self._between(begin, stop)] = np.arange(begin, stop)
            held = np.where(held < 0, last, held)
            stop = begin
        filled = np.arange(size)
        return np.where((held < 0) & (filled < number), filled, held)

    def _between(self, start: int, stop: int) -> NDArray[np.int64]:
        size = self._size
        drawn = draws(self._key, max(start, size), max(stop, size), size)
        return drawn if start >= size else np.append(np.arange(start, min(stop, size)), drawn)


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
        name: of the stage, for errors.
        upstream: what is shuffled.
        size: items held.
        slots: from the epoch, the number of an input and the mark there, which
            it checks, to the slots from there on.
        first: the mark before the first input.
    """

    def __init__(
        self,
        name: str,
        upstream: Machine[Any],
        size: int,
        slots: Callable[..., Slots],
        first: tuple[int, ...] = (),
    ) -> None:
        self.name, self.upstream, self.size = name, upstream, size
        self.slots, self.first = slots, first
        self.block = min(max(size, 256), 1 << 16)
        # That an item stays for longer has a chance below exp(-50).
        self._longest = 2 * self.block + size * (math.ceil(math.log(size)) + 51)

    def machine(self) -> Machine[Any]:
        upstream = self.upstream
        return machine(
            init=lambda epoch: (upstream.init(epoch), 0, 0, *self.first),
            epoch=lambda position: upstream.epoch(position[0]),
            flow=self.flow,
            length=upstream.length,
        )

    def flow(self, position: Position) -> Flow[Any]:
        anchor, start, given, *mark = position
        name = self.name
        within(name, given, _MOST), within(name, start, given)
        slots = self.slots(self.upstream.epoch(anchor), start, *mark)
        is_hashed = isinstance(slots, HashedSlots)
        if is_hashed:
            within(name, given - start, self._longest)
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
            used = [item is not _MISSING for item in buffer] if free else np.ones(self.size)
            occupied = np.flatnonzero(used)
            flushed = max(0, given - max(0, held.arrived - lead))
            if flushed > len(occupied):
                raise SourceChanged(
                    f"{name}: the state stands after item {given} of what now has {held.arrived}"
                )
            rest = slots.flush(occupied)[flushed:].tolist()
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
        mark: tuple[int, ...],
        target: int,
    ) -> _Held:
        """What was held after so many inputs, or at the end of the stream."""
        marks, upstream = {start: (anchor, mark)}, self.upstream
        if not isinstance(slots, HashedSlots):
            return self._replayed(slots, flow, start, target, marks)
        if not target:
            return self._filled(slots, flow, marks)
        if upstream.skip is not None and upstream.length is not None:
            return self._looked_up(slots, anchor, start, target, marks)
        held = self._replayed(slots, flow, start, target, marks)
        if start and held.arrived == target and (held.inputs < 0).any():
            raise _too_late(start)
        return held

    def _filled(self, slots: HashedSlots, flow: Flow[Any], marks: _Marks) -> _Held:
        stream = iter(flow)
        buffer = list(islice(stream, self.size))
        arrived = len(buffer)
        if arrived < self.size:
            stream = iter(())
            buffer += [_MISSING] * (self.size - arrived)
        return _Held(buffer, slots.go(arrived), arrived, stream, flow.snapshot, marks)

    def _replayed(
        self, slots: Slots, flow: Flow[Any], start: int, target: int, marks: _Marks
    ) -> _Held:
        stream, arrived = iter(flow), start
        buffer, inputs = [_MISSING] * self.size, np.full(self.size, -1)
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
                marks[arrived] = flow.snapshot(), slots.mark
        return _Held(buffer, inputs, arrived, stream, flow.snapshot, marks)

    def _looked_up(
        self, slots: HashedSlots, anchor: Position, start: int, target: int, marks: _Marks
    ) -> _Held:
        """Over random access only the items held are read."""
        upstream, jump = self.upstream, self.upstream.skip
        assert jump is not None
        here, passed = jump(anchor, target - start)
        arrived = start + passed
        inputs = slots.go(arrived)
        held = inputs[: min(arrived, self.size)] - start
        oldest = int(held.min(initial=arrived - start))
        if oldest < 0:
            raise _too_late(start)
        if upstream.view is None:
            buffer = [upstream.step(jump(anchor, int(t))[0])[1] for t in held]
        else:
            get, rows = upstream.view.table.get, upstream.view.table.rows
            places = as_array(upstream.view.ahead(anchor, held))
            buffer = [get(i) for i in places.tolist()] if rows is None else rows(places)
        first = start + max(0, oldest - self.block - 1)
        for mark in range(_next(first, self.block) + 1, arrived + 1, self.block):
            if mark > self.size:
                marks[mark] = jump(anchor, mark - start)[0], ()
        flow = upstream.flow(here)
        buffer += [_MISSING] * (self.size - len(buffer))
        return _Held(buffer, inputs, arrived, iter(flow), flow.snapshot, marks)


class _Held(NamedTuple):
    """A buffer, and how it goes on.

    - `items`, `inputs`: what each slot holds, and which input that is
    - `arrived`: inputs read; `stream`: the rest of them; `snapshot`: the place there
    - `marks`: places that a state may begin at, by the number of the input there
    """

    items: list[Any]
    inputs: NDArray[np.int64]
    arrived: int
    stream: Iterator[Any]
    snapshot: Callable[[], Position]
    marks: _Marks

    def oldest_mark(self) -> tuple[int, Position, tuple[int, ...]]:
        """The last mark that is no later than any input held; those before it are dropped."""
        known = self.inputs[self.inputs >= 0]
        oldest = int(known.min(initial=_MOST))
        start = max(mark for mark in self.marks if mark <= oldest)
        for mark in [mark for mark in self.marks if mark < start]:
            del self.marks[mark]
        return start, *self.marks[start]


def _too_late(start: int) -> InvalidState:
    return InvalidState(f"shuffle: a state that begins at item {start} lacks some of the buffer")


def held_again(position: Position, upstream: Machine[Any], size: int) -> list[Again]:
    """What a resume reads: the items held, or over a stream all from the oldest one's anchor on."""
    anchor, start, given = position
    if not given:
        return [Again(anchor)]
    if upstream.skip is None or upstream.length is None:
        return [Again(anchor, size + given - start)]
    here, _ = upstream.skip(anchor, size + given - start)
    return [Again(here), Again(anchor, min(size, upstream.length), alone=True)]


def _next(number: int, step: int) -> int:
    """The first multiple of a step that is more than a number."""
    return number - number % step + step

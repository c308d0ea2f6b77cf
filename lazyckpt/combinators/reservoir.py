"""The streaming shuffle: a buffer whose contents are a function of a counter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain, islice
from operator import length_hint
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.machine import Flow, Machine, Position, machine, within
from lazyckpt.core.prng import Permutation, as_array, derive, draws
from lazyckpt.core.registry import Again
from lazyckpt.errors import InvalidState, SourceChanged

_MOST = 1 << 62  # inputs
_MISSING: Any = object()
_AT_ONCE = 1 << 13  # draws, which so stay in the processor's cache


class Reservoir:
    """A streaming shuffle whose buffer is a function of a counter.

    Input t goes to slot t while there are free ones, then to slot draw(t),
    whose occupant is output t - size. So what a slot holds before input t is
    the last input before t that drew it, and the state is (upstream's position
    at input `start`, `start`, outputs given), where `start` is no later than
    the oldest input held. Inputs are cut in blocks; `start` is chosen at the
    first input of each block, and is the second input of a block or 0, so that
    it depends on the counter alone.
    """

    def __init__(self, upstream: Machine[Any], size: int, seed: int) -> None:
        self.upstream = upstream
        self.size = size
        self.seed = seed
        self.block = min(max(size, 256), 1 << 16)
        # That an item stays for longer has a chance below exp(-50).
        self._longest = 2 * self.block + size * (math.ceil(math.log(size)) + 51)

    def machine(self) -> Machine[Any]:
        upstream = self.upstream
        return machine(
            init=lambda epoch: (upstream.init(epoch), 0, 0),
            epoch=lambda position: upstream.epoch(position[0]),
            flow=self.flow,
            length=upstream.length,
        )

    def flow(self, position: Position) -> Flow[Any]:
        anchor, start, given = position
        within("shuffle", given, _MOST), within("shuffle", start, given)
        within("shuffle", given - start, self._longest)
        before = self.upstream.flow(anchor)
        epoch = self.upstream.epoch(anchor)
        key = derive(self.seed, "shuffle", "buffer", epoch)
        ticks: Iterator[int] = iter(())
        ahead = given  # outputs that will have been given when ticks run out

        def outputs() -> Iterator[Any]:
            nonlocal anchor, start, ticks, ahead
            buffer, arrived, stream, snapshot, marks = self._resumed(
                key, before, anchor, start, given
            )

            def slots() -> Iterator[Iterator[int]]:
                """Draws, many at once; they are asked for when their first input has been read."""
                nonlocal anchor, start, ticks, ahead
                first = arrived
                held = self._holding(key, arrived)
                while True:
                    if first % self.block == 0:
                        marks[first + 1] = snapshot()
                        oldest = int(held.min()) if first > self.size else 0
                        start = max(mark for mark in marks if mark <= oldest)
                        anchor = marks[start]
                        for mark in [mark for mark in marks if mark < start]:
                            del marks[mark]
                    stop = min(_next(first, self.block), _next(first, _AT_ONCE))
                    drawn = draws(key, first, stop, self.size)
                    held[drawn] = np.arange(first, stop)  # of equal draws the last one stays
                    ticks, ahead = iter(drawn.tolist()), stop - self.size
                    yield ticks
                    first = stop

            if len(buffer) == self.size:
                for item, slot in zip(stream, chain.from_iterable(slots()), strict=False):
                    yield buffer[slot]
                    buffer[slot] = item
            passed = ahead - length_hint(ticks)
            flushed = max(0, given - (arrived - len(buffer)))
            if flushed > len(buffer):
                raise SourceChanged(
                    f"shuffle: the state stands after item {given} of what now has {arrived}"
                )
            order = Permutation(derive(self.seed, "shuffle", "flush", epoch), max(1, len(buffer)))
            rest = order.at(range(len(buffer)))[flushed:].tolist()
            ticks, ahead = iter(rest), passed + len(rest)
            for slot in ticks:
                yield buffer[slot]

        def reached() -> Position:
            return anchor, start, ahead - length_hint(ticks)

        return Flow(outputs(), reached, taken=lambda: ahead - length_hint(ticks) - given)

    def _resumed(
        self, key: int, flow: Flow[Any], anchor: Position, start: int, given: int
    ) -> tuple[list[Any], int, Iterator[Any], Callable[[], Position], dict[int, Position]]:
        """The buffer as it was, inputs read, the rest of them, and positions to anchor at."""
        marks = {start: anchor}
        if given and self.upstream.skip is not None and self.upstream.length is not None:
            return self._looked_up(key, anchor, start, given, marks)
        stream = iter(flow)
        if start:
            buffer, arrived = [_MISSING] * self.size, start
        else:
            buffer = list(islice(stream, self.size))
            arrived = len(buffer)
        target = self.size + given if given else 0
        while arrived < target and len(buffer) == self.size:
            if arrived % self.block == 0:
                stop = arrived + 1
            else:
                stop = min(target, _next(arrived, self.block))
            before = arrived
            slots = draws(key, arrived, stop, self.size).tolist()
            for slot, item in zip(slots, islice(stream, stop - arrived), strict=False):
                buffer[slot] = item
                arrived += 1
            if arrived < stop:
                break
            if before % self.block == 0:
                marks[arrived] = flow.snapshot()
        if start and arrived == target and any(item is _MISSING for item in buffer):
            raise _too_late(start)
        return buffer, arrived, stream, flow.snapshot, marks

    def _looked_up(
        self, key: int, anchor: Position, start: int, given: int, marks: dict[int, Position]
    ) -> tuple[list[Any], int, Iterator[Any], Callable[[], Position], dict[int, Position]]:
        """The same over random access: only the items held are read."""
        upstream, jump = self.upstream, self.upstream.skip
        assert jump is not None
        here, passed = jump(anchor, self.size + given - start)
        arrived = start + passed
        held = self._holding(key, arrived) - start
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
                marks[mark] = jump(anchor, mark - start)[0]
        flow = upstream.flow(here)
        return buffer, arrived, iter(flow), flow.snapshot, marks

    def _holding(self, key: int, arrived: int) -> NDArray[np.int64]:
        """For each slot the number of the input in it, `arrived` inputs having been read."""
        size = self.size
        if arrived <= size:
            return np.arange(arrived)
        held = np.full(size, -1)
        stop = arrived
        while stop > size and (held < 0).any():
            begin = max(size, stop - 4 * size - 1024)
            last = np.full(size, -1)
            last[draws(key, begin, stop, size)] = np.arange(begin, stop)
            held = np.where(held < 0, last, held)
            stop = begin
        return np.where(held < 0, np.arange(size), held)


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

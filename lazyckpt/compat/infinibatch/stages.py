"""The stages under Infinibatch's iterators that draw as `random.Random` does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain, groupby, islice
from operator import length_hint
from random import Random
from typing import Any

import numpy as np

from lazyckpt.compat.infinibatch.sources import shrunk
from lazyckpt.compat.infinibatch.twister import Seed, Tracked, Words
from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import Machine, within
from lazyckpt.core.stages import machine
from lazyckpt.pipeline import combinator

_EMPTY: Any = object()


@combinator(listed=False, free=("origin",))
def infinibatch_random_map(
    upstream: Machine[Any], fn: Callable[[Random, Any], Any], seed: Seed, origin: int
) -> Machine[Any]:
    """`fn(random, item)` for every item, with one generator for all.

    State: the generator's place; where `fn` gives it another seed, all its words.
    """

    def flow(position: Position) -> Flow[Any]:
        before, origin, words, gauss = position
        items = upstream.flow(before)
        tracked: Tracked | None = None

        def made() -> Iterator[Any]:
            nonlocal tracked
            tracked = Tracked(seed, origin, words, gauss)
            random = tracked.random
            for item in items:
                yield fn(random, item)

        def snapshot() -> Position:
            place = (origin, words, gauss) if tracked is None else tracked.place()
            return items.snapshot(), *place

        return Flow(made(), snapshot)

    return machine(
        init=lambda epoch: (upstream.init(epoch), origin, 0, 0),
        epoch=lambda position: upstream.epoch(position[0]),
        flow=flow,
        length=upstream.length,
    )


@combinator(listed=False, free=("origin",))
def infinibatch_blocks(
    upstream: Machine[Any], block_size: int, seed: Seed, origin: int
) -> Machine[Any]:
    """The items of consecutive blocks, each block shuffled.

    State: the place before the current block, the generator's there, and a count
    of its items given. Resume: reads one block again.
    """
    return _sections(upstream, block_size, lambda items: items, seed, origin)


@combinator(listed=False, free=("origin",))
def infinibatch_buckets(
    upstream: Machine[Any],
    read_ahead: int,
    key: Callable[[Any], Any] | None,
    batch_size: int | Callable[[Any], Any],
    boundary_key: Callable[[Any], Any] | None,
    shuffle: bool,
    seed: Seed,
    origin: int,
) -> Machine[list[Any]]:
    """Batches of items alike, out of sections of `read_ahead` items.

    State: the place before the current section, the generator's there, and a
    count of its batches given. Resume: reads one section again.
    """

    def cut(items: list[Any]) -> list[list[Any]]:
        if key:
            items.sort(key=key, reverse=True)
        if not boundary_key:
            return list(_cut(items, batch_size))
        runs = (list(run) for _, run in groupby(items, _never_none(boundary_key)))
        return [batch for run in runs for batch in _cut(run, batch_size)]

    return _sections(upstream, read_ahead, cut, seed if shuffle else _EMPTY, origin)


def _cut(items: list[Any], size: int | Callable[[Any], Any]) -> Iterator[list[Any]]:
    at, total = 0, len(items)
    while at < total:
        wanted = size(items[at]) if callable(size) else size
        stop = at + max(1, math.ceil(min(wanted, total)))
        yield items[at:stop]
        at = stop


def _never_none(key: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def checked(item: Any) -> Any:
        found = key(item)
        if found is None:
            raise ValueError(f"boundary_key must not give None, and it does for {item!r}")
        return found

    return checked


def _sections(
    upstream: Machine[Any],
    size: int,
    made: Callable[[list[Any]], list[Any]],
    seed: Any,
    origin: int,
) -> Machine[Any]:
    """What is made of consecutive sections of items, shuffled within each."""

    def flow(position: Position) -> Flow[Any]:
        anchor, origin, place, given = position
        within("a section", place, math.inf), within("a section", given)
        before = upstream.flow(anchor)
        some: list[Any] = []
        ticks: Iterator[Any] = iter(some)
        passed = 0  # items of the sections before

        def sections() -> Iterator[Iterator[Any]]:
            nonlocal anchor, place, given, some, ticks, passed
            words = None if seed is _EMPTY else Words(seed, origin, place)
            stream, here = iter(before), anchor
            while items := list(islice(stream, size)):
                outputs = made(items)
                start = place if words is None else words.drawn
                if words is not None:
                    words.shuffle(outputs)
                if given > len(outputs):
                    raise shrunk(given, len(outputs))
                begun: Any = iter(outputs)
                begun.__setstate__(given)
                passed += len(some) - given
                anchor, place, some, ticks, given = here, start, outputs, begun, 0
                yield ticks
                here = before.snapshot()
            if given:
                raise shrunk(given, 0)
            anchor, some, passed = before.snapshot(), [], passed + len(some)
            place = place if words is None else words.drawn

        def snapshot() -> Position:
            return anchor, origin, place, index() if some else given

        def index() -> int:
            return len(some) - length_hint(ticks)

        return Flow(chain.from_iterable(sections()), snapshot, taken=lambda: passed + index())

    return machine(
        init=lambda epoch: (upstream.init(epoch), origin, 0, 0),
        epoch=lambda position: upstream.epoch(position[0]),
        flow=flow,
    )


@combinator(listed=False, free=("origin",))
def infinibatch_reservoir(
    upstream: Machine[Any], buffer_size: int, seed: Seed, origin: int
) -> Machine[Any]:
    """A streaming shuffle: each item takes a random slot, and what was there is given.

    State: the place before an item not later than the oldest in the buffer, that
    item's number, the generator's place there, items read, and a count of those
    given at the end. Resume: reads again from that item, about 12 buffers.
    """
    block = min(max(buffer_size, 256), 1 << 16)

    def flow(position: Position) -> Flow[Any]:
        anchor, origin, start, place, arrived, flushed = position
        for number in (start, place, arrived, flushed):
            within("BufferedShuffleIterator", number, math.inf)
        before = upstream.flow(anchor)
        taken: Callable[[], int] = lambda: 0  # noqa: E731  # replaced when reading begins
        base = arrived
        rest: Iterator[int] = iter(())
        left = 0

        def outputs() -> Iterator[Any]:
            nonlocal anchor, start, place, base, taken, rest, left
            buffer: list[Any] = [_EMPTY] * buffer_size
            held = np.full(buffer_size, -1)  # the number of the item in each slot
            words = Words(seed, origin, place)
            marks: dict[int, tuple[Position, int]] = {start: (anchor, place)}
            base, goal = start, arrived
            stream, taken = counted(before)
            number = start
            ended = False
            while not ended:
                if number % block == 0 and number:
                    marks[number] = before.snapshot(), words.drawn
                    full = held[held >= 0]
                    oldest = int(full.min()) if number >= goal else -1
                    if oldest >= 0:
                        start = max(mark for mark in marks if mark <= oldest)
                        anchor, place = marks[start]
                        for mark in [mark for mark in marks if mark < start]:
                            del marks[mark]
                stop = number - number % block + block
                if number < goal:
                    stop = min(stop, goal)
                slots = words.below(buffer_size, stop - number)
                replays = number < goal
                for slot, item in zip(slots.tolist(), stream, strict=False):
                    out, buffer[slot] = buffer[slot], item
                    if out is not _EMPTY and not replays:
                        yield out
                read = base + taken()
                ended = read < stop
                held[slots[: read - number]] = np.arange(number, read)
                number = read
            if number < goal:
                raise shrunk(goal, number)
            final = [slot for slot in range(buffer_size - 1, -1, -1) if buffer[slot] is not _EMPTY]
            if flushed > len(final):
                raise shrunk(goal + flushed, number + len(final))
            left = len(final)
            rest = iter(final[flushed:])
            for slot in rest:
                yield buffer[slot]

        def snapshot() -> Position:
            given = left - length_hint(rest) if left else flushed
            return anchor, origin, start, place, base + taken(), given

        return Flow(outputs(), snapshot)

    return machine(
        init=lambda epoch: (upstream.init(epoch), origin, 0, 0, 0, 0),
        epoch=lambda position: upstream.epoch(position[0]),
        flow=flow,
        length=upstream.length,
    )

"""A streaming shuffle by slots drawn one after another; Infinibatch's order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import numpy as np

from lazyckpt.compat.infinibatch.mersenne import Seed, Words, check_place, origin_of, seedable
from lazyckpt.core.checks import positive
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.iterators import iterate, remaining
from lazyckpt.core.machine import Machine, Rate, Reread, within
from lazyckpt.core.stages import stateful
from lazyckpt.decorators import combinator
from lazyckpt.errors import SourceChanged

_NAME = "BufferedShuffleIterator"
_MISSING: Any = object()
_AT_ONCE = 1 << 13  # draws, which so stay in the processor's cache
_MOST = 1 << 62  # inputs


@combinator(registered=False, checks={"buffer_size": positive, "seed": seedable})
def infinibatch_reservoir(upstream: Machine[Any], buffer_size: int, seed: Seed) -> Machine[Any]:
    """A streaming shuffle whose buffer is a function of the slots drawn.

    An input goes to the slot drawn for it, whose occupant, if there is one, is
    the next output. So a slot holds the last input that drew it, and the state
    is (upstream's position at input `start`, `start`, a count, the place of the
    generator there), where `start` is no later than the oldest input held. The
    count is of inputs, and at the end of those flushed too. Inputs are cut in
    blocks; `start` is chosen at the first input of each block, and is the second
    input of a block or 0, so that it depends on the count alone.

    Args:
        upstream: The machine before it.
        buffer_size: How many items are held.
        seed: The seed of the `random.Random` that draws slots.
    """
    block = min(max(buffer_size, 256), 1 << 16)

    def check(start: Any, count: Any, *mark: Any) -> None:
        within(_NAME, count, _MOST), within(_NAME, start, count)
        check_place(*mark)

    def flow(position: Position) -> Flow[Any]:
        anchor, start, count, *mark = position
        before, words = upstream.flow(anchor), Words(seed, *mark)
        ticks: Iterator[int] = iterate(())
        ahead: int = count  # the count when ticks run out

        def drawn() -> Iterator[Iterator[int]]:
            """Slots, many at once; they are asked for when their first input has been read."""
            nonlocal anchor, start, mark, ticks, ahead
            inputs = np.full(buffer_size, _MOST)  # of each slot, that which it holds
            places = {start: (anchor, mark)}  # where a state may begin
            first = start
            while True:
                opens = first > 0 and first % block == 0
                stop = first + 1 if opens else min(first - first % block + block, first + _AT_ONCE)
                slots = words.below(buffer_size, stop - first)
                if opens:
                    places[stop] = before.snapshot(), [*words.mark]
                    start = max(place for place in places if place <= inputs.min())
                    anchor, mark = places[start]
                    places = {place: places[place] for place in places if place >= start}
                inputs[slots] = np.arange(first, stop)  # of equal ones the last stays
                ticks, ahead = iterate(slots.tolist()), stop
                yield ticks
                first = stop

        def reached() -> int:
            return ahead - remaining(ticks)

        def outputs() -> Iterator[Any]:
            nonlocal ticks, ahead
            ahead = start
            held = [_MISSING] * buffer_size
            arriving = zip(before, chain.from_iterable(drawn()), strict=False)
            for item, slot in islice(arriving, count - start):
                held[slot] = item
            for item, slot in arriving:
                found, held[slot] = held[slot], item
                if found is not _MISSING:
                    yield found
            arrived = reached()
            left = [slot for slot, item in enumerate(held) if item is not _MISSING]
            flushed = max(0, count - arrived)
            if flushed > len(left):
                raise SourceChanged(
                    f"{_NAME}: the state stands after item {count} of what now has {arrived}"
                )
            rest = left[::-1][flushed:]
            ticks, ahead = iterate(rest), arrived + len(left)
            for slot in ticks:
                yield held[slot]

        return Flow(outputs(), lambda: (anchor, start, reached(), *mark))

    return stateful(
        _NAME,
        upstream,
        first=(0, 0, origin_of(seed), 0),
        check=check,
        rate=Rate(1, buffer_size),
        rereads=lambda position: [Reread(position[0], position[2] - position[1])],
        flow=flow,
        length=upstream.length,
    )

"""`exclude`: drop ranges of items."""

from __future__ import annotations

import math
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, islice, pairwise
from operator import index, sub
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from lazyckpt.core.checks import Unfit, brief, is_integer
from lazyckpt.core.flow import Flow, Position, View, counted
from lazyckpt.core.machine import MOST, End, Machine, Rate, within
from lazyckpt.core.prng import Indices, affine, as_array
from lazyckpt.core.registry import Elastic
from lazyckpt.core.stages import stateful
from lazyckpt.decorators import combinator
from lazyckpt.errors import ArgumentError, InvalidState
from lazyckpt.state.state import State

A = TypeVar("A")

ItemRange: TypeAlias = tuple[int, int] | tuple[State, State] | range


Spans: TypeAlias = tuple[tuple[int, int], ...]

_EXPECTED = "a list of (start, stop): item numbers, or states of the pipeline so far"


class _Between(tuple[int, int]):
    """The range of items between two states."""

    states: tuple[State, ...] = ()


def _ranges(value: Any) -> Spans:
    """Check the argument; return the ranges in rising order, as pairs of ints."""
    if not isinstance(value, (list, tuple)):
        raise Unfit(_EXPECTED)
    found = sorted(map(_range, value))
    for one, other in pairwise(found):
        if one[1] > other[0]:
            both = one[0], max(one[1], other[1])
            raise Unfit(f"ranges that don't overlap, such as {both} for {one} and {other}")
    return tuple(found)


def _range(value: Any) -> tuple[int, int]:
    pair = value
    if isinstance(value, range) and value.step == 1:
        pair = value.start, value.stop
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise Unfit(_EXPECTED)
    if pair[1] is None:
        raise Unfit(f"ranges that end; take({brief(pair[0])}) drops everything from there on")
    if all(isinstance(each, State) for each in pair):
        found = _Between(map(_number, pair))
        found.states = tuple(pair)
    elif all(map(is_integer, pair)):
        found = _Between(map(index, pair))
    else:
        raise Unfit(_EXPECTED)
    start, stop = found
    if not 0 <= start < stop <= MOST:
        raise Unfit(f"ranges with 0 <= start < stop, not {(start, stop)}")
    return found if found.states else (start, stop)


def _number(state: State) -> int:
    """Return the number of items that the state's pipeline had yielded."""
    found = state.own_items
    if found is None:
        raise Unfit("states with a known item number; a state after rebase may have none")
    return found


class _Kept:
    """The items that are kept, as numbers of upstream's items and as numbers of output items."""

    def __init__(self, ranges: Spans) -> None:
        firsts, lasts = {start for start, _ in ranges}, {stop for _, stop in ranges}
        # Adjacent ranges are merged.
        self.starts, self.stops = sorted(firsts - lasts), sorted(lasts - firsts)
        sizes = map(sub, self.stops, self.starts)
        self.gone: list[int] = [0, *accumulate(sizes)]  # before each range, and in all
        before = zip(self.starts, self.gone, strict=False)
        self.given = [start - gone for start, gone in before]  # before each range

    def end(self, number: int) -> int:
        """Return where the range ends that contains an item; the item's own number if none does."""
        place = bisect_right(self.starts, number) - 1
        return max(number, self.stops[place]) if place >= 0 else number

    def following(self, number: int) -> int:
        """Return where the next range begins."""
        place = bisect_left(self.starts, number)
        return self.starts[place] if place < len(self.starts) else sys.maxsize

    def count(self, number: int) -> int:
        """Return how many of the first `number` items are kept."""
        place = bisect_left(self.starts, number)
        gone = self.gone[place]
        if place and number < self.stops[place - 1]:
            gone -= self.stops[place - 1] - number
        return number - gone

    def number(self, given: int) -> int:
        """Return the upstream number of an item, from its number among those that are kept."""
        return given + self.gone[bisect_right(self.given, given)]

    def numbers(self, given: Indices) -> Indices:
        """Return the upstream numbers of several items."""
        if isinstance(given, range) and given:
            first, last = self.number(given[0]), self.number(given[-1])
            if last - first == given[-1] - given[0]:
                return affine(given, first - given[0])
        places = as_array(given)
        found: Indices = (
            places + np.asarray(self.gone)[np.searchsorted(self.given, places, side="right")]
        )
        return found


@combinator(
    keeps_items=True,
    checks={"ranges": _ranges},
    elastic=Elastic(changes={"ranges": "here"}, inserted=lambda number: (number,)),
)
def exclude(upstream: Machine[A], ranges: Sequence[ItemRange]) -> Machine[A]:
    """Drop ranges of items, for example the steps before a loss spike.

    Numbers count the items before this stage, from the beginning of an epoch; after `repeat`,
    over the whole stream. To drop steps of a training loop, put it after `batch`, as the last
    stage.

    `rebase` adds the stage, or more ranges, to a running experiment. Ranges that were already
    passed have no effect. If the position is within a range, the rest of that range is dropped.

    Args:
        ranges: Pairs `(start, stop)` of item numbers, as tuples or ranges; or pairs of states of
            the pipeline before this stage, to drop the items between them.
            `lazyckpt.seen(pipeline, n).ranges(file=...)` returns the ranges, among the first n
            items, that contain a file, a record or an item of the data.

    Raises:
        ArgumentError: If ranges overlap, or are beyond a known end; or if states don't belong to
            the pipeline before this stage, as far as random access or their form shows.

    State:
        A count of upstream's items.

    Resume:
        Re-reads nothing.

    Random access:
        Kept; dropped items are not read. Without random access they are read and dropped.

    Rank-invariant:
        Yes.

    >>> import lazyckpt as lz
    >>> list(lz.source(range(10)) | lz.exclude([(2, 5), range(8, 9)]))
    [0, 1, 5, 6, 7, 9]
    >>> steps = lz.source(range(100)) | lz.repeat() | lz.batch(4)
    >>> kept = steps | lz.exclude([(lz.state_at(steps, 1200), lz.state_at(steps, 1220))])
    >>> kept[1199] == steps[1199], kept[1200] == steps[1220]
    (True, True)
    """
    spans = cast(Spans, ranges)
    kept = _Kept(spans)
    jump, view, known = upstream.skip, upstream.view, upstream.length
    _check_fit(upstream, spans)
    alone: Any = upstream.item

    def step(position: Position) -> tuple[Position, A]:
        before, number = position
        stop = kept.end(number)
        if jump is not None and stop > number:
            before, passed = jump(before, stop - number)
            number += passed
        while True:
            try:
                before, item = upstream.step(before)
            except End as end:
                raise End((end.position, number)) from None
            number += 1
            if number > stop:
                return (before, number), item

    def flow(position: Position) -> Flow[A]:
        before, base = position
        items = upstream.flow(before)
        stream, taken = counted(items)

        def parts() -> Iterator[Iterator[A]]:
            nonlocal items, stream, taken, base
            while True:
                number = base + taken()
                stop = kept.end(number)
                if stop > number and jump is not None:
                    before, passed = jump(items.snapshot(), stop - number)
                    items = upstream.flow(before)
                    stream, taken = counted(items)
                    base = number + passed
                elif stop > number:
                    for _ in islice(stream, stop - number):
                        pass
                start = kept.following(stop)
                yield islice(stream, start - stop)
                if base + taken() < start:
                    return

        return Flow(chain.from_iterable(parts()), lambda: (items.snapshot(), base + taken()))

    def target(number: int, n: int) -> int:
        """Return the upstream number of the item n items further on."""
        return kept.number(kept.count(number) + n)

    def skip(position: Position, n: int) -> tuple[Position, int]:
        assert jump is not None
        before, number = position
        if not n:
            return position, 0
        after, passed = jump(before, target(number, n - 1) + 1 - number)
        given = kept.count(number + passed) - kept.count(number)
        return (after, number + passed), given

    def ahead(position: Position, offsets: Indices) -> Indices:
        assert view is not None
        before, number = position
        wanted = kept.numbers(affine(offsets, kept.count(number)))
        return view.ahead(before, affine(wanted, -number))

    return stateful(
        "exclude",
        upstream,
        # It may be above the length: the epoch had more items before a change of the batch size.
        check=lambda number: within("exclude", number, MOST),
        rate=Rate() if jump is not None else Rate(1, kept.gone[-1]),
        step=step,
        flow=flow,
        skip=jump and skip,
        item=lambda position, n: alone(position[0], target(position[1], n) - position[1]),
        length=known if known is None or known == math.inf else kept.count(int(known)),
        view=view and View(view.table, ahead),
    )


def _check_fit(upstream: Machine[Any], ranges: Spans) -> None:
    """Raise an error for ranges beyond the end, and for states that aren't upstream's."""
    length = upstream.length
    if ranges and length is not None and ranges[-1][1] > length:
        raise ArgumentError(
            f"exclude: {brief(ranges[-1])} is beyond the end, of {int(length):,} items per epoch; "
            "numbers count within an epoch; put repeat() before it to count the whole stream"
        )
    for between in ranges:
        if isinstance(between, _Between):
            for number, state in zip(between, between.states, strict=True):
                _check_state(upstream, number, state)


def _check_state(upstream: Machine[Any], number: int, state: State) -> None:
    try:
        upstream.check(state.position)
        epoch = upstream.epoch(state.position)
    except (InvalidState, TypeError, ValueError, IndexError):
        raise _foreign(state) from None
    if epoch:
        raise ArgumentError(
            f"exclude: the state after {state.items:,} items is in epoch {epoch}, but numbers "
            "count within an epoch; put repeat() before it"
        )
    if upstream.skip is not None:
        position, passed = upstream.skip(upstream.init(0), number)
        if passed < number or position != state.position:
            raise _foreign(state)


def _foreign(state: State) -> ArgumentError:
    return ArgumentError(
        f"exclude: the state after {state.items:,} items doesn't belong to the pipeline before "
        "this stage; pass states of that pipeline"
    )

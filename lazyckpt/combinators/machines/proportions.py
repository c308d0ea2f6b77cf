"""Choose the next source, at random or in exact proportions, as a function of an index."""

from __future__ import annotations

import heapq
import math
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate, chain
from operator import add
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import Unfit, brief, weighing
from lazyckpt.core.iterators import end, iterate, remaining
from lazyckpt.core.prng import hashed, hashes
from lazyckpt.errors import PipelineError

Weights = tuple[float, ...]
Scheduled = Callable[[int], Sequence[float]]  # functions of the number of items so far

# Function from an index t and a number n to a number of indices from t on, at most n, between
# which the weights are linear; and to the weights at the first and at the last of them.
Ends: TypeAlias = Callable[[int, int], tuple[int, Weights, Weights]]

_LONGEST = 1 << 16  # choices in a stored pattern
_BITS = 10  # of a draw, by which a table knows most choices
_CHUNK, _MANY = 1 << 12, 1 << 14  # choices computed per call, one by one and for many
_BEYOND = 2.0**64
_MARGIN = 1 << 32  # larger than the rounding error of a bound


class Choices(NamedTuple):
    """Functions that choose sources, by number.

    Attributes:
        one: Function from an index to the source chosen there.
        some: Function from an index and n to the sources chosen from there on, between 1 and n.
    """

    one: Callable[[int], int]
    some: Callable[[int, int], NDArray[np.int64]]


class Draws:
    """An iterator over the choices from an index on; `take` returns many in one call.

    >>> draws = Draws(Proportions([(0, (3, 1))]).choices(), 0)
    >>> numbers = iter(draws)
    >>> next(numbers), draws.take(3).tolist(), next(numbers)
    (0, [0, 1, 0], 0)
    """

    def __init__(self, choices: Choices, index: int) -> None:
        self._block = iterate(list[int]())
        self.restart(choices, index)

    def restart(self, choices: Choices | None, index: int) -> None:
        """Continue from an index with different choices, or without any."""
        end(self._block)
        self._choices, self._index = choices, index
        self._known, self._read, self._size = np.empty(0, np.int64), 0, 1

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._blocks())

    def _blocks(self) -> Iterator[Iterator[int]]:
        while self._choices is not None:
            self._block = iterate(self._next(self._size).tolist())
            self._size = min(8 * self._size, _CHUNK)
            yield self._block

    def last(self) -> tuple[int, int]:
        """Return the index of the next choice, and the choice before it; -1 if none is known."""
        left = len(self._known) - self._read + remaining(self._block)
        is_known = left < len(self._known)
        return self._index - left, int(self._known[-left - 1]) if is_known else -1

    def take(self, n: int) -> NDArray[np.int64]:
        """Return the next choices: between 1 and n."""
        self._read -= remaining(self._block)
        end(self._block)
        self._size = 1
        return self._next(n, _MANY)

    def _next(self, n: int, ahead: int = _CHUNK) -> NDArray[np.int64]:
        assert self._choices is not None
        if self._read == len(self._known):
            self._known, self._read = self._choices.some(self._index, ahead), 0
            self._index += len(self._known)
        found = self._known[self._read : self._read + n]
        self._read += len(found)
        return found


def weights_of(value: Any) -> Weights:
    """Return weights with a finite sum, ints if they are whole; raise `Unfit` for invalid ones."""
    found = weighing(value)
    if math.isinf(sum(map(float, found))):
        raise Unfit("finite numbers >= 0 with a finite sum")
    return found


def random_choices(
    weights: Weights | Scheduled, width: int, key: int, dropped: int = 0, ends: Ends | None = None
) -> Choices:
    """Choose at random: choice t is a function of `key`, t, the weights at t and `dropped`.

    Args:
        weights: The weights, or a function from t to them.
        width: Number of sources.
        key: Key of the random numbers.
        dropped: One bit per source that no longer takes part, the lowest for source 0.
        ends: For weights that are known in advance: computes many choices in one call.
    """
    if not callable(weights):
        bounds = _bounds(_left(weights, dropped))
        reached = _reached(bounds)
        return Choices(partial(_drawn, bounds, key), lambda t, n: reached(hashes(key, t, t + n)))
    one = partial(_scheduled, weights, width, key, dropped)

    def some(t: int, n: int) -> NDArray[np.int64]:
        n, *known = (1, ()) if ends is None else ends(t, n)
        left = [_left(each, dropped) for each in known]
        if n == 1 or not all(map(any, left)):
            return np.array([one(t)])
        drawn, bounds = hashes(key, t, t + n), [_bounds(each) for each in left]
        # The bounds at every t lie between those at the two ends. Only draws in between need a
        # computation of their own.
        low = [max(min(pair) - _MARGIN, 0) for pair in zip(*bounds, strict=True)]
        high = [max(pair) + _MARGIN for pair in zip(*bounds, strict=True)]
        found = _reached(low)(drawn)
        unsure = (found != _reached(high)(drawn)).nonzero()[0].tolist()
        found[unsure] = [one(t + number) for number in unsure]
        return found

    return Choices(one, some)


def _reached(bounds: list[int]) -> Callable[[NDArray[np.uint64]], NDArray[np.int64]]:
    """Return a function from draws to the number of bounds that are not above each."""
    # A draw is below 2 ** 64.
    edges = np.array([bound for bound in bounds if bound < _BEYOND], np.uint64)
    shift = np.uint64(64 - _BITS)
    begins = np.arange(1 << _BITS, dtype=np.uint64) << shift
    least = np.searchsorted(edges, begins, "right").astype(np.int64)
    is_unsure = least != np.append(least[1:], len(edges))

    def reached(drawn: NDArray[np.uint64]) -> NDArray[np.int64]:
        first = (drawn >> shift).astype(np.intp)
        found, unsure = least[first], is_unsure[first].nonzero()[0]
        found[unsure] = np.searchsorted(edges, drawn[unsure], "right")
        return found

    return reached


def _scheduled(schedule: Scheduled, width: int, key: int, dropped: int, t: int) -> int:
    value = schedule(t)
    try:
        weights = weights_of(value)
    except Unfit as unfit:
        raise PipelineError(f"mix: weights({t}) must be {unfit}, got {brief(value)}") from None
    if len(weights) != width:
        raise PipelineError(f"mix: weights({t}) has {len(weights)} for {width} pipelines")
    left = _left(weights, dropped)
    if not any(left):
        raise PipelineError(
            f"mix: weights({t}) must be above 0 for a pipeline that has not ended, "
            f"got {brief(value)}; pass a weight above 0 for pipelines that may be left"
        )
    return _drawn(_bounds(left), key, t)


def _drawn(bounds: list[int], key: int, t: int) -> int:
    return bisect(bounds, hashed(key, t))


def _left(weights: Weights, dropped: int) -> Weights:
    """Return the weights, with 0 for the sources that have dropped out."""
    if not dropped:
        return weights
    return tuple([0 if dropped >> number & 1 else each for number, each in enumerate(weights)])


def _bounds(weights: Weights) -> list[int]:
    """Divide the 64-bit integers among the sources; return the end of each share."""
    sums = list(accumulate(map(float, weights)))
    return [int(each / sums[-1] * _BEYOND) for each in sums]


class Proportions:
    """Choices that keep each source near its share, at every length, with random access.

    The count of proportions starts from zero at each point, and at the index `since` that the
    methods take.

    Args:
        points: Pairs of an index and the weights from there on; the first index is 0.
    """

    def __init__(self, points: Sequence[tuple[int, Weights]]) -> None:
        self._points = [begin for begin, _ in points]
        self._stops: list[int | float] = [*self._points[1:], math.inf]
        self._rules = [_rule(weights) for _, weights in points]

    def choices(self, since: int = 0) -> Choices:
        def one(t: int) -> int:
            begin, _, rule = self._at(t, since)
            return rule.one(t - begin)

        def some(t: int, n: int) -> NDArray[np.int64]:
            begin, stop, rule = self._at(t, since)
            return rule.some(t - begin, int(min(n, stop - t)))

        return Choices(one, some)

    def counts(self, t: int, since: int = 0) -> list[int]:
        """Return how often each source is chosen at the indices from `since` to t - 1."""
        here, _, last = self._at(t, since)
        found = last.counts(t - here)
        for begin, stop, rule in self._spans(since) if here > since else ():
            if stop <= here:
                found = [*map(add, found, rule.counts(int(stop) - begin))]
        return found

    def index_of(self, number: int, taken: int, since: int = 0) -> int | float:
        """Return the index of a source's choice number `taken` from `since` on, counted from 0."""
        for begin, stop, rule in self._spans(since):
            index = begin + rule.index_of(number, taken)
            if index < stop:
                return index
            taken -= rule.counts(int(stop) - begin)[number] if stop < math.inf else 0
        return math.inf

    def _at(self, t: int, since: int) -> tuple[int, int | float, Rule]:
        number = bisect(self._points, t) - 1
        return max(self._points[number], since), self._stops[number], self._rules[number]

    def _spans(self, since: int) -> Iterator[tuple[int, int | float, Rule]]:
        first = bisect(self._points, since)
        return (self._at(begin, since) for begin in [since, *self._points[first:]])


def _rule(weights: Weights) -> Rule:
    shares = _shares(weights)
    period = math.lcm(*(share.denominator for share in shares))
    parts = tuple([int(share * period) for share in shares])
    return _Pattern(parts) if period <= _LONGEST else _Rounding(parts)


class Rule(Protocol):
    """A fixed sequence of choices, from index 0 on."""

    def one(self, t: int) -> int:
        """Return the choice at index t."""

    def some(self, t: int, n: int) -> NDArray[np.int64]:
        """Return the choices from index t on: between 1 and n."""

    def counts(self, t: int) -> list[int]:
        """Return how often each source is chosen before index t."""

    def index_of(self, number: int, taken: int) -> int | float:
        """Return the index of a source's choice number `taken`, counted from 0."""


class _Pattern:
    """A sequence that keeps each source within one item of its share, at every length.

    The algorithm is that of Tijdeman, "The chairman assignment problem", 1980. Each step chooses,
    among the sources that lag enough, the one that would be the first to lag too far. With k
    sources, no count is off by more than 1 - 1 / (2k - 2). After as many items as the common
    denominator of the shares, all lags are 0 and the pattern repeats. So one period is stored, and
    counts and indices are looked up in it.
    """

    def __init__(self, parts: tuple[int, ...]) -> None:
        self._parts, self._period, self._pattern = parts, sum(parts), _pattern(parts)

    def one(self, t: int) -> int:
        return int(self._pattern[t % self._period])

    def some(self, t: int, n: int) -> NDArray[np.int64]:
        here = t % self._period
        return self._pattern[here : here + n]

    def counts(self, t: int) -> list[int]:
        whole, rest = divmod(t, self._period)
        some = np.bincount(self._pattern[:rest], minlength=len(self._parts)).tolist()
        return [whole * part + each for part, each in zip(self._parts, some, strict=True)]

    def index_of(self, number: int, taken: int) -> int | float:
        if not self._parts[number]:
            return math.inf
        whole, rest = divmod(taken, self._parts[number])
        return whole * self._period + int(np.flatnonzero(self._pattern == number)[rest])


class _Group(NamedTuple):
    """A node of a binary tree of sources: two groups that share its items, or one source."""

    weight: int
    number: int
    parts: tuple[_Group, ...] = ()

    def of_first(self, n: int) -> int:
        """Return how many of the first n items the first part gets: its share, rounded."""
        return (2 * n * self.parts[0].weight + self.weight) // (2 * self.weight)


class _Rounding:
    """A sequence for shares without a small common denominator, which stores no pattern.

    The sources are leaves of a binary tree. It is built as in Huffman coding: the two groups of
    least weight are joined until one is left. Of the items of a joined group, the first part gets
    its share, rounded, so counts have a closed form. A count is off by less than one item with up
    to three sources, and by less than two with more.
    """

    def __init__(self, parts: tuple[int, ...]) -> None:
        self._width = len(parts)
        heap = [_Group(part, number) for number, part in enumerate(parts) if part]
        heapq.heapify(heap)
        self._above: dict[int, tuple[_Group, _Group]] = {}  # a group, and its parent, by number
        for number in range(self._width, self._width + len(heap) - 1):
            parts_of = heapq.heappop(heap), heapq.heappop(heap)
            both = _Group(sum(part.weight for part in parts_of), number, parts_of)
            self._above |= {part.number: (part, both) for part in parts_of}
            heapq.heappush(heap, both)
        self._all = heap[0]

    def one(self, t: int) -> int:
        group = self._all
        while group.parts:
            had = group.of_first(t)
            is_first = group.of_first(t + 1) > had
            group, t = group.parts[not is_first], had if is_first else t - had
        return group.number

    def some(self, t: int, n: int) -> NDArray[np.int64]:
        return np.fromiter(map(self.one, range(t, t + n)), np.int64, n)

    def counts(self, t: int) -> list[int]:
        found, groups = [0] * self._width, [(self._all, t)]
        for group, n in groups:
            if group.parts:
                had = group.of_first(n)
                groups += zip(group.parts, (had, n - had), strict=True)
            else:
                found[group.number] = n
        return found

    def index_of(self, number: int, taken: int) -> int | float:
        if number not in self._above:
            return taken if number == self._all.number else math.inf
        n = taken
        while number in self._above:
            part, both = self._above[number]
            n, rest = divmod(both.weight * (2 * n + 1), 2 * part.weight)
            n -= part is both.parts[0] and not rest
            number = both.number
        return n


def _shares(weights: Weights) -> list[Fraction]:
    total = sum(map(Fraction, weights))
    exact = [Fraction(weight) / total for weight in weights]
    near = [share.limit_denominator(_LONGEST) for share in exact]
    close = all(abs(a - b) <= a / (1 << 50) for a, b in zip(exact, near, strict=True))
    return near if close and sum(near) == 1 else exact


@lru_cache(maxsize=16)
def _pattern(parts: tuple[int, ...]) -> NDArray[np.int64]:
    """Return one period of choices, computed exactly with integer lags."""
    period, slack = sum(parts), 2 * len(parts) - 2
    found, taken = np.zeros(period, np.int64), [0] * len(parts)
    for t in range(period):
        best, soonest = 0, math.inf
        for number, (part, had) in enumerate(zip(parts, taken, strict=True)):
            lag = slack * ((t + 1) * part - had * period)
            if lag >= period:
                late = ((slack - 1) * period - lag) // (slack * part)
                if late < soonest:
                    best, soonest = number, late
        taken[best] += 1
        found[t] = best
    return found

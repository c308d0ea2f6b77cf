"""Choices of the next source, by chance or by exact proportions, as functions of an index."""

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

# For at most n indices from one on: how many, and the weights at the first one and
# at the last one, with a straight line between the two.
Ends: TypeAlias = Callable[[int, int], tuple[int, Weights, Weights]]

_LONGEST = 1 << 16  # choices in a stored pattern
_FEW = 64  # sources up to which each bound is compared with all draws
_CHUNK, _MANY = 1 << 12, 1 << 14  # choices computed in one call
_BEYOND = 2.0**64
_MARGIN = 1 << 32  # more than the error of a bound in floats


class Choices(NamedTuple):
    """The number of the source at an index; and the numbers at several indices from one on.

    The second returns at least one number, and at most as many as asked for.
    """

    one: Callable[[int], int]
    some: Callable[[int, int], NDArray[np.int64]]


class Draws:
    """Choices from an index on, one by one or many in one call.

    >>> draws = Draws(Proportions([(0, (3, 1))]).choices(), 0)
    >>> numbers = iter(draws)
    >>> next(numbers), draws.take(3).tolist(), next(numbers)
    (0, [0, 1, 0], 0)
    """

    def __init__(self, choices: Choices, place: int) -> None:
        self._block = iterate(list[int]())
        self.restart(choices, place)

    def restart(self, choices: Choices | None, place: int) -> None:
        """Continue with other choices, from an index on, or with none."""
        end(self._block)
        self._choices, self._place = choices, place
        self._known, self._read, self._size = np.empty(0, np.int64), 0, 1

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._blocks())

    def _blocks(self) -> Iterator[Iterator[int]]:
        while self._choices is not None:
            self._block = iterate(self._next(self._size).tolist())
            self._size = min(8 * self._size, _CHUNK)
            yield self._block

    def take(self, n: int) -> NDArray[np.int64]:
        """Return the next choices, at most n and at least one."""
        self._read -= remaining(self._block)
        end(self._block)
        self._size = 1
        return self._next(n, _MANY)

    def _next(self, n: int, ahead: int = _CHUNK) -> NDArray[np.int64]:
        assert self._choices is not None
        if self._read == len(self._known):
            self._known, self._read = self._choices.some(self._place, ahead), 0
            self._place += len(self._known)
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
    """Choose by chance: choice t depends on the key, t, the weights at t and `dropped`.

    `dropped` has one bit per source, the lowest for number 0. `ends` returns weights that are known
    beforehand.
    """
    if not callable(weights):
        bounds = _bounds(_left(weights, dropped))
        edges = _edges(bounds)
        return Choices(
            partial(_drawn, bounds, key), lambda t, n: _placed(edges, hashes(key, t, t + n))
        )
    one = partial(_scheduled, weights, width, key, dropped)

    def some(t: int, n: int) -> NDArray[np.int64]:
        n, *known = (1, ()) if ends is None else ends(t, n)
        left = [_left(each, dropped) for each in known]
        if n == 1 or not all(map(any, left)):
            return np.array([one(t)])
        drawn, bounds = hashes(key, t, t + n), [_bounds(each) for each in left]
        # A bound rises or falls from one end to the other, and few draws are between the two.
        low = [max(min(pair) - _MARGIN, 0) for pair in zip(*bounds, strict=True)]
        high = [max(pair) + _MARGIN for pair in zip(*bounds, strict=True)]
        found = _placed(_edges(low), drawn)
        unsure = (found != _placed(_edges(high), drawn)).nonzero()[0].tolist()
        found[unsure] = [one(t + place) for place in unsure]
        return found

    return Choices(one, some)


def _edges(bounds: list[int]) -> NDArray[np.uint64]:
    """Return the bounds that draws can reach."""
    return np.array([bound for bound in bounds if bound < _BEYOND], np.uint64)


def _placed(edges: NDArray[np.uint64], drawn: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return how many of the edges each draw has reached."""
    if len(edges) > _FEW:
        return np.searchsorted(edges, drawn, "right").astype(np.int64)
    found = np.zeros(len(drawn), np.int64)
    for edge in edges:
        found += drawn >= edge
    return found


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
    """Return where the share of each source ends among the 64-bit integers."""
    sums = list(accumulate(map(float, weights)))
    return [int(each / sums[-1] * _BEYOND) for each in sums]


class Proportions:
    """Choices that keep each source near its share, at every length, with random access.

    Args:
        points: Numbers of items, the first one 0, with the weights from there on.

    Methods take the number of items `since` which proportions are followed: they begin there, as at
    each of the points after it.
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
        """Return how often each source was chosen from `since` on, before index t."""
        here, _, last = self._at(t, since)
        found = last.counts(t - here)
        for begin, stop, rule in self._spans(since) if here > since else ():
            if stop <= here:
                found = [*map(add, found, rule.counts(int(stop) - begin))]
        return found

    def place(self, number: int, taken: int, since: int = 0) -> int | float:
        """Return the index at which a source was chosen a given number of times from `since` on."""
        for begin, stop, rule in self._spans(since):
            place = begin + rule.place(number, taken)
            if place < stop:
                return place
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
    """A choice of sources that begins for all of them at one index."""

    def one(self, t: int) -> int:
        """Return the source chosen at index t."""

    def some(self, t: int, n: int) -> NDArray[np.int64]:
        """Return the sources chosen at some indices from t on, at most n and at least one."""

    def counts(self, t: int) -> list[int]:
        """Return how often each source was chosen before index t."""

    def place(self, number: int, taken: int) -> int | float:
        """Return the index at which a source is chosen for the given time."""


class _Pattern:
    """A schedule that keeps each source within one item of its share, at every length.

    At each index, among the sources whose lag allows it, the source is chosen that would be the
    first to lag too far (Tijdeman, "The chairman assignment problem", 1980): with k sources no
    count is off by more than 1 - 1 / (2k - 2). All lags are 0 again after as many items as the
    common denominator of the shares; that pattern is kept, and gives counts and indices directly.
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

    def place(self, number: int, taken: int) -> int | float:
        if not self._parts[number]:
            return math.inf
        whole, rest = divmod(taken, self._parts[number])
        return whole * self._period + int(np.flatnonzero(self._pattern == number)[rest])


class _Group(NamedTuple):
    """Sources whose items two groups of them share; or one source."""

    weight: int
    number: int
    parts: tuple[_Group, ...] = ()

    def of_first(self, n: int) -> int:
        """Return how many of the group's first n items its first part gets: its share, rounded."""
        return (2 * n * self.parts[0].weight + self.weight) // (2 * self.weight)


class _Rounding:
    """A schedule for shares without a small common denominator; it keeps no pattern.

    Two by two, the groups of least weight are joined, as in Huffman's code; of the items of both,
    the first gets its share, rounded. So every count has a closed form. It is off by less than one
    item with up to three sources, and by less than two with more.
    """

    def __init__(self, parts: tuple[int, ...]) -> None:
        self._width = len(parts)
        heap = [_Group(part, number) for number, part in enumerate(parts) if part]
        heapq.heapify(heap)
        self._above: dict[int, tuple[_Group, _Group]] = {}  # a group, and the one it is in
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

    def place(self, number: int, taken: int) -> int | float:
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
    """Return the choices until all lags are 0 again. Lags are ints, so exact."""
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

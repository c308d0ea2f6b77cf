"""Which source comes next: choices by chance or by exact proportions, as functions of a place."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate, chain, count, cycle
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import Unfit, brief, weighing
from lazyckpt.core.prng import hashed, hashes
from lazyckpt.errors import PipelineError

T = TypeVar("T")

Weights = tuple[float, ...]
Scheduled = Callable[[int], Sequence[float]]  # from the number of items so far

_LONGEST = 1 << 16  # choices in a pattern that is kept
_CHUNK = 1 << 12  # random choices made at once
_BEYOND = 2.0**64


class Choices(NamedTuple):
    """The number of a source at a place, and of some sources those chosen from a place on.

    `counts` are those of the choices before the place.
    """

    one: Callable[[int, Sequence[int]], int]
    ahead: Callable[[int, Sequence[int], list[Any]], Iterator[Any]]


def weights_of(value: Any) -> Weights:
    """Weights whose sum is finite, of ints where they are whole; `Unfit` if some are none."""
    found = weighing(value)
    if math.isinf(sum(map(float, found))):
        raise Unfit("finite numbers >= 0 of a finite sum")
    return found


def random_choices(weights: Weights | Scheduled, width: int, key: int, dropped: int = 0) -> Choices:
    """Choice t depends on the key, t, the weights at t and the sources that have dropped out.

    Of these `dropped` has a bit each, the lowest for number 0.
    """
    if callable(weights):
        return _scheduled(weights, width, key, dropped)
    bounds = _bounds(_left(weights, dropped))
    edges = np.array([bound for bound in bounds if bound < _BEYOND], np.uint64)

    def one(t: int, counts: Sequence[int]) -> int:
        return bisect(bounds, hashed(key, t))

    def ahead(t: int, counts: Sequence[int], sources: list[Any]) -> Iterator[Any]:
        starts = count(t, _CHUNK)
        drawn = (np.searchsorted(edges, hashes(key, s, s + _CHUNK), "right") for s in starts)
        numbers = chain.from_iterable(places.tolist() for places in drawn)
        return map(sources.__getitem__, numbers)

    return Choices(one, ahead)


def _scheduled(schedule: Scheduled, width: int, key: int, dropped: int) -> Choices:
    def one(t: int, counts: Sequence[int]) -> int:
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
                f"got {brief(value)}; give those that may be left a weight above 0"
            )
        return bisect(_bounds(left), hashed(key, t))

    return Choices(one, lambda t, counts, of: (of[one(place, counts)] for place in count(t)))


def _left(weights: Weights, dropped: int) -> Weights:
    """The weights, 0 for the sources that have dropped out."""
    if not dropped:
        return weights
    return tuple([0 if dropped >> number & 1 else each for number, each in enumerate(weights)])


def _bounds(weights: Weights) -> list[int]:
    """Where among the 64-bit integers the share of each source ends."""
    sums = list(accumulate(map(float, weights)))
    return [int(each / sums[-1] * _BEYOND) for each in sums]


class Proportions:
    """A schedule that keeps every source within one item of its share, at every length.

    At each place, of the sources whose lag allows it, the one is chosen that
    would be the first to lag too far (Tijdeman, "The chairman assignment
    problem", 1980): with k sources no count is off by more than
    1 - 1 / (2k - 2). All lags are 0 again after as many items as the common
    denominator of the shares; up to 65,536 that pattern is kept, and gives
    counts and places at once. A float stands for the simple fraction it is
    next to, if there is one with a denominator up to 65,536.
    """

    def __init__(self, weights: Weights) -> None:
        shares = _shares(weights)
        self.period = math.lcm(*(share.denominator for share in shares))
        self.parts = [int(share * self.period) for share in shares]
        self.pattern = _pattern(tuple(self.parts)) if self.period <= _LONGEST else None

    def choices(self) -> Choices:
        if self.pattern is None:
            return Choices(partial(_next, self.parts), partial(_following, self.parts))
        pattern, period = self.pattern.tolist(), self.period

        def ahead(t: int, counts: Sequence[int], sources: list[Any]) -> Iterator[Any]:
            here = t % period
            return cycle([sources[number] for number in pattern[here:] + pattern[:here]])

        return Choices(lambda t, counts: pattern[t % period], ahead)

    def counts(self, t: int) -> list[int]:
        """How often each has been chosen before place t."""
        assert self.pattern is not None
        whole, rest = divmod(t, self.period)
        some = np.bincount(self.pattern[:rest], minlength=len(self.parts)).tolist()
        return [whole * part + each for part, each in zip(self.parts, some, strict=True)]

    def fits(self, counts: list[int]) -> bool:
        """Whether there is a place before which each has been chosen so often, where it's known."""
        return self.pattern is None or counts == self.counts(sum(counts))

    def place(self, number: int, taken: int) -> int | float:
        """Where a source is chosen that has been chosen so often before."""
        assert self.pattern is not None
        if not self.parts[number]:
            return math.inf
        whole, rest = divmod(taken, self.parts[number])
        return whole * self.period + int(np.flatnonzero(self.pattern == number)[rest])


def _shares(weights: Weights) -> list[Fraction]:
    total = sum(map(Fraction, weights))
    exact = [Fraction(weight) / total for weight in weights]
    near = [share.limit_denominator(_LONGEST) for share in exact]
    close = all(abs(a - b) <= a / (1 << 50) for a, b in zip(exact, near, strict=True))
    return near if close and sum(near) == 1 else exact


def _next(parts: Sequence[int], t: int, counts: Sequence[int]) -> int:
    """The choice at t, for shares in proportion to ints; lags are ints too, so exact."""
    period, slack = sum(parts), 2 * len(parts) - 2
    best, soonest = 0, math.inf
    for number, (part, taken) in enumerate(zip(parts, counts, strict=True)):
        lag = slack * ((t + 1) * part - taken * period)
        if lag >= period:
            late = ((slack - 1) * period - lag) // (slack * part)
            if late < soonest:
                best, soonest = number, late
    return best


def _following(
    parts: Sequence[int], t: int, counts: Sequence[int], sources: Sequence[T]
) -> Iterator[T]:
    """The sources chosen from t on."""
    taken = list(counts)
    for place in count(t):
        number = _next(parts, place, taken)
        taken[number] += 1
        yield sources[number]


@lru_cache(maxsize=16)
def _pattern(parts: tuple[int, ...]) -> NDArray[np.int64]:
    choices = _following(parts, 0, [0] * len(parts), range(len(parts)))
    return np.fromiter(choices, np.int64, sum(parts))

"""`random.Random` at any place: its words, and what it makes of them, many at a time.

A place is (origin, words): the origin is 0 for the stage's own seed, below 2**64 a seed
drawn by chance, else a whole state; words are the 32-bit outputs drawn since.

Haramoto et al., "Efficient jump ahead for F2-linear random number generators", 2008.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from random import Random, SystemRandom
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.combinators.machines.shuffled_blocks import rearranged
from lazyckpt.core.cached_property import cached_property
from lazyckpt.core.checks import Unfit
from lazyckpt.core.iterators import iterate, remaining
from lazyckpt.core.machine import within
from lazyckpt.errors import InvalidState

_N, _M, _A, _DEGREE = 624, 397, 0x9908B0DF, 19937
_RAW = 1 << 64  # origins from here on are whole states
_FAR = 1 << 22  # words; to pass over more, jumping is faster
_SEARCH = 1 << 27  # words from a seed within which a state is looked for
_FEW = 1024  # shuffled one by one up to here
_SHIFTS = [32 - (i + 1).bit_length() for i in range(_FEW)]
_AT_ONCE = 1 << 12  # words

State = tuple[Any, ...]  # as `Random.getstate` gives it
Seed = int | float | str | bytes | None


class Chance(int):
    """The seed drawn where None is given; a state has it as its origin."""

    digest = "drawn"  # one is as good as another


def seedable(seed: Any) -> Seed:
    """A check for seeds; NumPy's scalars are Python's."""
    if seed is None:
        return Chance(SystemRandom().randrange(1, 1 << 53))
    seed = bytes(seed) if isinstance(seed, bytearray) else seed
    seed = seed.item() if hasattr(seed, "dtype") else seed
    if not isinstance(seed, (int, float, str, bytes)):
        raise Unfit("an int, float, str, bytes or None")
    return seed


def origin_of(seed: Seed) -> int:
    """Where a stage with a seed begins."""
    return int(seed) if isinstance(seed, Chance) else 0


def restored(state: Any) -> Random:
    """A generator in a state that its `getstate` gave; `InvalidState` for anything else."""
    random = Random(0)
    try:
        version, words, spare = state
        random.setstate((version, tuple(words), spare))
    except (TypeError, ValueError, OverflowError):
        raise InvalidState("expected a state of random.Random, as its getstate gives it") from None
    return random


def placed(seed: Seed, origin: int, words: int) -> Random:
    """A generator so many words after an origin."""
    return restored(state_at(seed, origin, words))


@lru_cache(16)
def state_at(seed: Seed, origin: int, words: int) -> State:
    """The state of a generator so many words after an origin."""
    if origin < _RAW:
        random = Random(origin or seed)
    else:
        whole = origin.to_bytes(4 * _N + 5, "little")[:-1]
        random = restored((3, np.frombuffer(whole, "<u4").tolist(), None))
    if words > _FAR:
        return jumped(random.getstate(), words)
    random.getrandbits(32 * words)
    return random.getstate()


def jumped(state: State, words: int) -> State:
    """The state so many words later: x**words modulo the characteristic polynomial, applied."""
    *key, at = state[1]
    power = 1
    for bit in f"{words + at - _N:b}":
        power = _reduced(int(f"{power:b}", 4) << int(bit))  # base 4 spreads the bits
    packed = np.frombuffer(power.to_bytes(_DEGREE // 8 + 1, "little"), np.uint8)
    places = np.flatnonzero(np.unpackbits(packed, bitorder="little"))
    random, sequence = restored((3, (*key, _N), None)), key
    for _ in range(_DEGREE // _N + 1):
        random.getrandbits(32 * _N)
        sequence += random.getstate()[1][:_N]
    windows = np.lib.stride_tricks.sliding_window_view(np.array(sequence, np.uint32), _N)
    result = np.zeros(_N, np.uint32)
    for some in np.array_split(places, 16):
        result ^= np.bitwise_xor.reduce(windows[some], axis=0)
    return 3, (*result.tolist(), _N), None


def _reduced(value: int) -> int:
    mask = (1 << _DEGREE) - 1
    while high := value >> _DEGREE:
        value &= mask
        for exponent in _exponents():
            value ^= high << exponent
    return value


@cache
def _exponents() -> list[int]:
    """Those of the characteristic polynomial's terms but the first."""

    def times(p: int, degree: int) -> int:
        return p << degree ^ p << degree - (_N - _M)

    total, power = _A >> 31, times(1, _N)
    for bit in range(30, -1, -1):
        total ^= power * (_A >> bit & 1)
        power = times(power, _N - 1)
    total ^= power
    return [exponent for exponent in range(_DEGREE) if total >> exponent & 1]


def located(
    start: State, origin: int, words: int, goal: State, limit: int = _SEARCH
) -> tuple[int, int]:
    """The place of a goal that comes after a start at this place; a far one is an origin itself."""
    (*key, at), (*wanted, to) = start[1], goal[1]
    if at <= to and key == wanted:
        return origin, words + to - at
    random, first = restored((3, (*key, _N), None)), restored((3, (*wanted, 0), None))
    block = first.randbytes(4 * _N)
    for passed in range(limit // _N + 1):
        if random.randbytes(4 * _N) == block:
            return origin, words + (passed + 1) * _N - at + to
    return int.from_bytes(np.array(goal[1], "<u4").tobytes() + b"\1", "little"), 0


def check_place(origin: Any, words: Any = 0) -> None:
    """Check a place out of a state."""
    within("random.Random", origin, math.inf), within("random.Random", words, math.inf)


class Words:
    """The words from a place on; what is made of them takes as many as `Random` takes for it."""

    def __init__(self, seed: Seed, origin: int, words: int) -> None:
        check_place(origin, words)
        self.origin, self.drawn = origin, words
        self._begin = seed, origin, words
        self._ready = np.empty(0, np.uint32)

    @property
    def mark(self) -> tuple[int, int]:
        """The place that the next words come from."""
        return self.origin, self.drawn

    @cached_property
    def _random(self) -> Random:
        return placed(*self._begin)

    def _peek(self, count: int) -> NDArray[np.uint32]:
        if len(self._ready) < count:
            more = np.frombuffer(self._random.randbytes(4 * max(count, _AT_ONCE)), "<u4")
            self._ready = np.concatenate([self._ready, more])
        return self._ready[:count]

    def _take(self, count: int) -> NDArray[np.uint32]:
        taken = self._peek(count)
        self._ready = self._ready[count:]
        self.drawn += count
        return taken

    def tried(self, bound: int, count: int) -> NDArray[np.uint32]:
        """What so many words are for `randrange(bound)`, which passes over those not below it."""
        return self._take(count) >> np.uint32(32 - bound.bit_length())

    def below(self, bound: int, count: int) -> NDArray[np.int64]:
        """`randrange(bound)`, so many times."""
        parts, left = [np.empty(0, np.int64)], count
        while left:  # so many words are needed at least
            drawn = self.tried(bound, left)
            fit = drawn[drawn < bound].astype(np.int64)
            parts.append(fit)
            left -= len(fit)
        return np.concatenate(parts)

    def shuffled(self, items: list[Any]) -> list[Any]:
        """The items after `shuffle(items)`; the list may be changed."""
        last = len(items) - 1
        if last >= _FEW:
            return rearranged(items, self.permutation(last + 1))
        for i, j in zip(range(last, 0, -1), self._few(last), strict=True):
            items[i], items[j] = items[j], items[i]
        return items

    def permutation(self, size: int) -> NDArray[np.int32]:
        """What `shuffle` makes of `range(size)`, as an array."""
        if size > _FEW:
            return _swapped(self.swaps(size - 1))
        return np.array(self.shuffled(list(range(size))), np.int32)

    def swaps(self, last: int) -> NDArray[np.int32]:
        """`randrange(i + 1)` at index i, drawn for every i from the last down to 1."""
        slots = np.zeros(last + 1, np.int32)
        i = last
        while i >= _FEW:
            bits = (i + 1).bit_length()
            need = i + 2 - (1 << bits - 1)  # until a bit less will do
            count = min(need + (need >> 1) + 64, 1 << bits - 2, 1 << 16)
            drawn = (self._peek(count) >> np.uint32(32 - bits)).astype(np.int32)
            # Each that fits lowers the bound for those after it. A guess of which do
            # is right further with every round, and right where it is its own result.
            steps = np.arange(count, dtype=np.int32)
            fits = drawn <= i - (steps * ((i + 1) / (1 << bits))).astype(np.int32)
            while True:
                again = drawn <= i + fits - np.cumsum(fits, dtype=np.int32)
                if (again == fits).all():
                    break
                fits = again
            places = np.flatnonzero(fits)[:need]
            self._take(count if len(places) < need else int(places[-1]) + 1)
            slots[i : i - len(places) : -1] = drawn[places]
            i -= len(places)
        slots[i:0:-1] = self._few(i)
        return slots

    def _few(self, last: int) -> list[int]:
        """`randrange(i + 1)` for every i from the last down to 1."""
        found: list[int] = []
        i = last
        while i > 0:
            count = i + (i >> 1) + 8
            words = iterate(self._peek(count).tolist())
            for word in words:
                if (j := word >> _SHIFTS[i]) <= i:
                    found.append(j)
                    i -= 1
                    if not i:
                        break
            self._take(count - remaining(words))
        return found


def _swapped(slots: NDArray[np.int32]) -> NDArray[np.int32]:
    """`range(n)` after swapping element i with element slots[i], for i from n - 1 down to 1.

    Element i ends as what was in slots[i] before its swap: that was put there by
    the swap before which took the same slot, and was then element `after[i]`'s.
    """
    steps = np.arange(len(slots), dtype=np.int32)
    first, after = np.full((2, len(slots)), -1, np.int32)
    left, taken = steps[::-1], slots[::-1]
    first[taken] = left  # of equal ones the last stays: the lowest step
    here = first.copy()
    while len(left := left[later := here[taken] != left]):
        taken = taken[later]
        before = here[taken]
        here[taken] = left
        after[before] = here[taken]
    source = np.where(first == steps, after, first)
    held = np.where(source < 0, steps, source)
    linked = np.flatnonzero(source >= 0)
    while len(linked):  # follow each chain to its end, twice as far each time
        at = held[linked]
        held[linked] = further = held[at]
        linked = linked[further != at]
    return np.where(after < 0, slots, held[after])

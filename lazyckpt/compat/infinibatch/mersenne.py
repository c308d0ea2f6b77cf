"""`random.Random` at any place in its stream.

A place is (origin, words). The origin is 0 for the stage's own seed, a randomly drawn seed if below
2**64, else a whole state. Words are the number of 32-bit outputs drawn since.

Haramoto et al., "Efficient jump ahead for F2-linear random number generators", 2008.
"""

from __future__ import annotations

import math
from functools import cache
from random import Random, SystemRandom
from typing import Any

import numpy as np

from lazyckpt.core.checks import Unfit
from lazyckpt.core.machine import within
from lazyckpt.errors import InvalidState

_N, _M, _A, _DEGREE = 624, 397, 0x9908B0DF, 19937
_RAW = 1 << 64  # origins from this number on are whole states
_FAR = 1 << 22  # words; to skip more, jumping is faster
_NEAR = 1 << 24  # most words between two states; beyond them a state stores the whole generator

State = tuple[Any, ...]  # a result of `Random.getstate`
Seed = int | float | str | bytes | None


class Chance(int):
    """A seed drawn at random because None was passed; states store it as their origin."""

    digest = "drawn"  # the same for all such seeds


def seedable(seed: Any) -> Seed:
    """Check a seed; convert NumPy scalars to Python."""
    if seed is None:
        return Chance(SystemRandom().randrange(1, 1 << 53))
    seed = bytes(seed) if isinstance(seed, bytearray) else seed
    seed = seed.item() if hasattr(seed, "dtype") else seed
    if not isinstance(seed, (int, float, str, bytes)):
        raise Unfit("an int, float, str, bytes or None")
    return seed


def origin_of(seed: Seed) -> int:
    """Return the origin of a stage with a seed."""
    return int(seed) if isinstance(seed, Chance) else 0


def restored(state: Any) -> Random:
    """Return a generator from the result of `getstate`; raise `InvalidState` for anything else."""
    random = Random(0)
    try:
        version, words, spare = state
        random.setstate((version, tuple(words), spare))
    except (TypeError, ValueError, OverflowError):
        raise InvalidState("expected a state of random.Random, as from its getstate") from None
    return random


def placed(seed: Seed, origin: int, words: int, spare: float | None = None) -> Random:
    """Return a generator a number of words after an origin, with the spare value of `gauss`."""
    if origin < _RAW:
        random = Random(origin or seed)
    else:
        whole = origin.to_bytes(4 * _N + 5, "little")[:-1]
        random = restored((3, np.frombuffer(whole, "<u4").tolist(), None))
    if words > _FAR:
        random = restored(jumped(random.getstate(), words))
    else:
        random.getrandbits(32 * words)
    return restored((*random.getstate()[:2], spare))


def jumped(state: State, words: int) -> State:
    """Return the state `words` later: apply x**words modulo the characteristic polynomial."""
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
    """Return the exponents of the characteristic polynomial's terms except the first."""

    def times(p: int, degree: int) -> int:
        return p << degree ^ p << degree - (_N - _M)

    total, power = _A >> 31, times(1, _N)
    for bit in range(30, -1, -1):
        total ^= power * (_A >> bit & 1)
        power = times(power, _N - 1)
    total ^= power
    return [exponent for exponent in range(_DEGREE) if total >> exponent & 1]


def located(start: State, origin: int, words: int, goal: State, limit: float) -> tuple[int, int]:
    """Return the place of a goal that comes after a start; a distant goal is an origin itself."""
    (*key, at), (*wanted, to) = start[1], goal[1]
    if at <= to and key == wanted:
        return origin, words + to - at
    random, first = restored((3, (*key, _N), None)), restored((3, (*wanted, 0), None))
    block, passed = first.randbytes(4 * _N), _N
    while passed <= limit:
        if random.randbytes(4 * _N) == block:
            return origin, words + passed - at + to
        passed += _N
    return int.from_bytes(np.array(goal[1], "<u4").tobytes() + b"\1", "little"), 0


def check_place(origin: Any, words: Any = 0) -> None:
    """Check a place from a state."""
    within("random.Random", origin, math.inf), within("random.Random", words, math.inf)


class Draws:
    """A generator that computes its place, at most `_NEAR` words after the last one computed."""

    def __init__(self, seed: Seed, origin: int, words: int, spare: float | None = None) -> None:
        check_place(origin, words)
        self.random = placed(seed, origin, words, spare)
        self._state, self._mark = self.random.getstate(), (origin, words)

    @property
    def mark(self) -> tuple[int, int]:
        """The place of the next words."""
        here = self.random.getstate()
        self._mark = located(self._state, *self._mark, here, _NEAR)
        self._state = here
        return self._mark

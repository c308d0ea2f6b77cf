"""MT19937, the generator of `random.Random`, as a function of a seed and a number of words drawn.

A place is (origin, words): the origin is 0 for the stage's own seed, below 2**64 a seed
drawn by chance, else a whole state; words are the 32-bit outputs drawn since.

Matsumoto and Nishimura, "Mersenne Twister", 1998; Haramoto et al., "Efficient
jump ahead for F2-linear random number generators", 2008.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from random import Random, SystemRandom
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import Unfit, brief
from lazyckpt.core.machine import within
from lazyckpt.core.user_state import Own, freeze, thaw
from lazyckpt.errors import InvalidState

_N, _M, _A, _DEGREE = 624, 397, 0x9908B0DF, 19937
_RAW = 1 << 64  # origins from here on are whole states
_FAR = 1 << 23  # words; to pass over more, jumping is faster
_SEARCH = 1 << 27  # words from a seed within which a state is looked for
_NEAR = 1 << 22  # the same from the last state that is known

NONE_SPARE = freeze(None, "random.Random")

Key = tuple[NDArray[np.uint32], int]
Seed = int | float | str | bytes | None


class Chance(int):
    """The seed drawn where None is given; a state has it as its origin."""


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


def begun(seed: Seed, origin: int) -> Key:
    """The generator's state at an origin."""
    if origin < _RAW:
        return exported(Random(origin or seed).getstate())
    whole = origin.to_bytes(4 * _N + 3, "little")
    at = int.from_bytes(whole[4 * _N : -1], "little")
    return np.frombuffer(whole[: 4 * _N], np.uint32), min(at, _N)


def exported(state: tuple[Any, ...]) -> Key:
    """What `Random.getstate()` gave, as an array and an index; `InvalidState` for anything else."""
    try:
        Random().setstate(state)
        *words, at = state[1]
    except (TypeError, ValueError, LookupError, OverflowError):
        raise InvalidState("expected a state of random.Random, as its getstate gives it") from None
    return np.array(words, np.uint32), int(at)


@lru_cache(16)
def placed(seed: Seed, origin: int, words: int) -> Key:
    """The generator's state so many words after an origin. Don't change it in place."""
    key, at = begun(seed, origin)
    if words > _FAR:
        return _jumped(key, words + at - _N), _N
    return _passed(key, at, words)


def generator(key: NDArray[np.uint32], at: int) -> np.random.MT19937:
    bits = np.random.MT19937(0)
    bits.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": at}}
    return bits


def _passed(key: NDArray[np.uint32], at: int, words: int) -> Key:
    bits = generator(key, at)
    bits.random_raw(words, output=False)
    found: Any = bits.state["state"]
    return found["key"], int(found["pos"])


def _jumped(key: NDArray[np.uint32], steps: int) -> NDArray[np.uint32]:
    """The state so many words later: x**steps modulo the characteristic polynomial, applied."""
    power = 1
    for bit in f"{steps:b}":
        power = _reduced(int(f"{power:b}", 4) << int(bit))  # base 4 spreads the bits
    packed = np.frombuffer(power.to_bytes(_DEGREE // 8 + 1, "little"), np.uint8)
    places = np.flatnonzero(np.unpackbits(packed, bitorder="little"))
    blocks = [key]
    for _ in range(_DEGREE // _N + 1):
        blocks.append(_passed(blocks[-1], _N, _N)[0])
    windows = np.lib.stride_tricks.sliding_window_view(np.concatenate(blocks), _N)
    result = np.zeros(_N, np.uint32)
    for some in np.array_split(places, 16):
        result ^= np.bitwise_xor.reduce(windows[some], axis=0)
    return result


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
    start: Key, origin: int, words: int, goal: Key, limit: int = _SEARCH
) -> tuple[int, int]:
    """The place of a goal that comes after a start at this place; a far one is an origin itself."""
    (key, at), (wanted, to) = start, goal
    if at <= to and np.array_equal(key, wanted):
        return origin, words + to - at
    bits, first = generator(key, _N), generator(wanted, 0).random_raw(_N)
    for passed in range(limit // _N + 1):
        row = bits.random_raw(_N)
        if row[0] == first[0] and (row == first).all():
            return origin, words + (passed + 1) * _N - at + to
    whole = wanted.tobytes() + to.to_bytes(2, "little") + b"\1"
    return int.from_bytes(whole, "little"), 0


def check_place(origin: Any, words: Any = 0, spare: Any = NONE_SPARE) -> None:
    """Check a place out of a state."""
    within("random.Random", origin, math.inf), within("random.Random", words, math.inf)
    if not isinstance(thaw(spare), float | None):
        raise InvalidState(f"random.Random: a state with {brief(spare)} for a spare float")


class TrackedRandom:
    """A `random.Random` at a place, which can tell where it has come to."""

    # Nothing is counted while it is used: where it is asked for, the words since
    # the last time are found by generating them once more.

    def __init__(self, seed: Seed, origin: int, words: int, spare: Own = NONE_SPARE) -> None:
        self._place = origin, words
        self._mark = key, at = placed(seed, origin, words)
        self.random = Random()
        self.random.setstate((3, (*key.tolist(), at), thaw(spare)))

    def place(self) -> tuple[int, int, Own]:
        """Origin and words, and the float that `gauss` has spare."""
        state = self.random.getstate()
        goal = exported(state)
        self._place = located(self._mark, *self._place, goal, _NEAR)
        self._mark = goal
        return *self._place, freeze(state[2], "random.Random")

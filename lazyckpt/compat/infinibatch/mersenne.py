"""MT19937, the generator of `random.Random`, as a function of a seed and a number of words drawn.

A place is (origin, words): the origin is 0 for the stage's own seed, below
2**64 a seed drawn by chance, else a whole state of the generator; words are
the 32-bit outputs drawn since. Matsumoto and Nishimura, "Mersenne Twister",
1998; jumping ahead: Haramoto et al., "Efficient jump ahead for F2-linear
random number generators", 2008. How `shuffle`, `randrange` and `random` use
the words is documented CPython behaviour, pinned by tests.
"""

from __future__ import annotations

import math
import struct
from functools import cache, lru_cache
from random import Random, SystemRandom
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import Unfit
from lazyckpt.core.machine import within
from lazyckpt.errors import InvalidState

_N, _M, _A, _DEGREE = 624, 397, 0x9908B0DF, 19937
_RAW = 1 << 64  # origins from here on are whole states
_FAR = 1 << 23  # words; to pass over more, jumping is faster
_SEARCH = 1 << 27  # words from a seed within which a state is looked for
_NEAR = 1 << 22  # the same from the last state that is known

Key = tuple[NDArray[np.uint32], int]
Seed = int | float | str | bytes | None


def seedable(seed: Any) -> Seed:
    """A check for seeds, as a check of an argument is; NumPy's scalars are Python's."""
    seed = bytes(seed) if isinstance(seed, bytearray) else seed
    seed = seed.item() if hasattr(seed, "dtype") else seed
    if seed is not None and not isinstance(seed, (int, float, str, bytes)):
        raise Unfit("an int, float, str, bytes or None")
    return seed


def fresh(seed: Seed) -> int:
    """The origin for a seed: a chance one where there is none."""
    return SystemRandom().randrange(1, 1 << 53) if seed is None else 0


def told(seed: Seed) -> Seed:
    """A seed as states show it."""
    if isinstance(seed, (str, bytes)):
        return f"{type(seed).__name__}#{Random(seed).getrandbits(32):08x}"
    return hex(seed) if isinstance(seed, int) and abs(seed) >= 1 << 53 else seed


def begun(seed: Seed, origin: int) -> Key:
    """The generator's state at an origin."""
    if origin < _RAW:
        return exported(Random(origin or seed).getstate())
    raw = origin.to_bytes(4 * _N + 9, "little")
    return np.frombuffer(raw[: 4 * _N], np.uint32), min(raw[4 * _N] << 8 | raw[4 * _N + 1], _N)


def exported(state: tuple[Any, ...]) -> Key:
    """What `Random.getstate()` gave, as an array and an index; `InvalidState` for anything else."""
    try:
        version, words, _ = state
        key = np.array(words[:-1], np.uint32)
        if version == 3 and key.shape == (_N,) and 0 < words[-1] <= _N:
            return key, int(words[-1])
    except (TypeError, ValueError, OverflowError, IndexError):
        pass
    raise InvalidState("expected a state of random.Random, as its getstate gives it")


def placed(seed: Seed, origin: int, words: int) -> Key:
    """The generator's state so many words after an origin."""
    key, at = _placed(seed, origin, words)
    return np.frombuffer(key, np.uint32), at


@lru_cache(16)
def _placed(seed: Seed, origin: int, words: int) -> tuple[bytes, int]:
    key, at = begun(seed, origin)
    if words > _FAR:
        return _jumped(key, words + at - _N).tobytes(), _N
    bits = generator(key, at)
    bits.random_raw(words, output=False)
    found: Any = bits.state["state"]
    return found["key"].tobytes(), int(found["pos"])


def generator(key: NDArray[np.uint32], at: int) -> np.random.MT19937:
    bits = np.random.MT19937(0)
    bits.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": at}}
    return bits


def _jumped(key: NDArray[np.uint32], steps: int) -> NDArray[np.uint32]:
    """The state so many words later: x**steps modulo the characteristic polynomial, applied."""
    power, left = steps, 0
    while power >= _DEGREE:
        power, left = power >> 1, left + 1
    found = 1 << power
    for bit in range(left - 1, -1, -1):
        found = _reduced(int(f"{found:b}", 4) << (steps >> bit & 1))  # base 4 spreads the bits
    packed = np.frombuffer(found.to_bytes(_DEGREE // 8 + 1, "little"), np.uint8)
    places = np.flatnonzero(np.unpackbits(packed, bitorder="little"))
    bits = generator(key, _N)
    blocks = [key]
    for _ in range(_DEGREE // _N + 1):
        bits.random_raw(_N, output=False)
        state: Any = bits.state["state"]
        blocks.append(state["key"])
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


def distance(start: Key, goal: Key, limit: int) -> int | None:
    """How many words lead from one state to another; None if it takes more than the limit."""
    (key, at), (wanted, to) = start, goal
    if at <= to and np.array_equal(key, wanted):
        return to - at
    bits = generator(key, _N)
    first, passed, count = _tempered(wanted), 0, 1
    while passed * _N <= limit:
        rows = bits.random_raw(count * _N).astype(np.uint32).reshape(count, _N)
        for row in np.flatnonzero(rows[:, 0] == first[0]).tolist():
            if np.array_equal(rows[row], first):
                return (passed + row) * _N + (_N - at) + to
        passed, count = passed + count, min(8 * count, 512)
    return None


def _tempered(key: NDArray[np.uint32]) -> NDArray[np.uint32]:
    y = key.copy()
    y ^= y >> 11
    y ^= y << 7 & 0x9D2C5680
    y ^= y << 15 & 0xEFC60000
    y ^= y >> 18
    return y


def located(seed: Seed, origin: int, state: tuple[Any, ...]) -> tuple[int, int]:
    """Where a state of `random.Random` is: counted from the origin, or itself the origin."""
    return _counted(begun(seed, origin), origin, 0, exported(state), _SEARCH)


def _counted(start: Key, origin: int, words: int, goal: Key, limit: int) -> tuple[int, int]:
    """Where a state is, if `start` is so many words behind an origin."""
    more = distance(start, goal, limit)
    if more is not None:
        return origin, words + more
    end = bytes([goal[1] >> 8, goal[1] & 255]) + bytes(6) + b"\1"
    return int.from_bytes(goal[0].tobytes() + end, "little"), 0


def as_int(spare: float | None) -> int:
    """The float that `Random.gauss` has spare, as an int."""
    return 0 if spare is None else 1 + int.from_bytes(struct.pack("<d", spare), "little")


def check_place(name: str, origin: Any, words: Any = 0, gauss: Any = 0) -> None:
    """Check a place out of a state."""
    within(name, origin, math.inf), within(name, words, math.inf), within(name, gauss, _RAW)


class TrackedRandom:
    """A `random.Random` at a place, which can tell where it has come to."""

    # Nothing is counted while it is used: where it is asked for, the words since
    # the last time are found by generating them once more.

    def __init__(self, seed: Seed, origin: int, words: int, gauss: int) -> None:
        self._place = origin, words
        self._mark = key, at = placed(seed, origin, words)
        self.random = Random()
        spare = struct.unpack("<d", (gauss - 1).to_bytes(8, "little"))[0] if gauss else None
        self.random.setstate((3, (*key.tolist(), at), spare))

    def place(self) -> tuple[int, int, int]:
        """Origin and words, and the float that `gauss` has spare, as an int."""
        state = self.random.getstate()
        goal = exported(state)
        self._place = _counted(self._mark, *self._place, goal, _NEAR)
        self._mark = goal
        return *self._place, as_int(state[2])

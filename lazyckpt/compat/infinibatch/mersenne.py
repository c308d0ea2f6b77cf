"""`random.Random` at any place.

A place is (origin, words): the origin is 0 for the stage's own seed, below 2**64 a seed
drawn by chance, else a whole state; words are the 32-bit outputs drawn since.
"""

from __future__ import annotations

import math
from random import Random, SystemRandom
from typing import Any

import numpy as np

from lazyckpt.core.checks import Unfit
from lazyckpt.core.machine import within
from lazyckpt.errors import InvalidState

_N = 624  # words of a state
_RAW = 1 << 64  # origins from here on are whole states
_BLOCK = 1 << 24  # words passed over until an interrupt is seen
_NEAR = 1 << 24  # words between two states; behind more of them a state has the whole generator

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


def placed(seed: Seed, origin: int, words: int, spare: float | None = None) -> Random:
    """A generator so many words after an origin, with what `gauss` holds ready."""
    if origin < _RAW:
        state = Random(origin or seed).getstate()[1]
    else:
        whole = origin.to_bytes(4 * _N + 5, "little")[:-1]
        state = tuple(np.frombuffer(whole, "<u4").tolist())
    *key, at = restored((3, state, None)).getstate()[1]
    bits: Any = np.random.MT19937()  # the same generator, which passes over words at once
    bits.state = {"bit_generator": "MT19937", "state": {"key": np.array(key, "u4"), "pos": at}}
    for passed in range(0, words, _BLOCK):
        bits.random_raw(min(_BLOCK, words - passed), output=False)
    found = bits.state["state"]
    return restored((3, (*found["key"].tolist(), found["pos"]), spare))


def located(start: State, origin: int, words: int, goal: State, limit: float) -> tuple[int, int]:
    """The place of a goal that comes after a start at this place; a far one is an origin itself."""
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
    """Check a place out of a state."""
    within("random.Random", origin, math.inf), within("random.Random", words, math.inf)


class Draws:
    """A generator that knows its place, within `_NEAR` words from where it was asked last."""

    def __init__(self, seed: Seed, origin: int, words: int, spare: float | None = None) -> None:
        check_place(origin, words)
        self.random = placed(seed, origin, words, spare)
        self._state, self._mark = self.random.getstate(), (origin, words)

    @property
    def mark(self) -> tuple[int, int]:
        """The place that the next words come from."""
        here = self.random.getstate()
        self._mark = located(self._state, *self._mark, here, _NEAR)
        self._state = here
        return self._mark

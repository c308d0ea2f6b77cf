"""`random.Random` at any place in its stream.

A place is (origin, words). The origin is 0 for the stage's own seed, a randomly drawn seed if below
2**64, else a whole state. Words are the number of 32-bit outputs drawn since; passing over a
billion takes a few seconds.
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
_RAW = 1 << 64  # origins from this number on are whole states
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
    version, (*key, at), _ = random.getstate()
    twin = np.random.MT19937()  # the same generator; it passes over words without keeping them
    twin.state = {"bit_generator": "MT19937", "state": {"key": np.array(key, "u4"), "pos": at}}
    for begun in range(0, words, _NEAR):  # an interrupt may come between two calls
        twin.random_raw(min(words - begun, _NEAR), output=False)
    found: Any = twin.state["state"]
    return restored((version, (*found["key"].tolist(), found["pos"]), spare))


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

"""Whose turn a task is that all ranks share."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any

from lazyckpt.executors.sharing.outcomes import KEY_BYTES, key_of

# Keys of messages between two ranks about a task, whose own key follows.
_WANTS, _HANDS_ON = b"we want it made!", b"you may make it!"
_COUNT = struct.Struct("=Q")


class Turns:
    """Which rank does each common task of an opening. Methods are called under the pool's lock.

    The position of a task decides that, so all ranks agree. If that rank has left, the next one
    does it.

    Ranks may read unequally far ahead: if they are gated, or while one tries items one by one after
    the death of a worker. Then each of two ranks may wait for a task that the other would come to
    only after its own. So a rank that waits for another hands its turn on to whoever wants it.

    Attributes:
        gone: The ranks that are gone: why, or "" if they said that they leave.
        posted: Number of outcomes that this rank has posted.
        received: Number of outcomes that it has received, by rank.
    """

    def __init__(self, makers: Sequence[int]) -> None:
        """Begin an opening, in which these ranks do the common tasks."""
        self.gone: dict[int, str] = {}
        self.posted, self.received = 0, Counter[int]()
        self._makers = makers
        self._numbers: dict[bytes, int] = {}  # of tasks that this rank has asked for
        self._handed_on: dict[bytes, int] = {}  # who does a task instead; others may ask late

    def begin(self, key: bytes, number: int) -> None:
        """Note the number of a task, which decides whose turn it is."""
        self._numbers[key] = number

    def forget(self, key: bytes) -> None:
        """Forget the number of a task that this rank needs no longer."""
        self._numbers.pop(key, None)

    def maker(self, key: bytes) -> int:
        """Return the rank that does a task which this rank has asked for."""
        turn = self._numbers[key] % len(self._makers)
        first = self._handed_on.get(key, self._makers[turn])
        ranks = (first, *self._makers[turn:], *self._makers[:turn])
        return next(rank for rank in ranks if self.gone.get(rank) != "")

    def wish(self, key: bytes) -> bytes:
        """Return the message to a task's maker that this rank waits for it."""
        return _WANTS + key + _COUNT.pack(self.received[self.maker(key)])

    def hand_on(self, key: bytes, rank: int) -> bytes:
        """Note that a rank does a task in another's place; return the message that says so."""
        self._handed_on[key] = rank
        return _HANDS_ON + key + _COUNT.pack(rank)

    def is_handed_on(self, key: bytes) -> bool:
        """Return whether a rank does a task in another's place."""
        return key in self._handed_on


def wish_of(message: memoryview) -> tuple[bytes, int] | None:
    """Return the task that a rank waits for, and how many outcomes it has received from here."""
    return _parts(message) if key_of(message) == _WANTS else None


def handed_on_by(message: memoryview) -> tuple[bytes, int] | None:
    """Return the task that a rank hands on, and the rank that does it."""
    return _parts(message) if key_of(message) == _HANDS_ON else None


def _parts(message: memoryview) -> tuple[bytes, int]:
    rest = message[KEY_BYTES:]
    return key_of(rest), _COUNT.unpack(rest[KEY_BYTES:])[0]


def number_of(position: Any) -> int:
    """Return the sum of all ints of a position, which grows by the number of items passed."""
    if isinstance(position, tuple):
        return sum(map(number_of, position))
    return position if type(position) is int else 0

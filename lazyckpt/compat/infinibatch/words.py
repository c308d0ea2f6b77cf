"""What `random.Random` makes of its words, many at a time: numbers below a bound, and orders."""

from __future__ import annotations

from functools import cached_property
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.combinators.blocks import rearranged
from lazyckpt.compat.infinibatch.mersenne import Seed, check_place, placed

_FEW = 1024  # shuffled one by one up to here
_SHIFTS = [32 - (i + 1).bit_length() for i in range(_FEW)]
_AT_ONCE = 1 << 12  # words


class Words:
    """The words from a place on; what is made of them takes as many as `Random` takes for it."""

    def __init__(self, seed: Seed, origin: int, words: int) -> None:
        check_place(origin, words)
        self.origin, self.drawn = origin, words
        self.second = words  # where the second number of the last `below` was drawn from
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
            begin, drawn = self.drawn, self.tried(bound, left)
            fit = np.flatnonzero(drawn < bound)
            if left == count and len(fit):
                self.second = begin + int(fit[0]) + 1
            parts.append(drawn[fit].astype(np.int64))
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
            for word in self._take(i).tolist():  # so many words are needed at least
                if (j := word >> _SHIFTS[i]) <= i:
                    found.append(j)
                    i -= 1
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
    while ((further := held[held]) != held).any():  # chains, twice as far each time
        held = further
    return np.where(after < 0, slots, held[after])

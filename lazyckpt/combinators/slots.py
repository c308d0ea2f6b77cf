"""The slots that a reservoir draws: `Slots`, `HashedSlots`."""

from __future__ import annotations

import math
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazyckpt.combinators.reordered import check_branches, permuted
from lazyckpt.core.prng import as_array, derive, draws

Mark: TypeAlias = tuple[int, ...]

MOST = 1 << 62  # inputs


class Slots(Protocol):
    """The slots that a reservoir draws for one input after another."""

    @property
    def mark(self) -> Mark:
        """What tells, beside an input's number, where its slot comes from.

        It is that of the second input of the last draw: a state may begin there.
        """

    def draw(self, count: int) -> NDArray[np.int64]:
        """The slots of the next inputs, one at least."""

    def flush(self, occupied: NDArray[np.int64], given: int) -> NDArray[np.int64]:
        """The order in which slots are emptied at the end, `given` being counted before."""


class HashedSlots:
    """Slots that are hashes of an input's number, so that any can be had at any time.

    Input t goes to slot t while there are free ones, then to slot hash(t). The
    mark is of branches, pairs of a number of outputs and a seed: these came by
    that seed, and so did the slots of the inputs up to there.
    """

    def __init__(self, seed: int, size: int, epoch: int, number: int, *branches: int) -> None:
        check_branches("shuffle", MOST, branches)
        self._seed, self._size, self._epoch = seed, size, epoch
        self._branches, self._first, self._number = branches, number, number
        limits = [*(size + cut for cut in branches[::2]), math.inf]
        seeds = [*branches[1::2], seed]
        keys = [derive(each, "shuffle", "buffer", epoch) for each in seeds]
        self._keys = list(zip(limits, keys, strict=True))

    @property
    def mark(self) -> Mark:
        return self.mark_at(self._first + 1)

    def mark_at(self, number: int) -> Mark:
        """The branches that an input, or one after it, comes before."""
        return self._since(number - self._size)

    def draw(self, count: int) -> NDArray[np.int64]:
        self._first, self._number = self._number, self._number + count
        return self._between(self._first, self._number)

    def flush(self, occupied: NDArray[np.int64], given: int) -> NDArray[np.int64]:
        branches = list(self._since(given))
        branches[::2] = [cut - given for cut in branches[::2]]
        count, parts = len(occupied), ("shuffle", "flush", self._epoch)
        order = permuted(count, self._seed, tuple(branches), *parts)
        return occupied[as_array(order.at(range(count)))]

    def go(self, number: int) -> NDArray[np.int64]:
        """Go to an input; the result is which input each slot in use holds before it."""
        size, self._number = self._size, number
        if number <= size:
            return np.arange(number)
        held = np.full(size, -1)
        stop = number
        while stop > size and (held < 0).any():
            begin = max(size, stop - 4 * size - 1024)
            last = np.full(size, -1)
            last[self._between(begin, stop)] = np.arange(begin, stop)
            held = np.where(held < 0, last, held)
            stop = begin
        return np.where(held < 0, np.arange(size), held)

    def _since(self, given: int) -> Mark:
        branches = self._branches
        while branches and branches[0] <= given:
            branches = branches[2:]
        return branches

    def _between(self, start: int, stop: int) -> NDArray[np.int64]:
        if not self._branches:
            return draws(self._keys[0][1], start, stop, self._size)
        found = []
        for limit, key in self._keys:
            end = int(min(stop, limit))
            if start < end:
                found.append(draws(key, start, end, self._size))
                start = end
        return np.concatenate([np.arange(0), *found])

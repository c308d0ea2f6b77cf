"""What Infinibatch's own checkpoints say in other words than ours."""

from __future__ import annotations

import numpy as np

from lazyckpt.compat.infinibatch.twister import Seed, Words
from lazyckpt.errors import InvalidState

_AT_ONCE = 1 << 16


def earlier(size: int, seed: Seed, origin: int, goal: int, index: int) -> tuple[int, int]:
    """The permutation in which an index is that is counted from one that begins at `goal`."""
    if index >= 0 or size == 1:
        return goal, index % size
    words, starts = Words(seed, origin, 0), [0]
    while starts[-1] < goal:
        words.permutation(size)
        starts.append(words.drawn)
    back = -(index // size)
    if starts[-1] != goal or back >= len(starts):
        raise InvalidState("the generator of this state was not begun with the iterator's seed")
    return starts[-1 - back], index + back * size


def refilled(size: int, seed: Seed, origin: int, words: int, left: int) -> tuple[int, int]:
    """How many items a shuffle's buffer has got within so many words, and given at the end."""
    stream, arrived = Words(seed, origin, 0), 0
    taken = np.zeros(size, bool)
    while stream.drawn < words:
        drawn = stream.tried(size, min(_AT_ONCE, words - stream.drawn))
        slots = drawn[drawn < size]
        taken[slots] = True
        arrived += len(slots)
        if stream.drawn == words and drawn[-1] >= size:
            raise InvalidState("the generator of this state is within a draw")
    return arrived, int(taken.sum()) - left

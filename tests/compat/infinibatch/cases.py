"""Iterators of either make, and their comparison."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st
from infinibatch import iterators as old

import lazyckpt as lz
from lazyckpt.compat.infinibatch import iterators

Make = Callable[[Any], Any]  # of a module, an iterator of it


def native(it: Any, n: int = 30) -> Any:
    return it.NativeCheckpointableIterator(list(range(n)))


def ragged(it: Any, n: int = 30) -> Any:
    """Lists of 0 to 3 equal items: after them a stream has no random access."""
    return it.MapIterator(native(it, n), lambda x: [x] * (x % 4))


def stream(it: Any, n: int = 30) -> Any:
    return it.SelectManyIterator(ragged(it, n))


def drawing(random: Random, x: int) -> Any:
    return x, random.gauss(0, 1), random.choice("abc"), random.random()


def running(state: list[int], x: int) -> tuple[list[int], int]:
    state.append(x)
    del state[:-3]
    return state, sum(state)


def control(it: Any) -> Any:
    return it.NativeCheckpointableIterator([0, 1, 1, 0, 2] * 4)


MAKES: dict[str, Make] = {
    "native": native,
    "native, of a dict": lambda it: it.NativeCheckpointableIterator(dict.fromkeys(range(9))),
    "chunked": lambda it: it.ChunkedSourceIterator(list(range(30)), 4, 1),
    "permutation": lambda it: it.InfinitePermutationSourceIterator(list(range(11)), 3),
    "permutation, rank": lambda it: it.InfinitePermutationSourceIterator(
        list(range(11)), 3, True, 3, 1
    ),
    "permutation, few": lambda it: it.InfinitePermutationSourceIterator([1, 2, 3], 3, True, 8, 5),
    "cycle": lambda it: it.InfinitePermutationSourceIterator(list(range(7)), 3, False, 3, 2),
    "multiplex": lambda it: it.MultiplexIterator(control(it), [native(it), stream(it), native(it)]),
    "select": stream,
    "buffered": lambda it: it.BufferedShuffleIterator(stream(it), 7, 5),
    "map": lambda it: it.MapIterator(stream(it), str),
    "zip": lambda it: it.ZipIterator(native(it), stream(it)),
    "windows": lambda it: it.WindowedIterator(stream(it), 4),
    "batch": lambda it: it.FixedBatchIterator(stream(it), 4),
    "random": lambda it: it.RandomIterator(9),
    "recurrent": lambda it: it.RecurrentIterator(stream(it), running, [7]),
    "sampling": lambda it: it.SamplingRandomMapIterator(stream(it), drawing, 3),
    "blockwise": lambda it: it.BlockwiseShuffleIterator(stream(it), 8, 3),
    "buckets": lambda it: it.BucketedReadaheadBatchIterator(
        stream(it), 10, lambda x: x % 5, lambda x: 1.5 + x % 3, lambda x: x % 7 < 3, seed=4
    ),
}

MOST = 60


def some(iterator: Any, n: int = MOST) -> list[Any]:
    return list(islice(iterator, n))


def through_json(state: Any) -> Any:
    text = json.dumps(state)
    assert len(text) <= 1024
    return json.loads(text)


def place(state: Any) -> Any:
    return lz.State.from_dict(state).position


def same(make: Make, n: int = MOST) -> None:
    """The same items as the original's, and from each cut, by our state and by its own."""
    expected = some(make(old), n)
    theirs, ours = make(old), make(iterators)
    for cut in range(len(expected) + 1):
        state = ours.getstate()
        resumed = make(iterators)
        resumed.setstate(through_json(state))
        assert place(resumed.getstate()) == place(state)
        assert some(resumed, n - cut) == expected[cut:]
        resumed.setstate(theirs.getstate())
        assert some(resumed, n - cut) == expected[cut:]
        if cut < n:
            assert some(ours, 1) == some(theirs, 1) == expected[cut : cut + 1]
    if len(expected) < n:
        resumed = make(iterators)
        resumed.setstate(theirs.getstate())
        assert some(resumed) == []


def until_it_fails(iterator: Any) -> list[Any]:
    found: list[Any] = []
    with pytest.raises(KeyError):
        found.extend(iterator)
    return found


SEEDS = st.one_of(
    st.integers(), st.text(max_size=5), st.floats(allow_nan=False), st.binary(max_size=5)
)

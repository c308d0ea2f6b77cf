"""Iterators of either make, and their comparison."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from infinibatch import datasets as old_datasets
from infinibatch import iterators as old

import lazyckpt as lz
from lazyckpt.compat.infinibatch import datasets, iterators

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


def goes_on(make: Make, cut: int, n: int = MOST) -> None:
    """After a cut it is as the original, resumed by its own state too, and resumed twice."""
    ours, theirs = make(iterators), make(old)
    assert some(ours, cut) == some(theirs, cut)
    state, its_own = ours.getstate(), theirs.getstate()
    rest = some(theirs, n)
    resumed = make(iterators)
    resumed.setstate(through_json(state))
    assert place(resumed.getstate()) == place(state)
    for known in (state, its_own):
        resumed.setstate(known)
        begun = some(resumed, n // 2)
        again = make(iterators)
        again.setstate(through_json(resumed.getstate()))
        assert begun + some(again, n - n // 2) == rest
    assert some(ours, n) == rest


def until_it_fails(iterator: Any) -> list[Any]:
    found: list[Any] = []
    with pytest.raises(KeyError):
        found.extend(iterator)
    return found


SEEDS = st.one_of(
    st.integers(), st.text(max_size=5), st.floats(allow_nan=False), st.binary(max_size=5)
)
RANKS = st.integers(1, 6).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size - 1)))
COUNTS, SIZES = st.integers(0, 300), st.integers(1, 80)
ITEMS = st.integers(1, 4) | st.integers(5, 30) | st.integers(2000, 9000)


def drawn(make: Callable[..., Any], *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Make]:
    """Iterators of these arguments."""
    return st.builds(lambda *args: lambda it: make(it, *args), *arguments)


def permutation(it: Any, n: int, seed: Any, shuffle: bool, ranks: tuple[int, int]) -> Any:
    return it.InfinitePermutationSourceIterator(list(range(n)), seed, shuffle, *ranks)


def shuffling(it: Any, size: int) -> Any:
    def shuffled(random: Random, _: int) -> list[int]:
        items = list(range(size))
        random.shuffle(items)
        return items[:9]

    return it.SamplingRandomMapIterator(native(it, 4), shuffled, "x")


def buckets(it: Any, n: int, ahead: int, key: Any, size: Any, *others: Any) -> Any:
    plain = int(size) if it is old and not callable(size) else size
    return it.BucketedReadaheadBatchIterator(native(it, n), ahead, key, plain, *others)


CHUNKS = [[f"{number}-{line}" for line in range(number % 4)] for number in range(9)]


def dataset(it: Any, seed: int, shuffle: bool, windowed: bool, ranks: tuple[int, int]) -> Any:
    module, (size, rank) = datasets if it is iterators else old_datasets, ranks
    return module.chunked_dataset_iterator(
        list(range(9)), CHUNKS.__getitem__, 6, True, seed, shuffle, windowed, str.upper,
        num_instances=size, instance_rank=rank,
    )  # fmt: skip


DRAWN: dict[str, st.SearchStrategy[Make]] = {
    "IB13, chunked": drawn(
        lambda it, n, ranks: it.ChunkedSourceIterator(list(range(n)), *ranks), COUNTS, RANKS
    ),
    "IB15, permutation": drawn(
        permutation, ITEMS, SEEDS, st.booleans(), RANKS
    ),
    "IB24, buffered": drawn(
        lambda it, n, size, seed: it.BufferedShuffleIterator(native(it, n), size, seed),
        COUNTS, SIZES, SEEDS,
    ),
    "IB31, random": drawn(lambda it, seed: it.RandomIterator(seed), SEEDS),
    "IB33, shuffling": drawn(shuffling, st.sampled_from([0, 1, 2, 3, 8, 1000, 70_000])),
    "IB34, blockwise": drawn(
        lambda it, n, size, seed: it.BlockwiseShuffleIterator(native(it, n), size, seed),
        COUNTS, SIZES, SEEDS,
    ),
    "IB41, buckets": drawn(
        buckets,
        COUNTS,
        st.integers(1, 25),
        st.sampled_from([None, lambda x: x % 5]),
        st.sampled_from([1, 3, np.int64(3), lambda x: x % 4, lambda x: 2.5]),
        st.sampled_from([None, lambda x: x % 3 == 0, lambda x: x // 4]),
        st.booleans(),
        SEEDS,
    ),
    "IB46, dataset": drawn(dataset, st.integers(0, 5), st.booleans(), st.booleans(), RANKS),
}  # fmt: skip

"""`compat.gluon` against what gluon-nlp does, written by hand: a loop, and multiprocessing's pools.

gluon-nlp itself is not there to compare with, for it needs MXNet. Its way with
workers is one `apply_async` a batch, with `2 * workers` of them ahead.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.pool import ThreadPool
from typing import Any

import numpy as np
from harness import Row, compared, spent

from lazyckpt.compat.gluon import FixedBucketSampler, ShardedDataLoader, SplitSampler

N, SIZE = 32_000, 32
ROWS = np.random.default_rng(0).random((N, 64), np.float32)
LENGTHS = np.random.default_rng(1).integers(1, 100, N)


def gluon(rounds: int) -> Iterator[Row]:
    """Nanoseconds an item: an epoch of 1,000 shuffled batches of 32 rows of 64 floats each."""

    def row(what: str, ours: Callable[[], Any], theirs: Callable[[], Any]) -> Row:
        return compared("gluon", what, ours, theirs, rounds, N)

    yield row("ShardedDataLoader / loop", partial(spent, loader()), by_hand)
    with loader(num_workers=2) as ours, multiprocessing.Pool(2) as pool:
        yield row("2 processes / Pool", partial(spent, ours), partial(pooled, pool))
    with loader(num_workers=2, thread_pool=True) as ours, ThreadPool(2) as pool:
        yield row("2 threads / ThreadPool", partial(spent, ours), partial(pooled, pool))
    buckets = FixedBucketSampler(LENGTHS, SIZE, shuffle=True, seed=0)
    yield row("FixedBucketSampler / NumPy", partial(spent, buckets), bucketed)
    split = SplitSampler(N, seed=0)
    yield row("SplitSampler / NumPy", partial(spent, split), lambda: spent(shuffled()))
    state = halfway()
    resumed = partial(first, state)
    yield row("resume amid an epoch / read it up to there", resumed, partial(first, None))


def loader(**options: Any) -> ShardedDataLoader:
    return ShardedDataLoader(ROWS, SIZE, shuffle=True, seed=0, **options)


def halfway() -> dict[str, Any]:
    made = loader()
    for _, _ in zip(range(N // SIZE // 2), made, strict=False):
        pass
    return made.state_dict()


def first(state: dict[str, Any] | None) -> None:
    """The batch in the middle of an epoch."""
    made = loader()
    if state is not None:
        made.load_state_dict(state)
        next(iter(made))
        return
    for _, _ in zip(range(N // SIZE // 2 + 1), made, strict=False):
        pass


def shuffled() -> list[int]:
    order: list[int] = np.random.permutation(N).tolist()
    return order


def stacked(indices: list[int]) -> np.ndarray:
    return np.stack([ROWS[index] for index in indices])


def by_hand() -> None:
    order = shuffled()
    for start in range(0, N, SIZE):
        stacked(order[start : start + SIZE])


def pooled(pool: Any) -> None:
    order = shuffled()
    starts = iter(range(0, N, SIZE))
    waiting: deque[Any] = deque()

    def push() -> None:
        start = next(starts, None)
        if start is not None:
            waiting.append(pool.apply_async(stacked, (order[start : start + SIZE],)))

    for _ in range(4):
        push()
    while True:
        push()
        if not waiting:
            return
        waiting.popleft().get()


def bucketed() -> None:
    keys = np.searchsorted(np.arange(9, 100, 10), LENGTHS)
    batches = []
    for number in np.unique(keys):
        bucket = np.flatnonzero(keys == number)
        np.random.shuffle(bucket)
        indices = bucket.tolist()
        batches += [indices[start : start + SIZE] for start in range(0, len(indices), SIZE)]
    for number in np.random.permutation(len(batches)):
        batches[number]

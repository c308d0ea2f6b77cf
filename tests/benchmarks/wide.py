"""W1 and W2: the two workloads that the bounds on speed are about."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from harness import Row, compared, spent

import lazyckpt as lz

N = 1_000_000


def add(x: int) -> int:
    return x + 1


def keep(x: int) -> int:
    return x % 3


def w1(rounds: int) -> Iterator[Row]:
    """Ints through map, filter and batch, in Python alone."""
    data = list(range(N))

    def ours() -> None:
        spent(lz.source(data) | lz.map(add) | lz.filter(keep) | lz.batch(32))

    what = "source(list)|map|filter|batch(32), 10**6 ints / loop"
    yield compared("W1", what, ours, lambda: by_hand(data), rounds, N, 1.05)


def by_hand(data: list[int]) -> None:
    batch: list[int] = []
    for x in data:
        y = add(x)
        if keep(y):
            batch.append(y)
            if len(batch) == 32:
                batch = []


def w2(rounds: int) -> Iterator[Row]:
    """Rows of arrays, shuffled and batched, in NumPy alone."""
    x, y = table()

    def ours() -> None:
        spent(lz.columns(x=x, y=y) | lz.shuffle(seed=0) | lz.batch(256, collate=lz.stack))

    what = "columns|shuffle|batch(256, stack), 10**6 rows / permutation and take"
    yield compared("W2", what, ours, lambda: by_take(x, y), rounds, N, 1.30)


def table(n: int = N) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((n, 16), dtype=np.float32), rng.integers(0, 10, n)


def by_take(x: np.ndarray, y: np.ndarray) -> None:
    order = np.random.default_rng(0).permutation(len(x))
    for i in range(0, len(x), 256):
        some = order[i : i + 256]
        _ = {"x": x.take(some, axis=0), "y": y.take(some)}

"""The workloads that libraries are compared at, and the data they all read."""

from __future__ import annotations

from contest import Contest

CONTESTS = [
    Contest("W1", "ints through map, filter, batch of 32", 100_000),
    Contest("W2", "rows of arrays, shuffled, in batches of 256", 100_000),
]

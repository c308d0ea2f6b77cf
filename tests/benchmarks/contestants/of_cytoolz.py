"""cytoolz: toolz, compiled."""

from __future__ import annotations

import cytoolz
from contestant import Way
from cytoolz import curried
from harness import spent
from wide import add, keep


def w1(n: int) -> Way:
    data = list(range(n))
    return lambda: spent(
        cytoolz.pipe(data, curried.map(add), curried.filter(keep), curried.partition_all(32))
    )

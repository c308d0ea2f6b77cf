"""toolz: functions over iterators, composed by `pipe`."""

from __future__ import annotations

import toolz
from contestant import Way
from harness import spent
from toolz import curried
from wide import add, keep


def w1(n: int) -> Way:
    data = list(range(n))
    return lambda: spent(
        toolz.pipe(data, curried.map(add), curried.filter(keep), curried.partition_all(32))
    )

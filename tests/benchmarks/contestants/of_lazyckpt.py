"""This library."""

from __future__ import annotations

from contestant import Way
from harness import spent
from wide import add, keep, table

import lazyckpt as lz


def w1(n: int) -> Way:
    data = list(range(n))
    return lambda: spent(lz.source(data) | lz.map(add) | lz.filter(keep) | lz.batch(32))


def w2(n: int) -> Way:
    x, y = table(n)
    rows = lz.columns(x=x, y=y) | lz.shuffle(seed=0) | lz.batch(256, collate=lz.stack)
    return lambda: spent(rows)

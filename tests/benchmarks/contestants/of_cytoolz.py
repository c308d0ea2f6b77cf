"""cytoolz: toolz, compiled."""

from __future__ import annotations

import cytoolz
import cytoolz.curried
from contestant import Way
from harness import fresh

from contestants import of_toolz


def w1(n: int) -> Way:
    return of_toolz.w1(n, cytoolz)


def w3(n: int) -> Way:
    return of_toolz.w3(n, cytoolz)


def w7(n: int) -> Way:
    return fresh("from cytoolz import curried", "next(iter(curried.map(abs)(range(10))))")

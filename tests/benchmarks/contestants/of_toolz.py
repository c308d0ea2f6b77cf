"""toolz: functions over iterators, composed by `pipe`."""

from __future__ import annotations

import random

import toolz
from contestant import Way
from data import files, lines_of
from grouping import BLOCK, WINDOW, of_like_length
from harness import fresh, spent
from toolz import curried
from wide import add, keep


def w1(n: int) -> Way:
    data = list(range(n))
    return lambda: spent(
        toolz.pipe(data, curried.map(add), curried.filter(keep), curried.partition_all(32))
    )


def w3(n: int) -> Way:
    rng = random.Random(0)

    def mixed(block: tuple[bytes, ...]) -> list[bytes]:
        return rng.sample(block, len(block))

    def grouped(window: tuple[bytes, ...]) -> list[list[bytes]]:
        return of_like_length([*window], rng)

    return lambda: spent(
        toolz.pipe(
            files(n),
            curried.mapcat(lines_of),
            curried.partition_all(BLOCK),
            curried.mapcat(mixed),
            curried.partition_all(WINDOW),
            curried.mapcat(grouped),
        )
    )


def w7(n: int) -> Way:
    return fresh("from toolz import curried", "next(iter(curried.map(abs)(range(10))))")

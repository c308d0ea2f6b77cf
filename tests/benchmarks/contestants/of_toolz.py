"""toolz: functions over iterators, composed by `pipe`."""

from __future__ import annotations

import random

from contestant import Way
from data import BLOCK, WINDOW, add, files, keep, lines_of, of_like_length
from harness import fresh, spent
from toolz import curried, pipe


def w1(n: int) -> Way:
    data = list(range(n))
    stages = curried.map(add), curried.filter(keep), curried.partition_all(32)
    return lambda: spent(pipe(data, *stages))


def w3(n: int) -> Way:
    rng = random.Random(0)

    def mixed(block: tuple[bytes, ...]) -> list[bytes]:
        return rng.sample(block, len(block))

    def grouped(window: tuple[bytes, ...]) -> list[list[bytes]]:
        return of_like_length([*window], rng)

    return lambda: spent(
        pipe(
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

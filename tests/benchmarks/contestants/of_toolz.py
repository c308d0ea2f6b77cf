"""toolz: functions over iterators, composed by `pipe`."""

from __future__ import annotations

import random
from typing import Any

import toolz
import toolz.curried
from contestant import Way
from data import BLOCK, WINDOW, add, files, keep, lines_of, of_like_length
from harness import fresh, spent


def w1(n: int, library: Any = toolz) -> Way:
    data, curried = list(range(n)), library.curried
    stages = curried.map(add), curried.filter(keep), curried.partition_all(32)
    return lambda: spent(library.pipe(data, *stages))


def w3(n: int, library: Any = toolz) -> Way:
    rng, curried = random.Random(0), library.curried

    def mixed(block: tuple[bytes, ...]) -> list[bytes]:
        return rng.sample(block, len(block))

    def grouped(window: tuple[bytes, ...]) -> list[list[bytes]]:
        return of_like_length([*window], rng)

    return lambda: spent(
        library.pipe(
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

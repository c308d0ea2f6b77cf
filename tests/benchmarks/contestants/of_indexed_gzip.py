"""indexed_gzip by itself: lines in order, and shuffled lines of the first file by their offsets."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import msgspec
from contestant import Way
from files import corpus, figures
from indexed_gzip import IndexedGzipFile


def w11gzip(n: int) -> Way:
    paths = [str(path) for path in corpus("jsonl.gz", n)]

    def rows() -> Iterator[Any]:
        for path in paths:
            with IndexedGzipFile(path) as file:
                yield from map(msgspec.json.decode, file)

    def shuffled() -> Iterator[Any]:
        with IndexedGzipFile(paths[0]) as file:
            begins = [0, *accumulate(map(len, file))][:-1]
            random.Random(0).shuffle(begins)
            for begin in begins:
                file.seek(begin)
                yield msgspec.json.decode(file.readline())

    return figures(order=rows, shuffled=shuffled)

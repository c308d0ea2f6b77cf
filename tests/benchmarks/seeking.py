"""What reads gzip with seek points, used bare: a file at a time, lines by their offsets."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import orjson
from contestant import Way
from files import figures


def seeking(paths: Sequence[str], first: Callable[[str], Any], again: Callable[[str], Any]) -> Way:
    """In order through all files; shuffled through the first one, once it has its seek points."""

    def rows() -> Iterator[Any]:
        for path in paths:
            with first(path) as file:
                yield from map(orjson.loads, file)

    def shuffled() -> Iterator[Any]:
        with again(paths[0]) as file:
            begins = [0, *accumulate(map(len, file))][:-1]
            random.Random(0).shuffle(begins)
            for begin in begins:
                file.seek(begin)
                yield orjson.loads(file.readline())

    return figures(order=rows, shuffled=shuffled)

"""Two processes on whole pipelines, beside inline: expansions, filters, mixtures, packed text.

A ratio of times, as of the other cases: 0.56 is 1.8 times as fast as inline.
"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from executors import WORK, walk
from harness import Row, compared
from numpy.typing import NDArray

import lazyckpt as lz

FILES = 16
LINES = {"1 ms": 100, "cheap": 10_000}  # in each
TURNS = {"1 ms": WORK, "cheap": 0}  # of a loop, an item
BOUNDS = {"1 ms": 1 / 1.8, "cheap": 1 / 0.95}


def graphs(rounds: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        for cost, turns in TURNS.items():
            for what, (pipeline, n) in pipelines(Path(folder), turns, LINES[cost]).items():
                two = walk(pipeline, lz.processes(2))
                named = f"processes(2) / inline, {cost} an item, {what}"
                yield compared("graphs", named, two, walk(pipeline, None), rounds, n, BOUNDS[cost])


def pipelines(folder: Path, turns: int, length: int) -> dict[str, tuple[lz.Pipeline[Any], int]]:
    """The pipelines, and how many items each works on."""
    n, work = FILES * length, partial(busy, turns)
    paths = [folder / f"{number}.gz" for number in range(FILES)]
    for path in paths:
        path.write_bytes(gzip.compress(b"1 2 3\n" * length))
    kept = lz.filter(partial(is_kept, turns))
    numbers = lz.source(range(n))
    several = [lz.source(range(n // 4), name=str(each)) | lz.map(work) for each in range(4)]
    packed = numbers | lz.map(partial(tokens, turns)) | lz.filter(len)
    return {
        "gzip files expanded and parsed": (
            lz.source(paths) | lz.flat_map(lines) | lz.map(partial(parsed, turns)) | lz.filter(any),
            n,
        ),
        "a filter": (numbers | kept, n),
        "a mixture of four": (lz.mix(several, [1, 1, 1, 1], deterministic=False, seed=0), n),
        "tokenized, filtered, packed, shuffled, batched": (
            packed
            | lz.concat_then_split(512)
            | lz.shuffle(16, seed=0)
            | lz.batch(4, collate=lz.stack),
            n,
        ),
    }


def busy(turns: int, x: int) -> int:
    for y in range(turns):
        x += y & 1
    return x


def is_kept(turns: int, x: int) -> bool:
    return bool(busy(turns, x) >= 0)


def lines(path: Path) -> Iterator[bytes]:
    with gzip.open(path) as file:
        yield from file


def parsed(turns: int, line: bytes) -> list[int]:
    busy(turns, 0)
    return [int(word) for word in line.split()]


def tokens(turns: int, x: int) -> NDArray[np.int32]:
    busy(turns, x)
    return np.arange(x % 200, dtype=np.int32)

"""Two processes on whole pipelines, beside inline: expansions, filters, mixtures, packed text.

A ratio of times, as of the other cases: 0.56 is 1.8 times as fast as inline. Beside 1 ms of
Python an item, what two bare processes reach on this machine at the same time. Cheap runs are
so long that it counts little that two workers take about 50 ms to start.
"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator
from functools import partial
from multiprocessing import Process
from pathlib import Path
from typing import Any

import numpy as np
from executors import WORK, walk
from harness import Row, compared
from numpy.typing import NDArray

import lazyckpt as lz

FILES = {"1 ms": 16, "cheap": 112}
LINES = {"1 ms": 100, "cheap": 10_000}  # in each
NUMBERS = 6  # times as many where they are cheap, as one takes less than a line
TOKENS = 1 / 4  # the same of what is tokenized
TURNS = {"1 ms": WORK, "cheap": 0}  # of a loop, an item
BOUNDS = {"1 ms": 1 / 1.8, "cheap": 1 / 0.95}


def graphs(rounds: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        for cost, turns in TURNS.items():
            if turns:
                yield bare(rounds)
            files, length = FILES[cost], LINES[cost]
            for what, (pipeline, n) in pipelines(Path(folder), turns, files, length).items():
                two = walk(pipeline, lz.processes(2))
                named = f"processes(2) / inline, {cost} an item, {what}"
                yield compared("graphs", named, two, walk(pipeline, None), rounds, n, BOUNDS[cost])


def bare(rounds: int) -> Row:
    """The limit: pure Python, halved between two processes that share nothing."""
    half = FILES["1 ms"] * LINES["1 ms"] // 2

    def both() -> None:
        workers = [Process(target=busy_for, args=(half,)) for _ in range(2)]
        for each in workers:
            each.start()
        for each in workers:
            each.join()

    what = "two bare processes / one, 1 ms an item"
    return compared("graphs", what, both, lambda: busy_for(2 * half), rounds, 2 * half)


def busy_for(n: int) -> None:
    for x in range(n):
        busy(WORK, x)


def pipelines(
    folder: Path, turns: int, files: int, length: int
) -> dict[str, tuple[lz.Pipeline[Any], int]]:
    """The pipelines, and how many items each works on."""
    n, work = files * length, partial(busy, turns)
    many, few = (n, n) if turns else (NUMBERS * n, int(TOKENS * n))
    paths = [folder / f"{number}.gz" for number in range(files)]
    for path in paths:
        path.write_bytes(gzip.compress(b"1 2 3\n" * length))
    kept = lz.filter(partial(is_kept, turns))
    several = [lz.source(range(many // 4), name=str(each)) | lz.map(work) for each in range(4)]
    packed = lz.source(range(few)) | lz.map(partial(tokens, turns)) | lz.filter(len)
    return {
        "gzip files expanded and parsed": (
            lz.source(paths) | lz.flat_map(lines) | lz.map(partial(parsed, turns)) | lz.filter(any),
            n,
        ),
        "a filter": (lz.source(range(many)) | kept, many),
        "a mixture of four": (lz.mix(several, [1, 1, 1, 1], deterministic=False, seed=0), many),
        "tokenized, filtered, packed, shuffled, batched": (
            packed
            | lz.concat_then_split(512)
            | lz.shuffle(16, seed=0)
            | lz.batch(4, collate=lz.stack),
            few,
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

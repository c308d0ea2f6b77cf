"""W3, lines of real text into batches of like length; and windows, lists and pairs."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from harness import Row, compared, spent

import lazyckpt as lz
from lazyckpt.demo.data import library, lines_of

BLOCK = 65_536
WINDOW = 6_400
SIZE = 64
N = 1_000_000


def w3(rounds: int) -> Iterator[Row]:
    """64 gzip chunks, a shuffle of blocks of lines, batches by length."""
    text = library()
    paths = [text.folder / name for name in text.names]
    ours = (
        lz.source(paths)
        | lz.flat_map(lines_of)
        | lz.block_shuffle(BLOCK, seed=0)
        | lz.bucket_batch(SIZE, key=len, window_size=WINDOW, seed=0)
    )
    what = f"gzip|block_shuffle({BLOCK:,})|bucket_batch({SIZE}), {text.lines:,} lines / loop"
    n, theirs = text.lines, partial(by_hand, paths)
    yield compared("W3", what, lambda: spent(ours), lambda: spent(theirs()), rounds, n, 1.05)


def by_hand(paths: Iterable[Path]) -> Iterator[list[bytes]]:
    """The same, as one writes it."""
    rng = random.Random(0)
    lines = shuffled((line for path in paths for line in lines_of(path)), rng)
    while window := list(islice(lines, WINDOW)):
        window.sort(key=len, reverse=True)
        batches = [window[i : i + SIZE] for i in range(0, len(window), SIZE)]
        rng.shuffle(batches)
        yield from batches


def shuffled(lines: Iterator[bytes], rng: random.Random) -> Iterator[bytes]:
    while block := list(islice(lines, BLOCK)):
        rng.shuffle(block)
        yield from block


def grouping(rounds: int) -> Iterator[Row]:
    """Stages against the plainest generator that does the same."""
    data = list(range(N))
    lists = [data[i : i + 32] for i in range(0, N, 32)]
    source = lz.source(data)
    for what, ours, theirs, bound in [
        ("unbatch of 32", lz.source(lists) | lz.unbatch(), partial(flat, lists), 1.5),
        ("sliding_window(3)", source | lz.sliding_window(3), partial(windows, data, 3), 1.5),
        ("sliding_window(64)", source | lz.sliding_window(64), partial(windows, data, 64), 1.5),
        ("zip of two", lz.zip(source, source), partial(pairs, data, data), 1.5),
        ("group_by", source | lz.group_by(lambda x: x // 8), partial(runs, data), None),
    ]:
        text = f"{what} / generator"
        yield compared(
            "grouping",
            text,
            partial(spent, ours),
            lambda make=theirs: spent(make()),  # type: ignore[misc]
            rounds,
            N,
            bound,
        )


def flat(lists: Iterable[list[int]]) -> Iterator[int]:
    for each in lists:
        yield from each


def windows(data: Iterable[int], width: int) -> Iterator[tuple[int, ...]]:
    held: deque[int] = deque(maxlen=width)
    for x in data:
        held.append(x)
        if len(held) == width:
            yield tuple(held)


def pairs(a: Sequence[int], b: Sequence[int]) -> Iterator[tuple[int, int]]:
    yield from zip(a, b, strict=False)


def runs(data: Iterable[int]) -> Iterator[tuple[int, list[int]]]:
    run: list[int] = []
    for x in data:
        if run and x // 8 != run[0] // 8:
            yield run[0] // 8, run
            run = []
        run.append(x)
    yield run[0] // 8, run

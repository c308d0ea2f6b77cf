"""W3, lines of real text into batches of like length; and windows, lists and pairs."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, TypeAlias

from harness import Row, compared, spent

import lazyckpt as lz
from lazyckpt.demo.data import library, lines_of

BLOCK = 65_536
WINDOW = 6_400
SIZE = 64
N = 1_000_000

Compared: TypeAlias = tuple[str, Any, Callable[[], Any], float | None]


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
        yield from of_like_length(window, rng)


def of_like_length(window: list[bytes], rng: random.Random) -> list[list[bytes]]:
    window.sort(key=len, reverse=True)
    batches = [window[i : i + SIZE] for i in range(0, len(window), SIZE)]
    rng.shuffle(batches)
    return batches


def shuffled(lines: Iterator[bytes], rng: random.Random) -> Iterator[bytes]:
    while block := list(islice(lines, BLOCK)):
        rng.shuffle(block)
        yield from block


def grouping(rounds: int) -> Iterator[Row]:
    """Stages against the plainest generator that does the same."""
    data = list(range(N))
    odd, even = data[1::2], data[::2]
    source, halves = lz.source(data), [lz.source(odd), lz.source(even)]
    blocks = {size: [data[i : i + size] for i in range(0, N, size)] for size in (1_000, 64, 32)}

    def unbatched(size: int) -> Compared:
        ours = lz.source(blocks[size]) | lz.unbatch()
        return f"unbatch of {size:,}", ours, partial(flat, blocks[size]), 1.5

    def mixed(what: str, theirs: Callable[[], Iterator[int]], **how: Any) -> Compared:
        return f"mix of two, {what}", lz.mix(halves, [1, 1], **how), theirs, 1.5

    cases: list[Compared] = [
        unbatched(1_000),
        unbatched(64),
        unbatched(32),
        ("sliding_window(3)", source | lz.sliding_window(3), partial(windows, data, 3), 1.5),
        ("sliding_window(64)", source | lz.sliding_window(64), partial(windows, data, 64), 1.5),
        ("zip of two", lz.zip(source, source), partial(pairs, data, data), 1.5),
        (
            "zip of two, strict",
            lz.zip(source, source, strict=True),
            partial(pairs, data, data, strict=True),
            1.5,
        ),
        ("interleave of two", lz.interleave(*halves), partial(turns, [odd, even]), 1.5),
        (
            "interleave of two, blocks of 16",
            lz.interleave(*halves, block_length=16),
            partial(turns_of_blocks, [odd, even], 16),
            1.5,
        ),
        mixed("by chance", partial(by_chance, [odd, even]), seed=0),
        mixed("deterministic", partial(by_pattern, [odd, even]), deterministic=True),
        ("group_by", source | lz.group_by(lambda x: x // 8), partial(runs, data), None),
    ]
    for what, ours, theirs, bound in cases:
        yield compared(
            "grouping",
            f"{what} / generator",
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


def pairs(a: Sequence[int], b: Sequence[int], *, strict: bool = False) -> Iterator[tuple[int, int]]:
    yield from zip(a, b, strict=strict)


def turns(halves: Iterable[Iterable[int]]) -> Iterator[int]:
    """Round robin, by the recipe of the Python documentation before 3.13."""
    active, nexts = 2, cycle([iter(each).__next__ for each in halves])
    while active:
        try:
            for following in nexts:
                yield following()
        except StopIteration:
            active -= 1
            nexts = cycle(islice(nexts, active))


def turns_of_blocks(halves: Iterable[Iterable[int]], length: int) -> Iterator[int]:
    streams = [iter(each) for each in halves]
    while streams:
        for stream in tuple(streams):
            block = list(islice(stream, length))
            yield from block
            if len(block) < length:
                streams.remove(stream)


def by_chance(halves: Iterable[Iterable[int]]) -> Iterator[int]:
    streams, rng = [iter(each) for each in halves], random.Random(0)
    with suppress(StopIteration):
        while True:
            item = next(streams[rng.random() >= 0.5])
            yield item


def by_pattern(halves: Iterable[Iterable[int]]) -> Iterator[int]:
    streams = [iter(each) for each in halves]
    with suppress(StopIteration):
        for number in cycle([0, 1]):
            item = next(streams[number])
            yield item


def runs(data: Iterable[int]) -> Iterator[tuple[int, list[int]]]:
    run: list[int] = []
    for x in data:
        if run and x // 8 != run[0] // 8:
            yield run[0] // 8, run
            run = []
        run.append(x)
    yield run[0] // 8, run

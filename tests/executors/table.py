"""Pipelines of every shape that workers can have a part in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import lazyckpt as lz
from tests.executors.cases import PIPELINES, Stream, noisy, odd, square, total
from tests.executors.faults import keep
from tests.executors.graphs import inside, lazily, some

Pipe = lz.Pipeline[Any]
WIDTH = 34  # pipelines joined whose position is too wide to be taken after every item


def large(x: int) -> Iterator[Any]:
    """More than a part of a task may fill."""
    return (np.full(50_000 + n, x) for n in range(x % 7))


def two_thirds(x: Any) -> Any:
    if len(x) % 3 == 1:
        raise ValueError(len(x))
    return x


def picks(x: int) -> int:
    return x * x % 7 % 2


def sums(sum_: int, x: int) -> tuple[int, int]:
    return sum_ + x, sum_


def below(x: int) -> bool:
    return x < 40


def halved(x: int) -> int:
    if x % 2:
        raise ValueError(x)
    return x // 2


def partly(x: int) -> Iterator[int]:
    yield x
    yield halved(x)


def fails_at_30(x: Any) -> Any:
    if 30 in np.ravel(x):
        raise ValueError(x)
    return x


class Pair(NamedTuple):
    image: Any
    label: int


def made(rng: np.random.Generator, x: int) -> Any:
    image = rng.normal(size=(60, 70))
    return [
        Pair(image, x),
        {"a": np.full(5000, x), "b": [None, "text", image.T]},
        image[::2],
        np.float32(x),
    ][x % 4]


class Attributes(dict[str, int]):
    """A dict whose keys are its attributes too; others are a KeyError."""

    __getattr__ = dict.__getitem__

    def __call__(self, x: int) -> Any:
        return Attributes(x=self["scale"] // x)


class Unreadable:
    """A stream that ends with an error."""

    def __iter__(self) -> Iterator[int]:
        yield from range(9)
        raise OSError("no network")


def stream(n: int) -> lz.Pipeline[int]:
    return lz.source(range(2 * n)) | lz.filter(odd) | lz.map(square)


def mixed(fn: Any = int, sizes: tuple[int, ...] = (18, 30, 25), **options: Any) -> Pipe:
    parts = [lz.source(range(n)) | lz.map(fn) | lz.batch(1 + n % 2) for n in sizes]
    return lz.mix(parts, [3, 1, 2], **{"seed": 1, **options})


def streams(**options: Any) -> Pipe:
    parts = [lz.source(Stream(n)) | lz.map(square) | lz.filter(odd) for n in (12, 20)]
    others: list[Pipe] = [
        lz.source(range(9)) | lz.map(square),
        lz.source(range(7)) | lz.flat_map(some),
    ]
    return lz.mix([*parts, *others], [2, 2, 1, 1], **{"seed": 1, **options})


def multiplexed() -> Pipe:
    control = lz.source([n for n, size in enumerate((12, 20, 9)) for _ in range(size)])
    parts = [lz.source(range(n)) | lz.map(square) for n in (12, 20, 9)]
    return lz.multiplex(control | lz.shuffle(seed=2), parts)


def wide(size: int = 3, fn: Any = square) -> lz.Pipeline[int]:
    return lz.interleave(*[lz.source(Stream(size)) | lz.map(fn) for _ in range(WIDTH)])


def choosing(*lengths: int, streams: tuple[int, ...] = ()) -> Pipe:
    ends = [
        lz.source(range(2 * n)) | lz.filter(odd) if number in streams else lz.source(range(n))
        for number, n in enumerate(lengths)
    ]
    selector, *several = [
        each | lz.map(fn) for each, fn in zip(ends, (picks, square, str), strict=True)
    ]
    return lz.case(selector, *several) | lz.enumerate()


NUMBERS = lz.source(range(24))
STREAM = lz.source(Stream(24))

TABLE: dict[str, Pipe] = PIPELINES | {
    # with random access
    "nothing": lz.source(range(0)) | lz.map(square),
    "repeated": NUMBERS | lz.shuffle(seed=3) | lz.repeat(2) | lz.random_map(noisy, seed=0),
    "a shard of an endless one": NUMBERS
    | lz.repeat()
    | lz.map(str)
    | lz.shard(num_shards=2, index=1),
    "attributes of their own": lz.source([3, 2, 1, 0]) | lz.map(Attributes(scale=6)),
    # some outputs of each item
    "kept": NUMBERS | lz.map(square) | lz.filter(odd) | lz.map(str),
    "nothing kept": lz.source(range(9)) | lz.filter(lambda x: not keep(x)) | lz.map(square),
    "counted": NUMBERS | lz.filter(odd) | lz.enumerate() | lz.batch(2) | lz.map(str),
    "expanded": NUMBERS | lz.flat_map(some) | lz.filter(odd) | lz.map(square) | lz.repeat(2),
    "twice": NUMBERS | lz.flat_map(lazily) | lz.map(lambda x: [x, 7]) | lz.unbatch() | lz.tap(str),
    "inside": NUMBERS | lz.shuffle(seed=0) | lz.flat_map(inside) | lz.random_map(noisy, seed=0),
    "large outputs": NUMBERS | lz.flat_map(large),
    "large ones kept": NUMBERS | lz.flat_map(large) | lz.filter(len) | lz.enumerate(),
    "ends amid": NUMBERS
    | lz.map(square)
    | lz.take_while(below)
    | lz.flat_map(some)
    | lz.map(square),
    "several at a time": NUMBERS | lz.interleave_map(some, cycle_length=2) | lz.map(square),
    # a stream
    "nothing of a stream": lz.source(Stream(0)) | lz.map(square) | lz.filter(odd),
    "one": lz.source(Stream(1)) | lz.map(square) | lz.filter(keep) | lz.map(str),
    "window": STREAM
    | lz.map(square)
    | lz.shuffle(buffer_size=8, seed=0)
    | lz.batch(3)
    | lz.map(str),
    "windows": NUMBERS
    | lz.filter(keep)
    | lz.sliding_window(2)
    | lz.starmap(max)
    | lz.group_by(odd),
    "own state": STREAM | lz.map(square) | lz.scan(sums, 0) | lz.tap(str) | lz.flat_map(some),
    "of arrays": STREAM | lz.filter(lambda x: x % 5) | lz.random_map(made, seed=2),
    "collated": NUMBERS | lz.filter(odd) | lz.batch(2, collate=total) | lz.map(str) | lz.batch(2),
    # joined
    "in turn": lz.concat(stream(5), NUMBERS | lz.map(square)) | lz.skip(2),
    "side by side": lz.interleave(stream(9), NUMBERS | lz.flat_map(some)) | lz.map(str),
    "zipped": lz.zip(stream(9), NUMBERS | lz.map(square)) | lz.flat_map(list),
    "mix": mixed(),
    "mix of exact shares": mixed(deterministic=True) | lz.map(str) | lz.tap(str),
    "mix to the end of all": mixed(stop="all_exhausted") | lz.filter(len),
    "mix forever": mixed(stop="never") | lz.shard(num_shards=2, index=1),
    "mix, dealt": mixed() | lz.repeat(2) | lz.shard(num_shards=3, index=1) | lz.filter(keep),
    "mix of streams": streams(),
    "mix of streams of exact shares": streams(deterministic=True) | lz.map(str),
    "mix of streams to the end of all": streams(stop="all_exhausted"),
    "mix of streams forever": streams(stop="never") | lz.batch(2),
    "mix of large outputs": lz.mix([NUMBERS | lz.flat_map(large)] * 2, [1, 2], seed=0),
    "controlled": multiplexed(),
    "mixtures mixed": lz.mix([mixed(), multiplexed()], lambda t: [1 + t % 3, 1], seed=0),
    # chosen
    "chosen": choosing(9, 20, 20),
    "chosen by a stream": choosing(20, 9, 20, streams=(0,)) | lz.map(str),
    "chosen of a stream": choosing(20, 20, 9, streams=(1,)) | lz.filter(keep),
    "chosen by and of streams": choosing(15, 15, 15, streams=(0, 2)),
    "switched": lz.switch(
        STREAM | lz.map(odd), lz.count(50) | lz.batch(2), choosing(20, 20, 20, streams=(0,))
    )
    | lz.map(str),
    # of positions that are too wide to be taken after every item
    "wide": wide(),
    "wide mix": lz.mix([lz.source(Stream(5)) | lz.map(square)] * WIDTH, [1] * WIDTH, seed=0)
    | lz.repeat(4),
    "wide, mapped": wide() | lz.map(square) | lz.filter(keep) | lz.batch(2),
    "wide, expanded": wide() | lz.flat_map(some) | lz.map(square),
    "wide window": wide() | lz.shuffle(buffer_size=7, seed=0),
    "wide, own state": wide() | lz.scan(sums, 0),
    # up to an error
    "fails": NUMBERS | lz.map(halved),
    "fails amid an output": lz.source(range(0, 60, 2)) | lz.flat_map(partly) | lz.map(fails_at_30),
    "fails in a stream": lz.source(Stream(40)) | lz.map(fails_at_30) | lz.batch(2),
    "fails before a stream": lz.source(range(40))
    | lz.map(fails_at_30)
    | lz.filter(keep)
    | lz.batch(2),
    "fails in a mix": mixed(sizes=(60, 60, 60)) | lz.map(fails_at_30) | lz.map(str),
    "fails in a part": mixed(fails_at_30, (60, 60, 60)),
    "fails when dealt": mixed(fails_at_30, (60, 60, 60)) | lz.shard(num_shards=3, index=1),
    "fails before it is dealt": mixed(fails_at_30, (60, 60, 60))
    | lz.shuffle(buffer_size=5, seed=0)
    | lz.shard(num_shards=3, index=1),
    "fails when wide": wide() | lz.enumerate() | lz.map(fails_at_30),
    "fails to be read": lz.source(Unreadable()) | lz.map(square) | lz.filter(keep),
    "fails to choose": lz.case(STREAM | lz.map(lambda x: 5 * (x > 6)), NUMBERS, NUMBERS),
    "fails where it is chosen": lz.case(
        lz.source(Stream(40)) | lz.map(picks), *[lz.source(range(40)) | lz.map(fails_at_30)] * 2
    ),
}
SKIPPING: dict[str, Pipe] = {
    "mapped": NUMBERS | lz.map(halved) | lz.map(square) | lz.batch(2),
    "filtered": NUMBERS | lz.filter(halved) | lz.tap(halved) | lz.map(square),
    "expanded": NUMBERS | lz.flat_map(partly) | lz.map(square),
    "expanded in parts": lz.source(range(14)) | lz.flat_map(large) | lz.map(two_thirds),
    "expanded and mapped": NUMBERS | lz.flat_map(some) | lz.map(halved) | lz.flat_map(partly),
    "a stream": STREAM | lz.map(halved) | lz.filter(keep) | lz.map(halved),
    "collated": NUMBERS | lz.filter(keep) | lz.batch(3, collate=fails_at_30) | lz.map(str),
    "a window": NUMBERS | lz.map(halved) | lz.shuffle(buffer_size=5, seed=0) | lz.map(square),
    "mixed": mixed(halved) | lz.map(fails_at_30),
    "mixed and dealt": mixed(halved) | lz.shard(num_shards=3, index=1) | lz.map(fails_at_30),
    "side by side": lz.interleave(NUMBERS | lz.flat_map(partly), STREAM | lz.map(halved))
    | lz.map(str),
    "wide": wide(fn=halved),
    "wide, mapped": wide() | lz.map(halved) | lz.map(square) | lz.batch(3),
    "wide, filtered": wide() | lz.filter(halved) | lz.scan(sums, 0),
    "wide, expanded": wide() | lz.flat_map(partly) | lz.map(square),
    "wide window": wide() | lz.map(halved) | lz.shuffle(buffer_size=7, seed=0) | lz.map(square),
}
ROWS = [
    *((each, "raise") for each in TABLE.items()),
    *((each, "skip") for each in SKIPPING.items()),
]
NAMES = [f"{name}{', left out' * (on_error == 'skip')}" for (name, _), on_error in ROWS]

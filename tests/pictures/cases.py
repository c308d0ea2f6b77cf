"""Pipelines to look at, among them bad ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import lazyckpt as lz

HEBREW = "\u05e9\u05dc\u05d5\u05dd"
SCRIPT = "<script>alert('x')</script>"


class Unshowable:
    """An item whose repr raises."""

    def __repr__(self) -> str:
        raise ValueError("no repr")


class Endlessly:
    """An item whose repr is 10 MB."""

    def __repr__(self) -> str:
        return "x" * 10_000_000


class Counting:
    """A table that counts how many of its items are read."""

    def __init__(self, data: Sequence[Any]) -> None:
        self.data, self.read = data, list[int]()

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        self.read.append(index)
        return self.data[index]


class Stream:
    """An iterable that counts how many of its items are read."""

    def __init__(self, data: Sequence[int]) -> None:
        self.data, self.read = data, list[int]()

    def __iter__(self) -> Iterator[int]:
        for number in self.data:
            self.read.append(number)
            yield number


def tokenize(text: Any) -> list[str]:
    return str(text).split()


def mixture() -> lz.Pipeline[Any]:
    """Two branches, as in a training run."""
    web = lz.source(range(600_000), name="web") | lz.shuffle(seed=0) | lz.map(tokenize)
    code = lz.source(range(90_000), name="code") | lz.shuffle(seed=1) | lz.flat_map(tokenize)
    mixed = lz.mix([web, code], [0.7, 0.3], seed=2, stop="never")
    sharded = mixed | lz.shard(num_shards=8, index=0)
    return sharded | lz.shuffle(4096, seed=3) | lz.batch(32)


def long(stages: int = 200) -> lz.Pipeline[Any]:
    found: Any = lz.source(range(9))
    for _ in range(stages):
        found = found | lz.map(str)
    return found


def wide(branches: int = 50) -> lz.Pipeline[Any]:
    parts = [lz.source(range(n + 1), name=f"file{n}") | lz.batch(2) for n in range(branches)]
    return lz.interleave(*parts) | lz.take(7)


def doubled(depth: int = 25) -> lz.Pipeline[Any]:
    """As many stages as there are paths through it: 2 to the power of its depth."""
    found: Any = lz.source(range(9))
    for _ in range(depth):
        found = lz.concat(found, found)
    return found


def nested(depth: int = 9) -> lz.Pipeline[Any]:
    found: Any = lz.source(range(9), name="a name of some length")
    for _ in range(depth):
        found = lz.mix([found | lz.shuffle(16, seed=1), lz.count()], [1, 2.5], seed=0)
    return found | lz.batch(2)


def foreign() -> lz.Pipeline[Any]:
    """With texts that may break a page."""
    first = lz.source([SCRIPT, HEBREW], name=HEBREW) | lz.map(tokenize)
    second = lz.source([Unshowable(), Endlessly()], name=SCRIPT) | lz.take(2)
    third = lz.source(["\u202egnp.exe \x1b[31m"], name="w" * 40)
    return lz.zip(first, second, third) | lz.gather(list(range(1)))


def selected() -> lz.Pipeline[Any]:
    chosen = lz.case(lz.source([0, 1, 0]), lz.count(), lz.count(100))
    return lz.switch(lz.source([True, False]), chosen, lz.count() | lz.map(str))


PIPELINES = {
    each.__name__: each for each in (mixture, long, wide, doubled, nested, foreign, selected)
}

"""Random pipelines of the shapes that are hardest to share among workers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import chain
from operator import or_
from typing import Any
from zlib import crc32

from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing import strategies
from tests.executors.cases import Stream
from tests.failures.cases import networks

Pipe = lz.Pipeline[Any]


def number(x: Any) -> int:
    return int(x) if isinstance(x, int) else crc32(repr(x).encode())


class Heavy(int):
    """It is said to fill so much that a task has hardly two of them."""

    nbytes = 9 << 20


def heavy(x: Any) -> int:
    return Heavy(number(x))


def third(x: Any) -> int:
    return number(x) % 3


def some(x: Any) -> list[Any]:
    return [x] * (number(x) % 4)


def lazily(x: Any) -> Iterator[int]:
    yield from range(third(x))


def inside(x: Any) -> lz.Pipeline[int]:
    return lz.source(range(number(x) % 5)) | lz.filter(third)


def fails(x: Any) -> Any:
    if number(x) % 5 == 3:
        raise ValueError(x)
    return x


def partly(x: Any) -> Iterator[Any]:
    yield x
    yield fails(x)


SOURCES: list[Pipe] = [
    lz.source(range(13)),
    lz.source([*range(30, 39)]) | lz.shuffle(seed=0) | lz.repeat(2),
    lz.source(range(12)) | lz.map(number) | lz.shard(num_shards=2, index=0),
    lz.source(range(8)) | lz.take(0),
    lz.zip(lz.source(range(6)), lz.source(range(7))) | lz.starmap(max),
]
STREAMS: list[Pipe] = [
    lz.source(range(14)) | lz.filter(third),
    lz.source(Stream(11)),
    lz.source(range(9)) | lz.flat_map(some) | lz.shuffle(4, seed=2),
]
ITEMWISE: list[Any] = [
    lz.filter(third),
    lz.filter(bool),
    lz.flat_map(some),
    lz.flat_map(lazily),
    lz.flat_map(inside),
    lz.map(lambda x: [x, 7]) | lz.unbatch(),
    lz.map(number),
    lz.map(heavy),
    lz.tap(number),
]
FAILING: list[Any] = [lz.map(fails), lz.filter(fails), lz.flat_map(partly), lz.tap(fails)]
TAILS: list[Any] = [
    lz.map(number),
    lz.batch(2),
    lz.enumerate(),
    lz.random_map(lambda rng, x: (rng.integers(9), x), seed=0),
    lz.shuffle(3, seed=1),
    lz.take_while(lambda x: number(x) != 11),
    lz.map(number) | lz.sliding_window(2) | lz.starmap(max),
    lz.repeat(2),
    lz.skip(2),
    lz.shard(num_shards=2, index=1),
    lz.group_by(third),
    lz.interleave_map(some, cycle_length=2),
    lz.map(number) | lz.flat_map(some),
]


def piped(source: Pipe, *stages: list[Any]) -> Pipe:
    return reduce(or_, chain.from_iterable(stages), source)


def some_of(stages: list[Any], most: int, least: int = 0) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(stages), min_size=least, max_size=most)


def joined(several: list[Pipe]) -> st.SearchStrategy[Pipe]:
    weights = list(range(1, 1 + len(several)))
    makers: list[Any] = [
        lz.concat,
        lz.interleave,
        lambda *parts: lz.zip(*parts) | lz.flat_map(list),
        lambda *parts: lz.mix(parts, weights, seed=3),
        lambda *parts: lz.mix(parts, weights, deterministic=True),
        lambda *parts: lz.multiplex(lz.source([*range(len(parts))]), parts),
    ]
    if all(part.machine.length != 0 for part in several):  # or they are refused
        makers.append(lambda *parts: lz.mix(parts, weights, seed=1, stop="all_exhausted"))
    return st.sampled_from(makers).map(lambda make: make(*several))


def choosing(selector: Pipe, several: list[Pipe]) -> Pipe:
    if len(several) == 2:
        return lz.switch(selector | lz.map(third), *several)
    count = len(several)
    return lz.case(selector | lz.map(lambda x: number(x) % count), *several)


def several(parts: st.SearchStrategy[Pipe]) -> st.SearchStrategy[list[Pipe]]:
    return st.lists(parts, min_size=1, max_size=3)


_parts = st.builds(
    piped, st.sampled_from(SOURCES), some_of(ITEMWISE, 3), some_of(TAILS[:4], most=1)
)
_arms = st.builds(piped, st.sampled_from(SOURCES + STREAMS), some_of(ITEMWISE + TAILS[:4], 2))
_chosen = st.builds(choosing, _arms, several(_arms))
_fallible = st.builds(piped, st.sampled_from(SOURCES), some_of(FAILING + ITEMWISE, 4, least=1))

GRAPHS: dict[str, st.SearchStrategy[Pipe]] = {
    "any": strategies.pipelines(),
    "outputs": st.builds(
        piped, _parts | several(_parts).flatmap(joined), some_of(TAILS + ITEMWISE, 2)
    ),
    "chosen": st.builds(
        piped,
        _chosen | st.builds(choosing, _arms, several(_chosen | _arms)),
        some_of(TAILS + ITEMWISE, 2),
    ),
    "dealt": st.builds(
        piped,
        several(_parts | _fallible).flatmap(joined),
        some_of([lz.repeat(2), lz.take(20), lz.skip(3), lz.shuffle(4, seed=1)], 2),
        st.just([lz.shard(num_shards=3, index=1)]),
        some_of(TAILS + ITEMWISE, 2),
    ),
    "fallible": st.builds(
        piped,
        _fallible | several(_fallible).flatmap(joined),
        some_of([lz.map(fails), lz.batch(2), lz.enumerate()], 2),
    ),
    "left out": networks(),
}

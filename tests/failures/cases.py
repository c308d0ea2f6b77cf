"""Functions that fail, and pipelines of stages that leave some out."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing.laws import Stream


def picky(x: int) -> int:
    if x % 7 == 3:
        raise ValueError(f"{x}")
    return x


class Data:
    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> int:
        return picky(index)


NUMBERS = lz.source(range(50))


class Rejecting:
    """A function that fails on some items."""

    def __init__(self, bad: frozenset[int]) -> None:
        self.bad = bad

    def __call__(self, x: int) -> int:
        if x in self.bad:
            raise ValueError(f"{x}\nis bad")
        return x


class Sum(Rejecting):
    def __call__(self, x: Any) -> int:
        return super().__call__(sum(x))


PADDED = {"remainder": "pad", "pad": 0}


class Stumbling(Rejecting):
    """Several for each, of which some fail in the middle."""

    def __call__(self, x: int) -> Any:
        yield x
        yield super().__call__(x + 1)
        yield x + 2


class Asking(Rejecting):
    def __call__(self, x: int) -> int:
        return super().__call__(x) % 5


def doubled(x: int) -> list[int]:
    return [x, x]


def halved(x: int) -> int:
    return x // 2


bad = st.frozensets(st.integers(0, 30), max_size=12)


def stages() -> st.SearchStrategy[lz.Stage[Any, Any]]:
    """From ints to ints; some leave some out, and some hold a window."""
    few = st.integers(1, 5)
    return st.one_of(
        bad.map(lambda b: lz.map(Rejecting(b))),
        bad.map(lambda b: lz.filter(Asking(b))),
        bad.map(lambda b: lz.flat_map(Stumbling(b))),
        st.builds(lambda n, b: lz.batch(n, collate=Sum(b)), few, bad),
        st.builds(lambda n, b: lz.sliding_window(n) | lz.map(Sum(b)), few, bad),
        st.builds(lambda n, b: lz.sliding_window(n, stride=2) | lz.map(Sum(b)), few, bad),
        st.builds(lambda n: lz.shuffle(n, seed=n), st.integers(1, 9)),
        st.builds(lambda n: lz.block_shuffle(n, seed=n), few),
        st.builds(
            lambda n, b: lz.bucket_batch(n, key=abs, window_size=2 * n, seed=n) | lz.map(Sum(b)),
            few,
            bad,
        ),
        st.builds(lambda n, b: lz.group_by(halved) | lz.map(Second(b)), few, bad),
        st.builds(lambda n: lz.interleave_map(doubled, cycle_length=n), few),
        bad.map(lambda b: lz.enumerate() | lz.map(Sum(b))),
        st.builds(lambda n: lz.repeat(n), st.integers(1, 3)),
        st.builds(lambda n: lz.take(n), st.integers(0, 30)),
        st.builds(lambda n: lz.skip(n), few),
        st.builds(
            lambda n, i, e: lz.shard(num_shards=n, index=i % n, **e),
            few,
            few,
            st.sampled_from([{}, {"remainder": "drop"}, {"remainder": "repeat"}, PADDED]),
        ),
    )


class Second(Rejecting):
    def __call__(self, x: Any) -> int:
        return super().__call__(sum(x[1]))


@st.composite
def lines(draw: st.DrawFn, most: int = 5) -> lz.Pipeline[int]:
    size = draw(st.integers(0, 20))
    data = Stream(range(size)) if draw(st.booleans()) else range(size)
    line: Any = lz.source(data)
    for stage in draw(st.lists(stages(), max_size=most)):
        line = line | stage
    return line


@st.composite
def networks(draw: st.DrawFn) -> lz.Pipeline[int]:
    """Pipelines that leave some out in parts, before windows, and again and again."""
    kind = draw(st.sampled_from(["line", "line", "concat", "interleave", "mix", "in turn"]))
    if kind == "line":
        line: Any = draw(lines())
    else:
        parts = draw(st.lists(lines(2), min_size=2, max_size=3))
        if kind in ("mix", "in turn"):
            is_fixed = kind == "in turn"
            line = lz.mix(parts, [1, 2, 1][: len(parts)], seed=0, deterministic=is_fixed)
        else:
            line = lz.concat(*parts) if kind == "concat" else lz.interleave(*parts)
        for stage in draw(st.lists(stages(), max_size=3)):
            line = line | stage
    return line | lz.take(60)

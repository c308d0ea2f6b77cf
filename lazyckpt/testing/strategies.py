"""Hypothesis strategies: random pipelines of the built-in combinators."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.pipeline import Pipeline, Stage
from lazyckpt.testing.laws import Stream

# Functions that take any item, by name so that they pickle.


def tagged(item: Any) -> Any:
    return ("tagged", item)


def counted(count: int, item: Any) -> tuple[int, Any]:
    return count + 1, (count, item)


def collected(seen: list[int], item: Any) -> tuple[list[int], Any]:
    seen.append(_crc(item) % 7)
    return seen[-3:], (item, sum(seen))


def kept(item: Any) -> bool:
    return _crc(item) % 3 != 0


def several(item: Any) -> list[Any]:
    return [(item, i) for i in range(_crc(item) % 4)]


def lazily(item: Any) -> Any:
    return (x for x in several(item))


def piped(item: Any) -> Pipeline[Any]:
    return lz.source(several(item)) | lz.shuffle(seed=_crc(item))


def _crc(item: Any) -> int:
    return zlib.crc32(repr(item).encode())


seeds = st.integers(0, 2**70)
sizes = st.integers(1, 7)
counts = st.integers(0, 12)


def sources() -> st.SearchStrategy[Pipeline[Any]]:
    """Sources with indices, with arrays, and streams; of 0 to 20 items, None and arrays too."""
    items = st.lists(st.none() | st.integers(-9, 9) | st.text(max_size=2), max_size=20)
    lengths = st.integers(0, 20)
    return st.one_of(
        items.map(lz.source),
        items.map(Stream).map(lz.source),
        lengths.map(range).map(lz.source),
        lengths.map(lambda n: lz.source(np.arange(2 * n).reshape(n, 2))),
        lengths.map(lambda n: lz.columns(x=np.arange(n), y=np.linspace(0, 1, n))),
    )


@st.composite
def _shards(draw: st.DrawFn, contiguous: bool) -> Stage[Any, Any]:
    num_shards = draw(sizes)
    index = draw(st.integers(0, num_shards - 1))
    even: Any = draw(st.sampled_from([None, "pad", "drop"]))
    return lz.shard(num_shards=num_shards, index=index, contiguous=contiguous, even=even)


# Stages that want random access, and those that do instead where there is none.
INSTEAD = {"shuffle": "shuffle(buffer)", "shard(contiguous)": "shard"}

STAGES: dict[str, st.SearchStrategy[Stage[Any, Any]]] = {
    "map": st.just(lz.map(tagged)),
    "filter": st.just(lz.filter(kept)),
    "flat_map": st.sampled_from([several, lazily, piped]).map(lz.flat_map),
    "interleave_map": st.builds(
        lz.interleave_map,
        st.sampled_from([several, lazily, piped]),
        cycle_length=st.integers(1, 4),
        block_length=st.integers(1, 3),
    ),
    "unbatch": sizes.map(lambda n: lz.batch(n) | lz.unbatch()),
    "scan": st.sampled_from([lz.scan(counted, 0), lz.scan(collected, list[int]())]),
    "take": counts.map(lz.take),
    "skip": counts.map(lz.skip),
    "batch": st.builds(lz.batch, sizes, drop_last=st.booleans()),
    "shuffle": st.builds(lz.shuffle, seed=seeds),
    "shuffle(buffer)": st.builds(lz.shuffle, sizes, seed=seeds),
    "block_shuffle": st.builds(lz.block_shuffle, sizes, seed=seeds),
    "repeat": st.builds(lz.repeat, st.integers(0, 3)),
    "repeat for ever": counts.map(lambda n: lz.repeat() | lz.take(n)),
    "shard": _shards(contiguous=False),
    "shard(contiguous)": _shards(contiguous=True),
}


def _evenly(*parts: Pipeline[Any]) -> Pipeline[Any]:
    shortest = min(len(list(part)) for part in parts)
    return lz.zip(*[part | lz.take(shortest) for part in parts], strict=True)


def _mixed(stop: Any, **options: Any) -> Callable[..., Pipeline[Any]]:
    def join(*parts: Pipeline[Any]) -> Pipeline[Any]:
        if stop != "first_exhausted":  # nothing could begin again
            parts = tuple(lz.concat(part, lz.source(["last"])) for part in parts)
        weights = options.get("weights", [2.5, 1, 0, 1.5][: len(parts)])
        joined = lz.mix(parts, **{**options, "weights": weights, "stop": stop})
        return joined | lz.take(25) if stop == "never" else joined

    return join


def _multiplexed(*parts: Pipeline[Any]) -> Pipeline[Any]:
    endless = [lz.concat(part, lz.source(["last"])) | lz.repeat() for part in parts]
    control = [_crc(n) % len(parts) for n in range(17)]
    return lz.multiplex(lz.source(control) | lz.shuffle(4, seed=0), endless)


JOINS: dict[str, Callable[..., Pipeline[Any]]] = {
    "zip": lz.zip,
    "zip(strict)": _evenly,
    "concat": lz.concat,
    "interleave": lz.interleave,
    "interleave(blocks)": lambda *parts: lz.interleave(*parts, block_length=3),
    "mix": _mixed("first_exhausted", seed=3),
    "mix(all)": _mixed("all_exhausted", seed=4),
    "mix(never)": _mixed("never", seed=5),
    "mix(deterministic)": _mixed("first_exhausted", deterministic=True),
    "mix(deterministic, all)": _mixed("all_exhausted", deterministic=True),
    "mix(deterministic, never)": _mixed("never", deterministic=True),
    "multiplex": _multiplexed,
}


@st.composite
def pipelines(draw: st.DrawFn, max_stages: int = 6) -> Pipeline[Any]:
    """A random pipeline of built-in combinators, finite, of few items."""
    if max_stages > 2 and draw(st.integers(0, 3)) == 0:
        join = draw(st.sampled_from(sorted(JOINS)))
        parts = draw(st.lists(pipelines(max_stages=max_stages // 2), min_size=1, max_size=3))
        pipeline = JOINS[join](*parts)
    else:
        pipeline = draw(sources())
    for _ in range(draw(st.integers(0, max_stages))):
        name = draw(st.sampled_from(sorted(STAGES)))
        if name in INSTEAD and not _has_access(pipeline):
            name = INSTEAD[name]
        if name == "repeat for ever" and not list(pipeline):
            name = "repeat"
        pipeline = pipeline | draw(STAGES[name])
    return pipeline


def _has_access(pipeline: Pipeline[Any]) -> bool:
    return pipeline.machine.skip is not None and isinstance(pipeline.machine.length, int)

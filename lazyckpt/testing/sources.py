"""Hypothesis strategies for sources, and for arguments of stages."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

import lazyckpt as lz
from lazyckpt.pipeline import Pipeline
from lazyckpt.testing.functions import (
    countdown,
    crc,
    falling_lists,
    features,
    halved,
    kept,
    parity,
    spelled,
    tagged,
    tokens,
)
from lazyckpt.testing.laws import Stream

seeds = st.integers(0, 2**70)
sizes = st.integers(1, 7)
counts = st.integers(0, 12)


_items = st.lists(st.none() | st.integers(-9, 9) | st.text(max_size=2), max_size=20)
_lengths = st.integers(0, 20)
_dtypes = st.sampled_from(["i8", "?", "f2", "c8", "U2", "S2", "M8[s]", "m8[s]", "O", "i2,f4"])
_weights = st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any)


overflows = st.sampled_from(["split", "truncate", "drop"])
remainders = st.sampled_from([None, "drop", "pad", "repeat"])
indices = st.lists(st.integers(-5, 4), max_size=8)
_steps = st.sampled_from([1, 2, -1, -2])
spans = st.builds(range, st.integers(-5, 4), st.integers(-6, 5), _steps)
falling = st.builds(range, st.integers(0, 4), st.just(-1), st.sampled_from([-1, -2]))


def apart(numbers: list[int]) -> list[tuple[int, int]]:
    """Return ranges that don't overlap.

    Args:
        numbers: Starts and stops, in any order.
    """
    edges = sorted(set(numbers))
    return list(zip(edges[::2], edges[1::2], strict=False))


ranges = st.lists(st.integers(0, 5), max_size=6).map(apart)


def array(indices: list[int]) -> NDArray[np.int64]:
    return np.array(indices, np.int64)


def small(indices: list[int]) -> NDArray[np.int8]:
    return np.array(indices, np.int8)


def _sampled(items: list[Any], seed: int, replacement: bool, more: int | None) -> Pipeline[Any]:
    weights = [1 + crc(item) % 3 if number else 0 for number, item in enumerate(items)]
    if not any(weights):
        return lz.source(items) | lz.take(0)
    most = more if replacement or more is None else min(more, len(items) - 1)
    stage = lz.sample(weights, seed=seed, replacement=replacement, num_samples=most)
    return lz.source(items) | stage


def _classed(items: list[Any], seed: int, more: int | None) -> Pipeline[Any]:
    labels = [parity(item) for item in items]
    return lz.source(items) | lz.sample_balanced(labels, seed=seed, num_samples=more)


def _oversampled(items: list[Any], seed: int) -> Pipeline[Any]:
    return lz.source(items) | lz.oversample(np.array([kept(x) for x in items], bool), seed=seed)


def _planned(items: list[Any], length: int, overflow: Any, window: Any, seed: int) -> Pipeline[Any]:
    sizes = [len(tokens(item)) for item in items]
    made = features if seed % 2 else tokens
    options: dict[str, Any] = {"seed": seed, "overflow": overflow, "window_size": window}
    plan = lz.plan_packing(sizes, length, **options)
    return lz.source(items) | lz.map(made) | lz.pack_by_plan(plan)


class Blocks(list[Any]):
    """A list that is stored in blocks; some may be empty."""

    block_starts: list[int]


def _in_blocks(items: list[Any], starts: list[int], window: int, seed: int) -> Pipeline[Any]:
    data = Blocks(items)
    data.block_starts = sorted(starts)
    return lz.source(data) | lz.map(tagged) | lz.local_shuffle(window, seed=seed)


def _vectorized(n: int, kind: Any, fn: Any) -> Pipeline[Any]:
    return lz.source(kind(np.arange(n))) | lz.map(fn, vectorized=True)


def _array(n: int, dtype: str, shape: tuple[int, ...]) -> Pipeline[Any]:
    return lz.source(np.arange(n * math.prod(shape)).reshape(n, *shape).astype(dtype))


def _columns(n: int, dtype: str) -> Pipeline[Any]:
    return lz.columns(x=np.arange(n).astype(dtype), y=np.linspace(0, 1, n))


def _first(endless: st.SearchStrategy[Pipeline[Any]]) -> st.SearchStrategy[Pipeline[Any]]:
    return st.builds(lambda pipeline, n: pipeline | lz.take(n), endless, _lengths)


SOURCES: dict[str, st.SearchStrategy[Pipeline[Any]]] = {
    "source": _items.map(lz.source),
    "source(stream)": _items.map(Stream).map(lz.source),
    "source(range)": _lengths.map(range).map(lz.source),
    "source(array)": st.builds(_array, _lengths, _dtypes, st.sampled_from([(), (2,)])),
    "source(vectorized)": st.builds(
        _vectorized,
        _lengths,
        st.sampled_from([np.asarray, list, Stream]),
        st.sampled_from([halved, spelled]),
    ),
    "source(blocks)": st.builds(_in_blocks, _items, st.lists(counts), st.integers(1, 3), seeds),
    "sample": st.builds(_sampled, _items, seeds, st.booleans(), st.none() | sizes),
    "sample_balanced": st.builds(_classed, _items, seeds, st.none() | sizes),
    "oversample": st.builds(_oversampled, _items, seeds),
    "pack_by_plan": st.builds(
        _planned, _items, st.sampled_from([1, 2, 3, 6]), overflows, st.none() | sizes, seeds
    ),
    "columns": st.builds(_columns, _lengths, _dtypes),
    "unfold": st.builds(
        lambda step, n: lz.unfold(step, [n]), st.sampled_from([countdown, falling_lists]), _lengths
    ),
    "from_generator": st.builds(lz.from_generator, st.just(iter), _items),
    "count": _first(st.builds(lz.count, st.integers(), st.integers())),
    "random_floats": _first(st.builds(lz.random_floats, seed=seeds)),
    "random_indices": _first(st.builds(lz.random_indices, _weights, seed=seeds)),
    "once": st.sampled_from([None, 3, [1, 2], "text", {"a": 1}]).map(lz.once),
}


def sources() -> st.SearchStrategy[Pipeline[Any]]:
    """Return a strategy for sources with indices, with arrays, and streams, of 0 to 20 items."""
    return st.one_of(*SOURCES.values())

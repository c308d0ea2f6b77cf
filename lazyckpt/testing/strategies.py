"""Hypothesis strategies: random pipelines of the built-in combinators."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

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


def length_of(item: Any) -> int:
    return _crc(item) % 5


def size_of(item: Any) -> int:
    return 1 + length_of(item) // 2


def tokens(item: Any) -> Any:
    found = list(range(_crc(item) % 100, _crc(item) % 100 + length_of(item)))
    return found if kept(item) else np.array(found, np.int64)


def features(item: Any) -> dict[str, Any]:
    found = np.array(tokens(item), np.int64)
    return {"x": found, "y": np.stack([found, found / 2], axis=-1)}


def _crc(item: Any) -> int:
    return zlib.crc32(repr(item).encode())


def number(item: Any) -> int:
    return _crc(item) % 1000


def parity(item: Any) -> int:
    return _crc(item) % 2


def numbered(item: Any) -> tuple[int, Any]:
    return number(item), item


def halved(numbers: Any) -> Any:
    return numbers / 2


def noisy(rng: np.random.Generator, item: Any) -> Any:
    return item, rng.random(), rng.integers(9, size=_crc(item) % 3).tolist()


def held(items: list[int], item: Any) -> tuple[list[int], Any]:
    items.append(_crc(item) % 7)
    return (items, []) if len(items) < 3 else ([], lazily((items, item)))


def countdown(left: list[int]) -> tuple[list[int], int] | None:
    if not left[0]:
        return None
    left[0] -= 1
    return left, left[0]


seeds = st.integers(0, 2**70)
sizes = st.integers(1, 7)
counts = st.integers(0, 12)


_items = st.lists(st.none() | st.integers(-9, 9) | st.text(max_size=2), max_size=20)
_lengths = st.integers(0, 20)
_weights = st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any)


_overflows = st.sampled_from(["split", "truncate", "drop"])
_indices = st.lists(st.integers(-5, 4), max_size=8)
_steps = st.sampled_from([1, 2, -1, -2])
_spans = st.builds(range, st.integers(-5, 4), st.integers(-6, 5), _steps)
_falling = st.builds(range, st.integers(0, 4), st.just(-1), st.sampled_from([-1, -2]))


def apart(numbers: list[int]) -> list[tuple[int, int]]:
    """Ranges that don't overlap.

    Args:
        numbers: Where they begin and end, in any order.
    """
    edges = sorted(set(numbers))
    return list(zip(edges[::2], edges[1::2], strict=False))


_ranges = st.lists(st.integers(0, 5), max_size=6).map(apart)


def _array(indices: list[int]) -> NDArray[np.int64]:
    return np.array(indices, np.int64)


def _sampled(items: list[Any], seed: int, replacement: bool, more: int | None) -> Pipeline[Any]:
    weights = [1 + _crc(item) % 3 if number else 0 for number, item in enumerate(items)]
    if not any(weights):
        return lz.source(items) | lz.take(0)
    most = more if replacement or more is None else min(more, len(items) - 1)
    stage = lz.sample(weights, seed=seed, replacement=replacement, num_samples=most)
    return lz.source(items) | stage


def _classed(items: list[Any], seed: int, more: int | None) -> Pipeline[Any]:
    labels = [parity(item) for item in items]
    return lz.source(items) | lz.balanced(labels, seed=seed, num_samples=more)


def _oversampled(items: list[Any], seed: int) -> Pipeline[Any]:
    return lz.source(items) | lz.oversample(np.array([kept(x) for x in items], bool), seed=seed)


def _planned(items: list[Any], length: int, overflow: Any, window: Any, seed: int) -> Pipeline[Any]:
    sizes = [len(tokens(item)) for item in items]
    options: dict[str, Any] = {"seed": seed, "overflow": overflow, "window_size": window}
    plan = lz.plan_packing(sizes, length, **options)
    return lz.source(items) | lz.map(tokens) | lz.pack_by_plan(plan)


class Blocks(list[Any]):
    """A list that is stored in blocks, some of which may be empty."""

    block_starts: list[int]


def _in_blocks(items: list[Any], starts: list[int], window: int, seed: int) -> Pipeline[Any]:
    data = Blocks(items)
    data.block_starts = sorted(starts)
    return lz.source(data) | lz.map(tagged) | lz.local_shuffle(window, seed=seed)


def _first(endless: st.SearchStrategy[Pipeline[Any]]) -> st.SearchStrategy[Pipeline[Any]]:
    return st.builds(lambda pipeline, n: pipeline | lz.take(n), endless, _lengths)


SOURCES: dict[str, st.SearchStrategy[Pipeline[Any]]] = {
    "source": _items.map(lz.source),
    "source(stream)": _items.map(Stream).map(lz.source),
    "source(range)": _lengths.map(range).map(lz.source),
    "source(array)": _lengths.map(lambda n: lz.source(np.arange(2 * n).reshape(n, 2))),
    "source(blocks)": st.builds(_in_blocks, _items, st.lists(counts), st.integers(1, 3), seeds),
    "sample": st.builds(_sampled, _items, seeds, st.booleans(), st.none() | sizes),
    "balanced": st.builds(_classed, _items, seeds, st.none() | sizes),
    "oversample": st.builds(_oversampled, _items, seeds),
    "pack_by_plan": st.builds(_planned, _items, sizes, _overflows, st.none() | sizes, seeds),
    "columns": _lengths.map(lambda n: lz.columns(x=np.arange(n), y=np.linspace(0, 1, n))),
    "unfold": _lengths.map(lambda n: lz.unfold(countdown, [n])),
    "count": _first(st.builds(lz.count, st.integers(), st.integers(-9, 9))),
    "random_floats": _first(st.builds(lz.random_floats, seed=seeds)),
    "random_indices": _first(st.builds(lz.random_indices, _weights, seed=seeds)),
    "once": st.none().map(lz.once),
}


def sources() -> st.SearchStrategy[Pipeline[Any]]:
    """Sources with indices, with arrays, and streams; of 0 to 20 items, None and arrays too."""
    return st.one_of(*SOURCES.values())


@st.composite
def _shards(draw: st.DrawFn, contiguous: bool) -> Stage[Any, Any]:
    num_shards = draw(sizes)
    index = draw(st.integers(0, num_shards - 1))
    remainder: Any = draw(st.sampled_from([None, "drop", "pad", "repeat"]))
    return lz.shard(num_shards=num_shards, index=index, contiguous=contiguous, remainder=remainder)


# Stages that want random access, and those that do instead where there is none.
INSTEAD = {
    "shuffle": "shuffle(buffer)",
    "cache": "map",
    "hash_range": "hash_range(by)",
    "gather": "block_shuffle",
    "local_shuffle": "block_shuffle",
    "shard(contiguous)": "shard",
}

_NUMBERED = {"gather", "without"}  # which name some of the first five items


def has_room(name: str, pipeline: Pipeline[Any]) -> bool:
    """Whether a pipeline has the items that a stage of that name wants, as far as is known.

    Args:
        name: A name in `STAGES`.
        pipeline: What comes before it.
    """
    length = pipeline.machine.length
    return name not in _NUMBERED or length is None or length >= 5


STAGES: dict[str, st.SearchStrategy[Stage[Any, Any]]] = {
    "map": st.just(lz.map(tagged)),
    "map(vectorized)": st.just(lz.map(number) | lz.map(halved, vectorized=True)),
    "starmap": st.just(lz.map(numbered) | lz.starmap(counted)),
    "tap": st.just(lz.tap(kept)),
    "enumerate": st.integers(-3, 3).map(lz.enumerate),
    "random_map": st.builds(lambda seed: lz.random_map(noisy, seed=seed), seeds),
    "flat_scan": st.sampled_from([None, several]).map(lambda f: lz.flat_scan(held, list[int](), f)),
    "cache": sizes.map(lz.cache),
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
    "take_while": st.just(lz.take_while(kept)),
    "drop_while": st.just(lz.drop_while(kept)),
    "gather": st.one_of(_indices, _indices.map(_array), _spans, _falling).map(lz.gather),
    "without": _ranges.map(lz.without),
    "take": counts.map(lz.take),
    "skip": counts.map(lz.skip),
    "batch": st.builds(lz.batch, sizes, drop_last=st.booleans()),
    "batch(pad)": st.builds(lz.batch, sizes, pad=st.just(0)),
    "sliding_window": st.builds(lz.sliding_window, sizes, stride=sizes),
    "group_by": st.just(lz.group_by(kept)),
    "token_batch": st.builds(
        lz.token_batch,
        st.integers(8, 20),
        key=st.just(length_of),
        pad_to_multiple_of=st.integers(1, 3),
        max_items=st.none() | sizes,
    ),
    "token_batch(drop_longer)": st.builds(
        lz.token_batch, sizes, key=st.just(length_of), drop_longer=st.just(True)
    ),
    "dedupe": st.builds(lz.dedupe, st.just(length_of), window=sizes),
    "limit": st.builds(lz.limit, st.integers(0, 40), key=st.just(length_of)),
    "hash_range": st.builds(
        lz.hash_range,
        st.sampled_from([0, 0.3]),
        st.sampled_from([0.3, 0.8, 1]),
        seed=seeds,
        inverted=st.booleans(),
    ),
    "hash_range(by)": st.builds(
        lz.hash_range, st.just(0), st.sampled_from([0.4, 1]), seed=seeds, by=st.just(repr)
    ),
    "bucket_batch": st.builds(
        lz.bucket_batch,
        st.one_of(sizes, st.just(size_of)),
        key=st.sampled_from([None, length_of]),
        window_size=sizes,
        boundary_key=st.sampled_from([None, kept]),
        shuffle=st.booleans(),
        seed=seeds,
    ),
    "bucket_by_boundaries": st.builds(
        lz.bucket_by_boundaries,
        st.just((1, 3)),
        sizes | st.lists(sizes, min_size=3, max_size=3),
        length=st.just(length_of),
        drop_last=st.booleans(),
    ),
    "bucket_by_boundaries(max_wait)": st.builds(
        lz.bucket_by_boundaries,
        st.just((1, 3)),
        sizes,
        length=st.just(length_of),
        max_wait=st.integers(2, 12),
    ),
    "concat_then_split": st.builds(
        lambda fn, n, drop: lz.map(fn) | lz.concat_then_split(n, drop_last=drop),
        st.sampled_from([tokens, features]),
        sizes,
        st.booleans(),
    ),
    "pack_first_fit": st.builds(
        lambda fn, n, bins: lz.map(fn) | lz.pack_first_fit(4 + n, num_bins=bins),
        st.sampled_from([tokens, features]),
        sizes,
        sizes,
    ),
    "pack_best_fit": st.builds(
        lambda fn, n, bins, long: lz.map(fn) | lz.pack_best_fit(n, num_bins=bins, overflow=long),
        st.sampled_from([tokens, features]),
        st.sampled_from([2, 3, 6]),
        sizes,
        _overflows,
    ),
    "shard_batch": st.builds(
        lambda size, index: (
            lz.batch(size) | lz.shard_batch(num_shards=3, index=index, key=length_of)
        ),
        sizes,
        st.integers(0, 2),
    ),
    "split_batch": st.builds(lambda size, n: lz.batch(size) | lz.split_batch(n), sizes, sizes),
    "shuffle": st.builds(lz.shuffle, seed=seeds),
    "shuffle(buffer)": st.builds(lz.shuffle, sizes, seed=seeds),
    "block_shuffle": st.builds(lz.block_shuffle, sizes, seed=seeds),
    "local_shuffle": st.builds(lz.local_shuffle, sizes, seed=seeds, block_size=sizes),
    "repeat": st.builds(lz.repeat, st.integers(0, 3)),
    "repeat for ever": counts.map(lambda n: lz.repeat() | lz.take(n)),
    "shard": _shards(contiguous=False),
    "shard(contiguous)": _shards(contiguous=True),
}


def cased(*pipelines: Pipeline[Any]) -> Pipeline[Any]:
    return lz.case(pipelines[0] | lz.map(parity), *pipelines, pipelines[0])


def switched(*pipelines: Pipeline[Any]) -> Pipeline[Any]:
    return lz.switch(pipelines[-1] | lz.map(kept), pipelines[0], pipelines[-1])


def _evenly(*parts: Pipeline[Any]) -> Pipeline[Any]:
    shortest = min(len(list(part)) for part in parts)
    more = lz.source(["last"]) | lz.repeat()  # in another epoch a part may have fewer
    return lz.zip(*[lz.concat(part, more) | lz.take(shortest) for part in parts], strict=True)


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
    "concat": lz.concat,
    "case": cased,
    "switch": switched,
    "zip(strict)": _evenly,
    "interleave": lz.interleave,
    "lanes": lambda *parts: lz.lanes(parts, num_shards=1, index=0),
    "lanes(two)": lambda *parts: lz.lanes([*parts, lz.count() | lz.take(3)], num_shards=2, index=1),
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
        if not has_room(name, pipeline):
            name = "shuffle"
        if name == "repeat for ever" and not pipeline.machine.length:
            name = "repeat"  # in some epoch it might be empty
        if name in INSTEAD and not _has_access(pipeline):
            name = INSTEAD[name]
        pipeline = pipeline | draw(STAGES[name])
    return pipeline


def _has_access(pipeline: Pipeline[Any]) -> bool:
    return pipeline.machine.skip is not None and isinstance(pipeline.machine.length, int)

"""Hypothesis strategies: random pipelines of the built-in combinators."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise ImportError(f'lz.testing.strategies: pip install "lazyckpt[testing]" ({error})') from None

import lazyckpt as lz
from lazyckpt.pipeline import Pipeline, Stage
from lazyckpt.testing.functions import (
    above,
    collected,
    counted,
    crc,
    features,
    growing,
    growing_several,
    halved,
    held,
    kept,
    labelled,
    lazily,
    length_of,
    noisy,
    number,
    numbered,
    parity,
    piped,
    several,
    size_of,
    tagged,
    tokens,
)
from lazyckpt.testing.sources import (
    array,
    counts,
    falling,
    indices,
    overflows,
    ranges,
    remainders,
    seeds,
    sizes,
    small,
    sources,
    spans,
)

lengths = st.dictionaries(st.integers(1, 8), sizes, max_size=3).map(
    lambda points: lz.schedule({0: 2, **points})
)


@st.composite
def _shards(draw: st.DrawFn, remainder: Any = None, contiguous: bool = False) -> Stage[Any, Any]:
    num_shards = draw(sizes)
    index = draw(st.integers(0, num_shards - 1))
    options: Any = {"pad": draw(st.none() | st.integers(-9, 9))} if remainder == "pad" else {}
    return lz.shard(
        num_shards=num_shards, index=index, contiguous=contiguous, remainder=remainder, **options
    )


@lru_cache
def _folder() -> str:
    """Return a folder for this process's draws; its files never change."""
    path = mkdtemp(prefix="lazyckpt-")
    atexit.register(rmtree, path, ignore_errors=True)
    return path


# Stages that need random access, and their replacements without it.
INSTEAD = {
    "shuffle": "shuffle(buffer)",
    "lru_cache": "map",
    "hash_range": "hash_range(by)",
    "gather": "block_shuffle",
    "local_shuffle": "block_shuffle",
    "shard(contiguous)": "shard",
}

_NUMBERED = {"gather", "exclude"}  # stages that name some of the first five items


def has_room(name: str, pipeline: Pipeline[Any]) -> bool:
    """Return whether a pipeline has enough items for a stage of that name, as far as is known.

    Args:
        name: A name in `STAGES`.
        pipeline: The pipeline before the stage.
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
    "flat_scan": st.builds(
        lz.flat_scan,
        st.sampled_from([held, growing_several]),
        st.builds(list[int]),
        st.sampled_from([None, several]),
    ),
    "lru_cache": sizes.map(lz.lru_cache),
    "filter": st.just(lz.filter(kept)),
    "filter(args)": st.builds(lz.filter, st.just(above), st.integers(0, 2)),
    "map(args)": st.builds(lz.map, st.just(labelled), st.integers(0, 2)),
    "flat_map": st.sampled_from([several, lazily, piped]).map(lz.flat_map),
    "interleave_map": st.builds(
        lz.interleave_map,
        st.sampled_from([several, lazily, piped]),
        cycle_length=st.integers(1, 4),
        block_length=st.integers(1, 3),
    ),
    "unbatch": sizes.map(lambda n: lz.batch(n) | lz.unbatch()),
    "scan": st.sampled_from(
        [lz.scan(counted, 0), lz.scan(collected, list[int]()), lz.scan(growing, list[int]())]
    ),
    "take_while": st.just(lz.take_while(kept)),
    "drop_while": st.just(lz.drop_while(kept)),
    "gather": st.one_of(
        indices, indices.map(tuple), indices.map(array), indices.map(small), spans, falling
    ).map(lz.gather),
    "exclude": ranges.map(lz.exclude),
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
    "dedupe_bloom": st.builds(
        lambda key, size: lz.dedupe_bloom(
            key, _folder(), capacity=500, false_positive_rate=1e-6, block_size=size
        ),
        st.sampled_from([length_of, repr]),
        st.sampled_from([4, 30]),
    ),
    "take_tokens": st.builds(lz.take_tokens, st.integers(0, 40), key=st.just(length_of)),
    "hash_range": st.builds(
        lz.hash_range,
        st.sampled_from([0, 0.3]),
        st.sampled_from([0.3, 0.8, 1]),
        seed=seeds,
        inverted=st.booleans(),
    ),
    "hash_range(by)": st.builds(
        lz.hash_range, st.just(0), st.sampled_from([0.4, 1]), seed=seeds, key=st.just(repr)
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
        key=st.just(length_of),
        drop_last=st.booleans(),
    ),
    "bucket_by_boundaries(max_wait)": st.builds(
        lz.bucket_by_boundaries,
        st.just((1, 3)),
        sizes,
        key=st.just(length_of),
        max_wait=st.integers(2, 12),
    ),
    "concat_then_split": st.builds(
        lambda fn, n, drop: lz.map(fn) | lz.concat_then_split(n, drop_last=drop),
        st.sampled_from([tokens, features]),
        sizes,
        st.booleans(),
    ),
    "concat_then_split(pad)": sizes.map(
        lambda n: lz.map(features) | lz.concat_then_split(n, pad={"x": -100, "y": 0.5})
    ),
    "concat_then_split(schedule)": st.builds(
        lambda fn, lengths, drop: lz.map(fn) | lz.concat_then_split(lengths, drop_last=drop),
        st.sampled_from([tokens, features]),
        lengths,
        st.booleans(),
    ),
    "pack_first_fit": st.builds(
        lambda fn, n, bins, long: lz.map(fn) | lz.pack_first_fit(n, num_bins=bins, overflow=long),
        st.sampled_from([tokens, features]),
        st.sampled_from([2, 3, 6]),
        sizes,
        overflows,
    ),
    "pack_best_fit": st.builds(
        lambda fn, n, bins, long: lz.map(fn) | lz.pack_best_fit(n, num_bins=bins, overflow=long),
        st.sampled_from([tokens, features]),
        st.sampled_from([2, 3, 6]),
        sizes,
        overflows,
    ),
    "pack_first_fit(schedule)": st.builds(
        lambda fn, n, bins: lz.map(fn) | lz.pack_first_fit(n, num_bins=bins, overflow="split"),
        st.sampled_from([tokens, features]),
        lengths,
        sizes,
    ),
    "pack_best_fit(schedule)": st.builds(
        lambda fn, n, bins: lz.map(fn) | lz.pack_best_fit(n, num_bins=bins, overflow="truncate"),
        st.sampled_from([tokens, features]),
        lengths,
        sizes,
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
    "shard": _shards(),
    "shard(drop)": _shards("drop"),
    "shard(pad)": _shards("pad"),
    "shard(repeat)": _shards("repeat"),
    "shard(contiguous)": remainders.flatmap(lambda each: _shards(each, contiguous=True)),
}


def cased(*pipelines: Pipeline[Any]) -> Pipeline[Any]:
    return lz.case(pipelines[0] | lz.map(parity), *pipelines, pipelines[0])


def switched(*pipelines: Pipeline[Any]) -> Pipeline[Any]:
    return lz.switch(pipelines[-1] | lz.map(kept), pipelines[0], pipelines[-1])


def _evenly(*parts: Pipeline[Any]) -> Pipeline[Any]:
    shortest = min(len(list(part)) for part in parts)
    more = lz.source(["last"]) | lz.repeat()  # in a later epoch a part may have fewer items
    return lz.zip(*[lz.concat(part, more) | lz.take(shortest) for part in parts], strict=True)


def _mixed(
    stop: Any, weigh: Callable[[list[float]], Any] = list, **options: Any
) -> Callable[..., Pipeline[Any]]:
    def join(*parts: Pipeline[Any]) -> Pipeline[Any]:
        if stop in ("all_exhausted", "never"):  # an empty part can't begin again
            parts = tuple(lz.concat(part, lz.source(["last"])) for part in parts)
        weights = weigh([2.5, 1, 0, 1.5][: len(parts)])
        joined = lz.mix(parts, weights, stop=stop, **options)
        return joined | lz.take(25) if stop == "never" else joined

    return join


def _falling(weights: list[float], **options: Any) -> lz.types.Schedule[Sequence[float]]:
    points = {0: weights, 3: weights[::-1], 9: [1.0] * len(weights)}
    return lz.schedule(points, **options)


def _multiplexed(*parts: Pipeline[Any]) -> Pipeline[Any]:
    endless = [lz.concat(part, lz.source(["last"])) | lz.repeat() for part in parts]
    control = [crc(n) % len(parts) for n in range(17)]
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
    "mix(each once)": _mixed("all_exhausted_without_replacement", seed=7),
    "mix(schedule)": _mixed("all_exhausted", partial(_falling, interpolate="linear"), seed=6),
    "mix(deterministic)": _mixed("first_exhausted", deterministic=True),
    "mix(deterministic, all)": _mixed("all_exhausted", deterministic=True),
    "mix(deterministic, schedule)": _mixed("all_exhausted", _falling, deterministic=True),
    "mix(deterministic, never)": _mixed("never", deterministic=True),
    "multiplex": _multiplexed,
}


@st.composite
def pipelines(draw: st.DrawFn, max_stages: int = 6) -> Pipeline[Any]:
    """Draw a random pipeline of built-in combinators, finite, with few items."""
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
            name = "repeat"  # an epoch might be empty
        if name in INSTEAD and not _has_access(pipeline):
            name = INSTEAD[name]
        pipeline = pipeline | draw(STAGES[name])
    return pipeline


def _has_access(pipeline: Pipeline[Any]) -> bool:
    return pipeline.machine.skip is not None and isinstance(pipeline.machine.length, int)

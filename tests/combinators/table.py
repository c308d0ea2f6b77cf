"""Every combinator, over 40 numbers, for the tests that go through all of them."""

from __future__ import annotations

from collections.abc import Callable
from tempfile import mkdtemp
from typing import Any

import numpy as np

import lazyckpt as lz
from lazyckpt.pipeline import Pipeline

NUMBERS = [*range(40)]


def kept(state: Any, item: Any) -> Any:
    return state, item


def doubled(state: Any, item: Any) -> Any:
    return state, [item, item]


def twice(item: int) -> list[int]:
    return [item, item]


def cut(item: int) -> int:
    return item % 5


def parity(item: int) -> int:
    return item % 2


def tokens(item: int) -> list[int]:
    return [item] * (item % 4)


PLAN = lz.plan_packing([item % 4 for item in NUMBERS], 4, seed=0)

Made = Callable[[Pipeline[Any]], Pipeline[Any]]  # over a source

# Each with the arguments that it needs, and no more.
PLAIN: dict[str, Made] = {
    "sample_balanced": lambda p: p | lz.sample_balanced([*range(4)] * 10, seed=0),
    "batch": lambda p: p | lz.batch(2),
    "block_shuffle": lambda p: p | lz.block_shuffle(2, seed=0),
    "bucket_batch": lambda p: p | lz.bucket_batch(2, key=cut, window_size=6, seed=0),
    "bucket_by_boundaries": lambda p: p | lz.bucket_by_boundaries([2, 4], 2, key=cut),
    "lru_cache": lambda p: p | lz.lru_cache(2),
    "case": lambda p: lz.case(p | lz.map(parity), p, p),
    "columns": lambda _: lz.columns(x=np.arange(40)),
    "concat": lambda p: lz.concat(p, p),
    "concat_then_split": lambda p: p | lz.map(tokens) | lz.concat_then_split(4),
    "count": lambda _: lz.count(),
    "dedupe": lambda p: p | lz.dedupe(cut, window=3),
    "dedupe_bloom": lambda p: (
        p | lz.dedupe_bloom(cut, mkdtemp(), capacity=99, false_positive_rate=1e-9, block_size=4)
    ),
    "drop_while": lambda p: p | lz.drop_while(lambda x: x < 3),
    "enumerate": lambda p: p | lz.enumerate(),
    "filter": lambda p: p | lz.filter(bool),
    "flat_map": lambda p: p | lz.flat_map(twice),
    "flat_scan": lambda p: p | lz.flat_scan(doubled, 0),
    "gather": lambda p: p | lz.gather([3, 1]),
    "group_by": lambda p: p | lz.group_by(cut),
    "hash_range": lambda p: p | lz.hash_range(0, 0.5, seed=0),
    "interleave": lambda p: lz.interleave(p, p),
    "interleave_map": lambda p: p | lz.interleave_map(twice, cycle_length=2),
    "lanes": lambda p: lz.lanes([p, p, p], num_shards=2, index=0),
    "take_tokens": lambda p: p | lz.take_tokens(30, key=cut),
    "local_shuffle": lambda p: p | lz.local_shuffle(2, seed=0, block_size=3),
    "map": lambda p: p | lz.map(str),
    "mix": lambda p: lz.mix([p, p], [1, 2], seed=0),
    "multiplex": lambda p: lz.multiplex(p | lz.map(parity), [p, p]),
    "from_generator": lambda _: lz.from_generator(range, 40),
    "once": lambda _: lz.once(1),
    "oversample": lambda p: p | lz.oversample([*range(4)] * 10, seed=0),
    "pack_best_fit": lambda p: p | lz.map(tokens) | lz.pack_best_fit(4, num_bins=2),
    "pack_by_plan": lambda p: p | lz.map(tokens) | lz.pack_by_plan(PLAN),
    "pack_first_fit": lambda p: p | lz.map(tokens) | lz.pack_first_fit(4, num_bins=2),
    "random_floats": lambda _: lz.random_floats(seed=0),
    "random_indices": lambda _: lz.random_indices([1, 2], seed=0),
    "random_map": lambda p: p | lz.random_map(lambda rng, item: rng.random(), seed=0),
    "repeat": lambda p: p | lz.repeat(),
    "sample": lambda p: p | lz.sample(range(40), seed=0),
    "scan": lambda p: p | lz.scan(kept, 0),
    "shard": lambda p: p | lz.shard(num_shards=3, index=1),
    "shard_batch": lambda p: p | lz.batch(2) | lz.shard_batch(num_shards=2, index=1, key=cut),
    "shuffle": lambda p: p | lz.shuffle(seed=0),
    "skip": lambda p: p | lz.skip(1),
    "sliding_window": lambda p: p | lz.sliding_window(3),
    "source": lambda p: p,
    "split_batch": lambda p: p | lz.batch(4) | lz.split_batch(2),
    "starmap": lambda p: p | lz.map(lambda x: (x,)) | lz.starmap(str),
    "switch": lambda p: lz.switch(p | lz.map(parity), p, p),
    "take": lambda p: p | lz.take(9),
    "take_while": lambda p: p | lz.take_while(lambda x: x < 30),
    "tap": lambda p: p | lz.tap(str),
    "token_batch": lambda p: p | lz.token_batch(40, key=cut),
    "unbatch": lambda p: p | lz.batch(2) | lz.unbatch(),
    "unfold": lambda _: lz.unfold(lambda state: (state, 1), 0),
    "exclude": lambda p: p | lz.exclude([(1, 3), (5, 9)]),
    "zip": lambda p: lz.zip(p, p),
}

# With the values of the docstring if they make a difference.
OTHERWISE: list[tuple[str, Made, str]] = [
    ("batch", lambda p: p | lz.batch(2, drop_last=True, collate=lz.stack), "drop_last"),
    (
        "bucket_batch",
        lambda p: p | lz.bucket_batch(2, key=None, window_size=6, shuffle=False),
        "shuffle",
    ),
    (
        "bucket_by_boundaries",
        lambda p: p | lz.bucket_by_boundaries([2, 4], 2, key=cut, max_wait=6),
        "max_wait",
    ),
    (
        "concat_then_split",
        lambda p: p | lz.map(tokens) | lz.concat_then_split(4, drop_last=True),
        "drop_last",
    ),
    ("flat_scan", lambda p: p | lz.flat_scan(doubled, 0, lambda s: [s]), "flush"),
    ("hash_range", lambda p: p | lz.hash_range(0, 0.5, seed=0, key=cut), "with a function"),
    ("interleave", lambda p: lz.interleave(p, p, block_length=2), "block_length"),
    ("map", lambda p: p | lz.map(lambda x: x, vectorized=True), "vectorized"),
    ("mix", lambda p: lz.mix([p, p], [1, 2], deterministic=True), "with `deterministic`"),
    ("mix", lambda p: lz.mix([p, p], [1, 1], seed=0, stop="never"), "stop"),
    ("repeat", lambda p: p | lz.repeat(2), "count"),
    ("shard", lambda p: p | lz.shard(num_shards=3, index=1, contiguous=True), "with `contiguous`"),
    ("shard", lambda p: p | lz.shard(num_shards=3, index=2, remainder="repeat"), "remainder"),
    ("shuffle", lambda p: p | lz.shuffle(4, seed=0), "with a buffer"),
    ("sliding_window", lambda p: p | lz.sliding_window(2, stride=3), "stride"),
    ("zip", lambda p: lz.zip(p, p, strict=True), "strict"),
]

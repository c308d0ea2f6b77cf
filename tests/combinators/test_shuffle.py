"""Shuffles at sizes at which their inner blocks and windows change."""

from __future__ import annotations

from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from tests.combinators.long_orders import LENGTHS, keep_laws


@settings(max_examples=max(3, settings().max_examples // 10))
@given(n=LENGTHS, block=st.sampled_from([7, 64, 256, 2000]), shards=st.integers(1, 3))
def test_views_keep_the_laws_across_their_windows(n: int, block: int, shards: int) -> None:
    shuffled = lz.source(range(n)) | lz.shuffle(seed=1) | lz.block_shuffle(block, seed=2)
    keep_laws(shuffled | lz.repeat(2) | lz.shard(num_shards=shards, index=shards - 1))


def test_permutations_keep_the_laws_beyond_what_is_sorted() -> None:
    keep_laws(lz.source(range(40_000)) | lz.shuffle(seed=1) | lz.skip(39_900) | lz.repeat(2))


def test_golden_orders() -> None:
    """Orders are promises: these must never change."""
    twelve = lz.source(range(12))
    assert list(twelve | lz.shuffle(seed=7)) == GOLDEN["shuffle"]
    assert list(twelve | lz.shuffle(4, seed=7)) == GOLDEN["shuffle(4)"]
    assert list(twelve | lz.block_shuffle(6, seed=7)) == GOLDEN["block_shuffle(6)"]
    large = lz.source(range(10**9)) | lz.shuffle(seed=7)
    assert list(islice(large, 4)) == GOLDEN["large"]


GOLDEN = {
    "shuffle": [8, 10, 1, 5, 2, 0, 9, 6, 11, 7, 4, 3],
    "shuffle(4)": [1, 0, 2, 3, 4, 6, 5, 7, 9, 8, 11, 10],
    "block_shuffle(6)": [3, 1, 2, 5, 4, 0, 8, 11, 6, 9, 10, 7],
    "large": [811551793, 787726071, 969828139, 619405118],
}

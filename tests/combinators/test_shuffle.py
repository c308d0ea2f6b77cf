"""Shuffles at sizes at which their inner blocks and windows change."""

from __future__ import annotations

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

"""Orders are promises: these must never change, with any version of Python and NumPy."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.testing.sources import Blocks

SIX, TWELVE = lz.source(range(6)), lz.source(range(12))
BILLION = lz.source(range(10**9))
TURNS = [lz.once(number) | lz.repeat() for number in range(3)]
WEIGHTS = [0.1, 0.7, 2, 3, 0, 1e-9]
CLASSES = [0, 1, 0, 0, 0, 1]


class InBlocks(Blocks):
    block_starts = [0, 3, 3, 7]  # noqa: RUF012


FIRST: list[tuple[Any, list[Any]]] = [
    (TWELVE | lz.shuffle(seed=7), [8, 10, 1, 5, 2, 0, 9, 6, 11, 7, 4, 3]),
    (TWELVE | lz.shuffle(4, seed=7), [1, 0, 2, 3, 4, 6, 5, 7, 9, 8, 11, 10]),
    (TWELVE | lz.shuffle(5, seed=0), [0, 1, 4, 2, 5, 3, 6, 8, 10, 7, 9, 11]),
    (TWELVE | lz.block_shuffle(6, seed=7), [3, 1, 2, 5, 4, 0, 8, 11, 6, 9, 10, 7]),
    (
        TWELVE | lz.local_shuffle(2, seed=7, block_size=3),
        [8, 11, 6, 10, 7, 9, 0, 4, 5, 1, 2, 3],
    ),
    (
        InBlocks(range(12)) | lz.local_shuffle(2, seed=7),
        [2, 0, 1, 9, 10, 8, 11, 7, 3, 4, 5, 6],
    ),
    (BILLION | lz.shuffle(seed=7), [811551793, 787726071, 969828139, 619405118]),
    (
        lz.source(range(10**6)) | lz.local_shuffle(9, seed=7, block_size=1000),
        [217106, 838942, 217315, 70721],
    ),
    (
        lz.source(range(400)) | lz.shuffle(64, seed=7) | lz.skip(100),
        [97, 82, 112, 93, 142, 109, 69, 111, 122, 140],
    ),
    (SIX | lz.sample(WEIGHTS, seed=7), [3, 3, 3, 2, 3, 2]),
    (SIX | lz.sample(WEIGHTS, seed=7, replacement=False), [2, 1, 3, 0, 5]),
    (SIX | lz.sample_balanced(CLASSES, seed=7), [0, 1, 5, 3, 2, 1]),
    (SIX | lz.oversample(CLASSES, seed=7), [1, 4, 5, 2, 0, 5, 1, 3]),
    (TWELVE | lz.hash_range(0, 0.4, seed=9), [0, 1, 5]),
    (TWELVE | lz.hash_range(0, 0.4, seed=2, key=str), [2, 3, 4, 5, 8]),
    (
        lz.source([0, 0]) | lz.random_map(lambda rng, _: rng.bit_generator.random_raw(), seed=7),
        [17791763316810972009, 11663316425665377338],
    ),
    (lz.random_floats(seed=7), [0.1079161173654104, 0.08394227781137831, 0.536217490002717]),
    (lz.random_indices([3, 1, 2], seed=7), [2, 2, 0, 2, 0, 0, 2, 0, 1, 2, 0, 0]),
    (lz.mix(TURNS, [1, 2, 3], seed=7), [1, 1, 2, 1, 1, 0, 2, 0, 2, 2, 1, 2, 2, 2, 1, 2]),
    (lz.mix(TURNS, [1, 2, 3], deterministic=True), [2, 1, 2, 0, 1, 2, 2, 1, 2, 0, 1, 2]),
]


@pytest.mark.parametrize(("pipeline", "first"), FIRST)
def test_an_order_stays_what_it_is(pipeline: lz.Pipeline[Any], first: list[Any]) -> None:
    assert list(islice(pipeline, len(first))) == first

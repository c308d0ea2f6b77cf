"""`local_shuffle`: block boundaries, how often each block is decoded, how well it mixes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import lazyckpt as lz
from lazyckpt.testing import sources
from tests.combinators.long_orders import LENGTHS, keep_laws


class Stored:
    """Numbers in blocks that are decoded as a whole, of which some are kept."""

    def __init__(self, sizes: list[int], kept: int) -> None:
        self.edges = np.cumsum([0, *sizes])
        self.block_starts = self.edges[:-1]
        self.kept, self.decoded = kept, list[int]()
        self.blocks = OrderedDict[int, range]()

    def __len__(self) -> int:
        return int(self.edges[-1])

    def __getitem__(self, index: int) -> int:
        block = int(np.searchsorted(self.edges, index, side="right")) - 1
        if block not in self.blocks:
            self.decoded.append(block)
            self.blocks[block] = range(*self.edges[block : block + 2])
        self.blocks.move_to_end(block)
        while len(self.blocks) > self.kept:
            self.blocks.popitem(last=False)
        return self.blocks[block][index - int(self.edges[block])]


SIZES = st.lists(st.integers(0, 9), max_size=12)


@given(sizes=SIZES, window=st.integers(1, 5), seed=sources.seeds)
def test_each_block_is_decoded_once(sizes: list[int], window: int, seed: int) -> None:
    data = Stored(sizes, kept=window)
    found = list(lz.source(data) | lz.local_shuffle(window, seed=seed))
    assert sorted(found) == list(range(sum(sizes)))
    assert sorted(data.decoded) == [block for block, size in enumerate(sizes) if size]


PARTS: list[tuple[Any, list[int]]] = [
    (lz.map(str) | lz.tap(len) | lz.lru_cache(3), [0, 3, 3, 7, 9]),
    (lz.map(np.negative, vectorized=True), [0, 3, 3, 7, 9]),
    (lz.take(8), [0, 3, 3, 7, 9]),
    (lz.skip(4), [-4, -1, -1, 3, 5]),
    (lz.shard(num_shards=2, index=1), [0, 1, 1, 3, 4]),
    (lz.shard(num_shards=3, index=0), [0, 1, 1, 3, 3]),
    (lz.shard(num_shards=3, index=2, contiguous=True), [-8, -5, -5, -1, 1]),
    (lz.take(10) | lz.skip(1) | lz.shard(num_shards=2, index=1), [-1, 1, 1, 3, 4]),
]


@pytest.mark.parametrize(("stages", "expected"), PARTS, ids=str)
def test_stages_know_where_blocks_begin(stages: Any, expected: list[int]) -> None:
    data = Stored([3, 0, 4, 2, 3], kept=9)
    view = (lz.source(data) | stages).machine.view
    assert view.block_starts().tolist() == expected
    before = (lz.source(data) | stages).machine
    places = before.view.ahead(before.init(0), range(before.length))
    blocks = np.searchsorted(data.edges, np.asarray(places), side="right")
    changes = np.flatnonzero(np.diff(blocks)) + 1
    assert {*changes.tolist()} == {n for n in expected if 0 < n < before.length}


@pytest.mark.parametrize(
    "stages", [lz.shuffle(seed=0), lz.repeat(2), lz.gather([0]), lz.enumerate(), lz.batch(2)]
)
def test_where_blocks_are_not_known_a_size_is_asked_for(stages: Any) -> None:
    with pytest.raises(lz.ArgumentError, match="where its blocks begin; pass block_size"):
        lz.source(Stored([3, 4], 9)) | stages | lz.local_shuffle(2, seed=0)
    sized = lz.source(Stored([3, 4], 9)) | stages | lz.local_shuffle(2, seed=0, block_size=2)
    assert len(list(sized)) == len(sized)


def test_it_wants_random_access() -> None:
    with pytest.raises(lz.ArgumentError, match=r"has no random access; put it .* block_shuffle"):
        lz.source(range(9)) | lz.filter(bool) | lz.local_shuffle(2, seed=0, block_size=2)
    with pytest.raises(lz.ArgumentError, match="is endless"):
        lz.count() | lz.local_shuffle(2, seed=0, block_size=2)


@pytest.mark.parametrize("starts", [[0.5], [[0], [1]], "abc"])
def test_starts_that_are_none(starts: Any) -> None:
    data = Stored([3, 4], 9)
    data.block_starts = starts
    pipeline = lz.source(data) | lz.local_shuffle(2, seed=0)
    with pytest.raises(lz.ArgumentError, match="source: block_starts must be ints in one dimens"):
        list(pipeline)


def test_items_that_fail_are_left_out() -> None:
    class Broken(Stored):
        def __getitem__(self, index: int) -> int:
            if index == 4:
                raise ValueError("broken")
            return super().__getitem__(index)

    shuffle = lz.local_shuffle(2, seed=0)
    run = lz.run(lz.source(Broken([3, 4, 2], kept=2)) | shuffle, on_error="skip")
    every = list(lz.source(Stored([3, 4, 2], kept=2)) | shuffle)
    assert list(run) == [item for item in every if item != 4]


@settings(max_examples=max(3, settings().max_examples // 10))
@given(n=LENGTHS, window=st.sampled_from([1, 7, 60]), block=st.sampled_from([1, 7, 64, 2000]))
def test_it_keeps_the_laws_across_its_windows(n: int, window: int, block: int) -> None:
    shuffled = lz.source(range(n)) | lz.local_shuffle(window, seed=1, block_size=block)
    keep_laws(shuffled | lz.repeat(2) | lz.shard(num_shards=2, index=1))


def test_windows_beyond_what_is_sorted_keep_the_laws() -> None:
    shuffled = lz.source(range(6000)) | lz.local_shuffle(5, seed=1, block_size=1000)
    keep_laws(shuffled | lz.skip(5500) | lz.repeat(2))


def order(data: Any, window: int, **options: Any) -> NDArray[np.int64]:
    machine = (lz.source(data) | lz.local_shuffle(window, seed=7, **options)).machine
    return np.asarray(machine.view.ahead(machine.init(0), range(machine.length)))


def test_golden_orders() -> None:
    """Orders are promises: these must never change."""
    assert order(range(12), 2, block_size=3).tolist() == GOLDEN["fixed"]
    assert order(Stored([3, 0, 4, 5], 9), 2).tolist() == GOLDEN["stored"]
    assert order(range(10**6), 9, block_size=1000)[:4].tolist() == GOLDEN["large"]


GOLDEN: dict[str, list[int]] = {
    "fixed": [8, 11, 6, 10, 7, 9, 0, 4, 5, 1, 2, 3],
    "stored": [2, 0, 1, 9, 10, 8, 11, 7, 3, 4, 5, 6],
    "large": [217106, 838942, 217315, 70721],
}


@pytest.mark.parametrize("window", [1, 4, 16])
def test_it_mixes_as_it_says(window: int) -> None:
    n = 100_000
    found = order(range(n), window, block_size=200)
    correlation = np.corrcoef(found[:-1], found[1:])[0, 1]
    assert correlation == pytest.approx(1 / window, abs=0.05)
    moved = np.abs(found - np.arange(n)) / n
    assert np.quantile(moved, 0.5) == pytest.approx(1 - 0.5**0.5, abs=0.02)
    blocks = [len({*batch}) for batch in (found[: n // 250 * 250] // 200).reshape(-1, 250).tolist()]
    assert np.mean(blocks) < 2 * window + 1


def test_windows_are_uniform() -> None:
    """Each order of a window's items, and each of the blocks, is as likely as any other."""
    seen = np.zeros((4, 4), int)
    for seed in range(1000):
        found = lz.source(range(4)) | lz.local_shuffle(2, seed=seed, block_size=1)
        seen[np.arange(4), [*found]] += 1
    assert np.abs(seen - 250).max() < 5 * 250**0.5

"""Data that changed between a stop and a resume: an error, where a stage can tell."""

from __future__ import annotations

from tempfile import mkdtemp
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.testing.laws import Stream


def same(item: Any) -> Any:
    return item


def stream(size: int) -> lz.Pipeline[int]:
    return lz.source(Stream(range(size)))


BUCKETS: Any = lz.bucket_by_boundaries([10, 20], 3, key=same)
BLOOM = lz.dedupe_bloom(int, mkdtemp(), capacity=99, false_positive_rate=1e-9, block_size=4)
TOKENS = lz.map(lambda n: [n] * n)

# A stage, the data that there were and are, and the number of items before the stop.
CHANGED: list[tuple[Any, Any, Any, int, str]] = [
    *(
        (stage, kind(range(12)), kind(range(2)), 4, "")
        for stage in (lz.map(str), lz.batch(2), lz.shuffle(3, seed=0), lz.take(9))
        for kind in (list, Stream)
    ),
    (
        lz.bucket_batch(2, key=same, window_size=6, shuffle=False), stream(6), stream(2), 2,
        "after batch 2 of a window that now has 1",
    ),
    (
        BUCKETS, [1, 11, 2, 12, 3, 13], [1, 11, 2, 2, 3, 13], 1,
        "2 waited; there are now 5, of which 1",
    ),
    (
        lz.dedupe(int, window=4), stream(20), stream(12), 15,
        r"has read 7 items since its anchor, but now .* 4",
    ),
    (BLOOM, stream(20), stream(13), 15, r"has read 3 items since its anchor, but now .* 1"),
    (lz.flat_scan(lambda s, x: (s, [x] * x), 0), [3], [2], 3, ""),
    (
        lz.interleave_map(range, cycle_length=2), [3], [1], 2,
        "after item 2 of an expansion that now has 1",
    ),
    (
        lz.interleave_map(lambda n: [n] * 3, cycle_length=2), stream(4), stream(1), 3,
        "an open input no longer exists",
    ),
    (
        TOKENS | lz.concat_then_split(4), [9], [5], 2,
        "after token 8 of a sequence that now has 5",
    ),
    (
        TOKENS | lz.pack_first_fit(4, num_bins=2), Stream([4, 4]), Stream([4]), 1,
        "after row 1 of 1",
    ),
    (
        lz.shuffle(20, seed=0), stream(300), stream(240), 250,
        "after item 250 of a buffer that now has 240",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("stage", "old", "new", "n", "message"), CHANGED)
def test_data_that_became_shorter_are_noticed(
    stage: Any, old: Any, new: Any, n: int, message: str
) -> None:
    state = lz.state_at(old | stage, n)
    with pytest.raises((lz.SourceChanged, lz.InvalidState), match=message or None):
        list(lz.run(new | stage, state, strict=False))


def test_a_generator_that_yields_less_is_noticed() -> None:
    given = [1, 2, 3]
    pipeline = lz.from_generator(lambda: given)
    state = lz.state_at(pipeline, 3)
    given.pop()
    with pytest.raises(lz.SourceChanged, match=r"from_generator: the state is after item 3"):
        list(lz.run(pipeline, state))

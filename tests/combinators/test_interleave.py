"""`interleave`: where it ends, and how deep nesting may be."""

from __future__ import annotations

import pytest

import lazyckpt as lz


def test_interleave_takes_blocks_of_what_remains() -> None:
    parts = [lz.source(list(text)) for text in ("abcde", "", "12")]
    assert "".join(lz.interleave(*parts)) == "a1b2cde"
    assert "".join(lz.interleave(*parts, block_length=2)) == "ab12cde"
    assert "".join(lz.interleave(*parts, block_length=10**12)) == "abcde12"
    with pytest.raises(lz.ArgumentError, match="block_length must be an int >= 1"):
        lz.interleave(*parts, block_length=0)
    with pytest.raises(lz.ArgumentError, match="at least one"):
        lz.interleave()


def test_interleave_far_out_is_reached_at_once() -> None:
    big = lz.interleave(*[lz.source(range(n)) for n in (10**9, 10, 10**6)], block_length=3)
    assert len(big) == 10**9 + 10**6 + 10
    assert big[-1] == 10**9 - 1
    assert big[10 + 2 * 10**6] == 10**6 + 1
    assert list(big[27:36]) == [9, 10, 11, 9, 9, 10, 11, 12, 13]


def test_many_pipelines_are_passed_over_as_they_end_one_by_one() -> None:
    """With so many pipelines, it would take an hour to check all of them on every turn."""
    parts = [lz.source(range(n)) for n in range(2500, 0, -1)]
    for pipeline in (lz.interleave(*parts), lz.lanes(parts, num_shards=1, index=0)):
        assert [pipeline[-n] for n in (1, 2, 3, 4)] == [2499, 2498, 2498, 2497]


def test_few_open_inputs_of_many_are_found_without_a_search() -> None:
    """With so many pipelines, it would take an hour to check all of them for every item skipped."""
    places = 50_000
    pipeline = lz.source([[0]] * (places - 1) + [[1] * 20]) | lz.interleave_map(
        iter, cycle_length=places
    )
    assert list(pipeline) == [0] * (places - 1) + [1] * 20


def test_no_state_is_taken_that_nobody_asks_for() -> None:
    """Such as one that can't be kept, when one of the pipelines ends."""
    first, second = (
        lz.source(range(size)) | lz.scan(lambda held, x: (object(), x), None) for size in (2, 4)
    )
    run = lz.run(lz.interleave(first, second))
    assert [*run] == [0, 0, 1, 1, 2, 3]
    with pytest.raises(lz.InvalidState):
        _ = run.state

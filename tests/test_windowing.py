"""Windows, runs and parts of batches, where the laws don't look; and a padded last batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.testing import equal
from lazyckpt.testing.laws import Stream


class Pair(NamedTuple):
    x: Any
    y: Any


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        (lambda: lz.sliding_window(0), "width must be an int >= 1, got width=0"),
        (lambda: lz.sliding_window(2, stride=0), "stride must be an int >= 1"),
        (lambda: lz.sliding_window(True), "width must be an int >= 1, got width=True"),
        (lambda: lz.group_by(3), "key must be callable, got key=3"),
        (lambda: lz.split_batch(0), "n must be an int >= 1, got n=0"),
        (lambda: lz.batch(2, drop_last=True, pad=0), "drop_last=True and pad=0"),
    ],
)
def test_bad_arguments_are_named(stage: Any, message: str) -> None:
    with pytest.raises(lz.ArgumentError, match=message):
        stage()


@given(n=st.integers(0, 30), width=st.integers(1, 8), stride=st.integers(1, 8))
def test_windows_have_length_access_and_the_states_of_a_stream(
    n: int, width: int, stride: int
) -> None:
    indexed = lz.source(range(n)) | lz.sliding_window(width, stride=stride)
    streamed = lz.source(Stream(range(n))) | lz.sliding_window(width, stride=stride)
    found = list(indexed)
    assert [indexed[i] for i in range(len(indexed))] == found == list(streamed)
    positions = [[s.position for _, s in lz.run(p).with_state()] for p in (indexed, streamed)]
    assert positions[0] == positions[1]


def test_a_window_keeps_none_and_arrays_and_shuffles_over_indices() -> None:
    rows = np.arange(6).reshape(3, 2)
    assert equal(list(rows | lz.sliding_window(2)), [(rows[0], rows[1]), (rows[1], rows[2])])
    assert list([None, None] | lz.sliding_window(2)) == [(None, None)]
    shuffled = lz.source(range(9)) | lz.sliding_window(3) | lz.shuffle(seed=0)
    assert sorted(shuffled) == [(i, i + 1, i + 2) for i in range(7)]


def test_windows_over_a_filter_resume_in_the_middle_of_an_overlap() -> None:
    testing.check_pipeline(
        lz.source(range(40)) | lz.filter(lambda x: x % 3) | lz.sliding_window(5, stride=2),
        model=True,
    )


def test_a_window_after_a_shard_is_rank_free() -> None:
    runs = [
        lz.run(lz.source(range(20)) | lz.shard(num_shards=2, index=i) | lz.sliding_window(3))
        for i in range(2)
    ]
    assert [next(run) for run in runs] == [(0, 2, 4), (1, 3, 5)]
    assert runs[0].state == runs[1].state


@pytest.mark.parametrize("kind", [list, Stream])
def test_a_last_batch_is_filled_up_and_a_full_one_left_alone(kind: Any) -> None:
    assert list(lz.source(kind([1, 2, 3])) | lz.batch(2, pad=0)) == [[1, 2], [3, 0]]
    assert list(lz.source(kind([1, 2])) | lz.batch(2, pad=0)) == [[1, 2]]
    assert list(lz.source(kind([])) | lz.batch(2, pad=0)) == []


def test_a_table_is_padded_whichever_lane_reads_it() -> None:
    row = {"x": np.int64(-1)}
    padded = lz.columns(x=np.arange(5)) | lz.batch(2, collate=lz.stack, pad=row)
    testing.check_pipeline(padded)
    assert padded[2]["x"].tolist() == list(padded)[2]["x"].tolist() == [4, -1]
    few = lz.source(np.arange(3)) | lz.batch(2, collate=lz.stack, pad=np.int64(9))
    assert [each.tolist() for each in few] == [[0, 1], [2, 9]]


def test_runs_are_those_of_groupby() -> None:
    data = [1, 1.0, True, None, None, "a", float("nan"), 2, 2, 1]
    assert [run for _, run in data | lz.group_by(lambda x: x)] == [
        [1, 1.0, True], [None, None], ["a"], data[6:7], [2, 2], [1],
    ]  # fmt: skip
    assert list([0, False, None] | lz.group_by(bool)) == [(False, [0, False, None])]


def test_runs_of_array_keys_are_compared_by_value() -> None:
    rows = np.array([[1, 2], [1, 2], [3, 4]])
    assert [len(run) for _, run in rows | lz.group_by(lambda row: row)] == [2, 1]
    assert [len(run) for _, run in rows | lz.group_by(lambda row: (0, row))] == [2, 1]
    empties = [np.empty(0), np.empty(0), np.empty((0, 2))]
    assert [len(run) for _, run in empties | lz.group_by(lambda row: row)] == [2, 1]


class Odd:
    def __eq__(self, other: object) -> bool:
        raise ArithmeticError("no")

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "odd"


def test_keys_that_do_not_compare_are_named() -> None:
    with pytest.raises(TypeError, match="group_by: keys odd and odd don't compare"):
        list([1, 2] | lz.group_by(lambda x: Odd()))


@given(size=st.integers(0, 20), n=st.integers(1, 7))
def test_parts_of_a_batch_differ_by_at_most_one(size: int, n: int) -> None:
    batch = {"x": np.arange(2 * size).reshape(size, 2), "y": (list(range(size)),)}
    (parts,) = [batch] | lz.split_batch(n)
    assert [len(part["x"]) for part in parts] == [len(a) for a in np.array_split(batch["x"], n)]
    assert np.array_equal(np.concatenate([part["x"] for part in parts]), batch["x"])
    assert [y for part in parts for y in part["y"][0]] == batch["y"][0]


def test_parts_keep_the_kind_of_a_batch() -> None:
    (parts,) = [Pair(np.arange(3), [1, 2, 3])] | lz.split_batch(2)
    assert equal(parts, [Pair(np.array([0, 1]), [1, 2]), Pair(np.array([2]), [3])])


@pytest.mark.parametrize(
    ("batch", "kind", "message"),
    [
        (3, TypeError, "expected a batch, got 3"),
        ("abc", TypeError, "expected a batch, got 'abc'"),
        (None, TypeError, "expected a batch, got None"),
        ({}, TypeError, "expected a batch, got {}"),
        (np.array(3), TypeError, "expected a batch"),
        ({"x": [1], "y": [1, 2]}, ValueError, r"unequal lengths \[1, 2\]"),
    ],
)
def test_what_is_no_batch_has_no_parts(batch: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        list([batch] | lz.split_batch(2))

"""`collate`, `concatenate`, `batch`, `unbatch` and `split`."""

from __future__ import annotations

import pickle
import warnings
from itertools import islice
from typing import Any

import pytest
import seqtools as theirs
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.compat import seqtools as ours
from tests.compat.seqtools.cases import ITEMS, REFUSED, Endless, double, fails_at_five, outcomes


@given(st.lists(st.lists(st.integers(), max_size=4), min_size=1, max_size=3))
def test_sq21_collate(sequences: list[list[int]]) -> None:
    if len(set(map(len, sequences))) > 1:
        for library in (ours, theirs):
            with pytest.raises(REFUSED):
                library.collate(sequences)
        return
    mine, other = ours.collate(sequences), theirs.collate(sequences)
    assert (list(mine), len(mine)) == (list(other), len(other))
    assert list(ours.collate([sequences[0], ours.repeat(0)])) == [(x, 0) for x in sequences[0]]


@given(st.lists(ITEMS, max_size=4))
def test_sq22_concatenate(sequences: list[list[Any]]) -> None:
    nested = [sequences[:1], sequences[1:]]
    mine = ours.concatenate([ours.concatenate(each) for each in nested])
    other = theirs.concatenate([theirs.concatenate(each) for each in nested])
    assert (list(mine), len(mine)) == (list(other), len(other))
    assert len(mine.pipeline.calls) == 1
    assert [mine[i] for i in range(len(mine))] == list(other)


@given(st.lists(st.integers(), max_size=12), st.integers(1, 5), st.booleans(), st.booleans())
def test_sq23_batch(items: list[int], k: int, drop_last: bool, padded: bool) -> None:
    pad = 0 if padded else None
    mine = ours.batch(items, k, drop_last, pad, list)
    with warnings.catch_warnings():
        other = theirs.batch(items, k, drop_last, None if drop_last else pad, list)
    expected = list(other)
    if padded and not drop_last and expected and len(items) % k == 0:
        assert len(expected[-1]) == 2 * k  # a whole batch was padded with k more
        expected[-1] = expected[-1][:k]
    assert (list(mine), len(mine)) == (expected, len(other))
    with pytest.raises(REFUSED):
        ours.batch(items, 0)


def test_sq23_batch_of_no_end() -> None:
    assert list(islice(ours.batch(Endless(), 2), 2)) == [[0, 10], [20, 30]]
    assert ours.batch(ours.cycle("ab"), 3, collate_fn="".join)[10**6] == "aba"


@given(st.lists(st.integers(), max_size=12), st.integers(1, 5))
def test_sq24_unbatch(items: list[int], k: int) -> None:
    last = len(items) % k
    mine = ours.unbatch(ours.batch(items, k), k, last or None)
    assert list(mine) == items == [mine[i] for i in range(len(items))]
    assert len(mine) == len(items)
    if items:
        assert list(theirs.unbatch(theirs.batch(items, k), k, last)) == items
    else:
        assert len(theirs.unbatch([], k)) == k  # of nothing


def test_sq24_each_batch_is_made_once_and_wrong_sizes_are_told() -> None:
    made: list[int] = []

    def batches(n: int) -> list[int]:
        made.append(n)
        return [n, n]

    assert list(ours.unbatch(ours.smap(batches, range(3)), 2)) == [0, 0, 1, 1, 2, 2]
    assert made == [0, 1, 2]
    assert outcomes(ours.unbatch([[1, 2], [3]], 2)) == [1, 2, 3, "ValueError"]
    assert list(islice(ours.unbatch(ours.cycle(["ab"]), 2), 5)) == list("ababa")


@given(st.lists(st.integers(), max_size=12), st.integers(1, 5), st.integers(0, 12))
def test_sq24_unbatch_as_a_pipeline(items: list[int], k: int, cut: int) -> None:
    pipeline = ours.unbatch(ours.batch(items, k), k, len(items) % k or None).pipeline
    run = lz.run(pipeline)
    seen = list(islice(run, cut))
    assert seen + list(lz.run(pipeline, run.state.to_json())) == items
    assert [pipeline[i] for i in range(len(items))] == items
    assert list(pickle.loads(pickle.dumps(pipeline))) == items
    assert [lz.trace(pipeline, n)[0].place for n in range(len(items))] == [*range(len(items))]


def test_sq24_unbatch_leaves_out_the_items_of_a_batch_that_fails() -> None:
    batches = ours.smap(fails_at_five, range(4, 7))
    pairs = ours.unbatch(ours.smap(lambda n: [n, -n], batches), 2)
    expected = [4, -4, "EvaluationError", "EvaluationError", 6, -6]
    assert outcomes(pairs) == expected
    run = lz.run(pairs.pipeline, on_error="skip")
    assert (list(run), run.skipped) == ([4, -4, 6, -6], 2)


@given(st.integers(1, 12), st.data())
def test_sq25_split(size: int, data: st.DataObject) -> None:
    items = list(range(size))
    bound = st.integers(0, size)
    edges = data.draw(
        st.one_of(
            st.lists(st.integers(0, size - 1), min_size=1, max_size=4).map(sorted),
            st.lists(st.tuples(st.integers(0, size - 1), bound), min_size=1, max_size=4),
            st.integers(0, 4),
        )
    )
    if isinstance(edges, int) and size % (edges + 1):
        for library in (ours, theirs):
            with pytest.raises(REFUSED):
                library.split(items, edges)
        return
    mine, other = ours.split(items, edges), theirs.split(items, edges)
    assert (list(mine), len(mine)) == (list(other), len(other))
    lazily = ours.split(ours.smap(double, items), edges)
    assert [list(part) for part in lazily] == [[2 * x for x in part] for part in other]
    assert list(ours.split(items, [])) == [items]
    assert list(ours.split(items, [size, size])) == [items, [], []]
    assert list(theirs.split(items, [size, size]))[1] == items[-1:]  # which comes twice

"""`collate`, `concatenate`, `batch`, `unbatch` and `split`."""

from __future__ import annotations

import pickle
import threading
from itertools import chain, islice, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.compat import seqtools as ours
from tests.compat.seqtools.cases import (
    ITEMS,
    LIBRARIES,
    REFUSED,
    Endless,
    IterableTen,
    double,
    fails_at_five,
    outcomes,
    theirs,
)


@given(st.lists(st.lists(st.integers(), max_size=4), min_size=1, max_size=3))
def test_sq21_collate(sequences: list[list[int]]) -> None:
    if len(set(map(len, sequences))) > 1:
        for library in LIBRARIES:
            with pytest.raises(REFUSED):
                library.collate(sequences)
        return
    for library in LIBRARIES:
        sequence = library.collate(sequences)
        assert list(sequence) == list(zip(*sequences, strict=True))
        assert len(sequence) == len(sequences[0])
    assert list(ours.collate([sequences[0], ours.repeat(0)])) == [(x, 0) for x in sequences[0]]


@given(st.lists(ITEMS, max_size=4))
def test_sq22_concatenate(sequences: list[list[Any]]) -> None:
    nested = [sequences[:1], sequences[1:]]
    expected = list(chain.from_iterable(sequences))
    for library in LIBRARIES:
        sequence = library.concatenate([library.concatenate(each) for each in nested])
        assert (list(sequence), len(sequence)) == (expected, len(expected))
    mine = ours.concatenate([ours.concatenate(each) for each in nested])
    assert len(mine.pipeline.calls) == 1
    assert [mine[i] for i in range(len(mine))] == expected


@given(st.lists(st.integers(), max_size=12), st.integers(1, 5), st.booleans(), st.booleans())
def test_sq23_batch(items: list[int], k: int, drop_last: bool, padded: bool) -> None:
    pad = 0 if padded else None
    mine = ours.batch(items, k, drop_last, pad, list)
    expected = [items[at : at + k] for at in range(0, len(items), k)]
    if len(items) % k:
        *whole, last = expected
        last = last + [0] * (k - len(last)) * padded
        expected = whole if drop_last else [*whole, last]
    assert (list(mine), len(mine)) == (expected, len(expected))
    if theirs is not None and not (padded and (drop_last or len(items) % k == 0)):
        other = theirs.batch(items, k, drop_last, pad, list)
        assert (list(other), len(other)) == (expected, len(expected))
    with pytest.raises(REFUSED):
        ours.batch(items, 0)


def test_sq23_batch_of_no_end() -> None:
    assert list(islice(ours.batch(Endless(), 2), 2)) == [[0, 10], [20, 30]]
    assert ours.batch(ours.cycle("ab"), 3, collate_fn="".join)[10**6] == "aba"


@given(st.lists(st.integers(), max_size=12), st.integers(1, 5), st.integers(0, 12))
def test_sq24_unbatch(items: list[int], k: int, cut: int) -> None:
    mine = ours.unbatch(ours.batch(items, k), k, len(items) % k or None)
    assert list(mine) == items == [mine[i] for i in range(len(items))]
    assert len(mine) == len(items)
    pipeline = mine.pipeline
    run = lz.run(pipeline)
    seen = list(islice(run, cut))
    assert seen + list(lz.run(pipeline, run.state.to_json())) == items
    assert list(pickle.loads(pickle.dumps(pipeline))) == items
    assert [lz.trace(pipeline, n)[0].index for n in range(len(items))] == [*range(len(items))]


def test_sq24_each_batch_is_made_once_and_wrong_sizes_are_told() -> None:
    made: list[int] = []

    def batches(n: int) -> list[int]:
        made.append(n)
        return [n, n]

    assert list(ours.unbatch(ours.smap(batches, range(3)), 2)) == [0, 0, 1, 1, 2, 2]
    assert made == [0, 1, 2]
    pairs = ours.unbatch(ours.smap(batches, range(3)), 2)
    del made[:]
    assert pairs[0] == 0
    other = threading.Thread(target=lambda: pairs[4])
    other.start(), other.join()
    assert (pairs[1], made) == (0, [0, 2])  # each thread keeps the batch that it used last
    assert outcomes(ours.unbatch([[1, 2], [3]], 2)) == [1, 2, 3, "ValueError"]
    assert list(islice(ours.unbatch(ours.cycle(["ab"]), 2), 5)) == list("ababa")
    with pytest.raises(TypeError, match="no indices"):
        ours.unbatch(IterableTen(), 2)


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
        for library in LIBRARIES:
            with pytest.raises(REFUSED):
                library.split(items, edges)
        return
    if isinstance(edges, int):
        bounds = list(pairwise(range(0, size + 1, size // (edges + 1))))
    else:
        is_paired = isinstance(edges[0], tuple)
        bounds = edges if is_paired else list(pairwise([0, *edges, size]))
    expected = [items[start:stop] for start, stop in bounds]
    for library in LIBRARIES:
        sequence = library.split(items, edges)
        assert (list(sequence), len(sequence)) == (expected, len(expected))
    lazily = ours.split(ours.smap(double, items), edges)
    assert [list(part) for part in lazily] == [[2 * x for x in part] for part in expected]
    assert list(ours.split(items, [])) == [items]
    assert list(ours.split(items, [size, size])) == [items, [], []]

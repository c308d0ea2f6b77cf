"""Chunked datasets, compared with Infinibatch's."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from infinibatch import datasets as old_datasets

from lazyckpt.compat.infinibatch import datasets
from tests.compat.infinibatch.cases import some, through_json

CHUNKS = [[f"{number}-{line}" for line in range(number % 4)] for number in range(9)]


@given(
    st.integers(0, 5), st.booleans(), st.booleans(), st.sampled_from([None, str.upper]), st.data()
)
def test_ib46_chunked_dataset(
    seed: int, shuffle: bool, windowed: bool, transform: Any, data: Any
) -> None:
    ranks = data.draw(st.integers(1, 4))
    rank, cut = data.draw(st.integers(0, ranks - 1)), data.draw(st.integers(0, 40))
    ours, other, theirs = (
        module.chunked_dataset_iterator(
            list(range(9)), CHUNKS.__getitem__, 6, True, seed, shuffle, windowed, transform,
            num_instances=ranks, instance_rank=rank,
        )
        for module in (datasets, datasets, old_datasets)
    )  # fmt: skip
    assert some(ours, cut) == some(theirs, cut)
    other.setstate(theirs.getstate())
    rest = some(theirs, 30)
    assert some(other, 30) == rest
    other.setstate(through_json(ours.getstate()))
    assert some(other, 30) == rest


def test_ib47_chunked_dataset_to_train_or_not() -> None:
    with pytest.raises(ValueError, match="shuffl"):
        datasets.chunked_dataset_iterator([1], iter, 2, train=False)
    parts = [
        some(datasets.chunked_dataset_iterator(
            CHUNKS, iter, 6, False, shuffle=False, num_instances=4, instance_rank=rank
        ))
        for rank in range(4)
    ]  # fmt: skip
    assert list(chain(*parts)) == list(chain(*CHUNKS))
    for shuffle in (True, False):
        empty = datasets.chunked_dataset_iterator([[], [], []], iter, 6, seed=0, shuffle=shuffle)
        with pytest.raises(ValueError, match="empty"):
            next(empty)
    it = datasets.chunked_dataset_iterator(CHUNKS, iter, 6, seed=0, prefetch=True)
    plain = old_datasets.chunked_dataset_iterator(CHUNKS, iter, 6, seed=0)
    assert some(it) == some(plain)
    it.close()

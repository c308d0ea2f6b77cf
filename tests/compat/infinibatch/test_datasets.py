"""Chunked datasets, compared with Infinibatch's."""

from __future__ import annotations

from itertools import chain

import pytest
from infinibatch import datasets as old_datasets

from lazyckpt.compat.infinibatch import datasets
from tests.compat.infinibatch.cases import CHUNKS, some


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


def test_ib45_bump_seed() -> None:
    for bump in (datasets.bump_seed, old_datasets.bump_seed):
        assert (bump(None), bump(4)) == (None, 5)
    assert datasets.bump_seed(4, 3) == 7

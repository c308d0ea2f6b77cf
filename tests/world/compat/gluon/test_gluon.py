"""`ShardedDataLoader` and its samplers with torch's tensors and loader."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lazyckpt.compat.gluon import FixedBucketSampler, ShardedDataLoader, default_batchify_fn
from tests.compat.gluon.cases import TENS, WORKERS, joined, loader


def test_gl6_batches_may_be_tensors() -> None:
    assert list(loader(4, batch_sampler=[torch.tensor([1, 2])])) == [[10, 20]]
    sharded = torch.tensor([[0, 1], [2, 3]])
    assert list(loader(4, batch_sampler=[sharded])) == [[[0, 10], [20, 30]]]


def test_gl7_batchify_stacks_tensors() -> None:
    assert torch.equal(default_batchify_fn([torch.ones(2)] * 2), torch.ones(2, 2))


@pytest.mark.parametrize("workers", WORKERS[:2])
def test_gl10_pinned_memory_shard_by_shard(workers: dict[str, Any]) -> None:
    data = [(torch.ones(2), np.ones(2), "text") for _ in range(3)]
    with ShardedDataLoader(data, batch_sampler=[[[0, 1], [2]]], pin_memory=True, **workers) as made:
        ((first, second),) = list(made)
    for (tensor, array, text), size in ((first, 2), (second, 1)):
        assert tensor.shape == array.shape == (size, 2)
        assert text == ["text"] * size
        assert isinstance(array, np.ndarray)
        assert tensor.is_pinned() is torch.cuda.is_available()


def test_gl21_samplers_serve_torch_too() -> None:
    batches = FixedBucketSampler([1, 2, 3, 4], 2, 2, shuffle=True, seed=0)
    made = torch.utils.data.DataLoader(TENS[:4], batch_sampler=batches, collate_fn=list)  # type: ignore[arg-type]
    assert len(made) == 2
    assert sorted(joined(made)) == [0, 10, 20, 30]

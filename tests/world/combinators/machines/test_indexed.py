"""Read-only rows, as torch's tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import lazyckpt as lz
from lazyckpt.compat.seqtools import DataLoader
from tests.combinators.machines.test_indexed import ROWS, same


@pytest.mark.filterwarnings("error")
def test_tensors_are_made_without_a_warning() -> None:
    rows = ROWS.copy()
    for options in ({"batch_size": 2}, {"batch_size": None}, {"shuffle": True}):
        assert all(isinstance(each, torch.Tensor) for each in DataLoader(rows, **options))
    for stages in (lz.map(same), lz.batch(2), lz.batch(2, collate=lz.stack)):
        tensors = [batch[0] for batch in lz.torch.loader(lz.source(rows) | stages)]
        assert all(isinstance(each, torch.Tensor) for each in tensors)
        for each in tensors:
            each += 1
    assert np.array_equal(rows, ROWS)
    batched = lz.source(rows) | lz.batch(2, collate=lz.stack) | lz.map(torch.from_numpy)
    assert all(isinstance(each, torch.Tensor) for each in batched)

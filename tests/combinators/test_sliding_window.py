"""Windows, beyond the laws."""

from __future__ import annotations

import numpy as np

import lazyckpt as lz
from lazyckpt.testing import equal


def test_a_window_keeps_none_and_arrays_and_shuffles_over_indices() -> None:
    rows = np.arange(6).reshape(3, 2)
    assert equal(list(rows | lz.sliding_window(2)), [(rows[0], rows[1]), (rows[1], rows[2])])
    assert list([None, None] | lz.sliding_window(2)) == [(None, None)]
    shuffled = lz.source(range(9)) | lz.sliding_window(3) | lz.shuffle(seed=0)
    assert sorted(shuffled) == [(i, i + 1, i + 2) for i in range(7)]

"""Parts of batches, beyond the laws."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing import equal


class Pair(NamedTuple):
    x: Any
    y: Any


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

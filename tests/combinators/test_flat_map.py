"""`unbatch` undoes `batch`; and the arguments that it refuses."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import lazyckpt as lz


@given(st.data())
def test_unbatch_undoes_batch(data: st.DataObject) -> None:
    leaf = st.sampled_from([
        st.integers(-(2**31), 2**31), st.booleans(), st.floats(allow_nan=False),
        st.text(max_size=3), st.binary(max_size=3),
        arrays.arrays(np.int16, (2, 2)), arrays.arrays(np.float32, (0,)),
    ])  # fmt: skip
    shape = data.draw(
        st.recursive(
            leaf,
            lambda inner: (
                st.lists(inner, min_size=1, max_size=3).map(lambda s: st.tuples(*s))
                | st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(
                    st.fixed_dictionaries
                )
            ),
            max_leaves=4,
        )
    )
    items = data.draw(st.lists(shape, max_size=7))
    size = data.draw(st.integers(1, 4))
    for collate in (None, lz.stack):
        pipeline = lz.source(items) | lz.batch(size, collate=collate) | lz.unbatch()
        if collate is not None or not (items and isinstance(items[0], (tuple, dict))):
            assert plain(list(pipeline)) == plain(items)


Pair = namedtuple("Pair", ["a", "b"])


@pytest.mark.parametrize(
    ("batch", "error", "words"),
    [
        ({"x": [1, 2], "y": np.arange(3)}, ValueError, "unequal lengths {'x': 2, 'y': 3}"),
        (([1], [1, 2]), ValueError, "unequal lengths {0: 1, 1: 2}"),
        (Pair([1], []), ValueError, "unequal lengths {0: 1, 1: 0}"),
        ({"x": {"a": [1], "b": []}, "y": [1]}, ValueError, "unequal lengths {'a': 1, 'b': 0}"),
        ("abc", TypeError, r"expected a batch, got 'abc' \(str\)"),
        (b"abc", TypeError, r"expected a batch, got b'abc' \(bytes\)"),
        ({"x": [1, 2], "y": "ab"}, TypeError, r"expected a batch, got 'ab' \(str\)"),
        (3, TypeError, r"expected a batch, got 3 \(int\)"),
        (np.array(3), TypeError, r"expected a batch, got array\(3\) \(ndarray\)"),
        ({"x": np.array(3)}, TypeError, r"expected a batch, got array\(3\) \(ndarray\)"),
    ],
)
def test_unbatch_refuses(batch: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"^unbatch: .*{words}"):
        list(lz.source([batch]) | lz.unbatch())


def plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value

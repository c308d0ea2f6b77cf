"""`unbatch` undoes `batch`."""

from __future__ import annotations

from typing import Any

import numpy as np
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


def plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value

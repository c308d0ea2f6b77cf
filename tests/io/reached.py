"""What readers make of tables of pyarrow, held to what pyarrow makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lazyckpt as lz
from lazyckpt.testing import equal

NUMBERS: dict[Any, Any] = {
    pa.bool_(): np.bool_,
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.uint8(): np.uint8,
    pa.uint16(): np.uint16,
    pa.uint32(): np.uint32,
    pa.uint64(): np.uint64,
    pa.float16(): np.float16,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
}


def documented(value: Any, kind: Any) -> Any:
    """What a reader makes of what pyarrow makes of a value."""
    if pa.types.is_run_end_encoded(kind):
        return documented(value, kind.value_type)
    if pa.types.is_dictionary(kind) and kind.value_type in NUMBERS:
        return documented(value, kind.value_type)
    if value is None:
        return None
    if kind in NUMBERS:
        return NUMBERS[kind](value)
    if isinstance(kind, pa.FixedShapeTensorType) and None not in value:
        return np.array(value, NUMBERS[kind.value_type]).reshape(kind.shape)
    is_list = "list" in str(kind).partition("<")[0] and kind.value_type in NUMBERS
    return np.array(value, NUMBERS[kind.value_type]) if is_list and None not in value else value


def check_reached(rows: Any, expected: Sequence[Any]) -> None:
    """That a reader gives these rows in order, by index, shuffled, resumed and in batches."""
    count = len(expected)
    assert equal(list(rows), expected)
    assert equal([rows[n] for n in range(count)], expected)
    assert equal(rows[::-1], expected[::-1])
    order = [*range(0, count, 2), *range(1, count, 2)] * 2
    assert equal(rows.__getitems__(order), [expected[n] for n in order])
    pipeline = lz.source(rows) | lz.shuffle(seed=1)
    mixed = list(pipeline)
    assert equal(sorted(mixed, key=repr), sorted(expected, key=repr))
    assert equal(list(lz.run(pipeline, lz.state_at(pipeline, count // 2))), mixed[count // 2 :])
    for some, stage in ((expected, lz.skip(0)), (mixed, lz.shuffle(seed=1))):
        batches = rows | stage | lz.batch(2, collate=lz.stack)
        for number in range(0, count, 2):
            try:
                batch = lz.stack(some[number : number + 2])
            except (TypeError, ValueError) as error:
                with pytest.raises(type(error)):
                    batches[number // 2]
            else:
                assert equal(batches[number // 2], batch)

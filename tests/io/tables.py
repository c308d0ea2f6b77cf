"""Random tables of pyarrow, and the rows that they have."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

KINDS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "uint8": (pa.uint8(), st.integers(0, 255)),
    "float32": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "bool": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text(max_size=3)),
    "bytes": (pa.binary(), st.binary(max_size=3)),
    "tokens": (pa.list_(pa.int32()), st.lists(st.integers(0, 9) | st.none(), max_size=3)),
    "vector": (
        pa.list_(pa.float32(), 2),
        st.lists(st.integers(0, 9), min_size=2, max_size=2),
    ),
    "words": (pa.large_list(pa.string()), st.lists(st.text(max_size=2), max_size=2)),
    "struct": (pa.struct({"x": pa.int64()}), st.fixed_dictionaries({"x": st.integers(0, 9)})),
    "date": (pa.date32(), st.dates()),
}
NUMBERS = {"int32": np.int32, "uint8": np.uint8, "float32": np.float32, "bool": np.bool_}
INNER = {"tokens": np.int32, "vector": np.float32}


def value(name: str, found: Any) -> Any:
    """What a reader makes of a value."""
    kind = name.rpartition(" ")[2]
    if found is None:
        return None
    if kind in NUMBERS:
        return NUMBERS[kind](found)
    if kind in INNER and None not in found:
        return np.array(found, INNER[kind])
    return found


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Any], list[dict[str, Any]]]:
    """Tables of the same columns, and their rows."""
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4))
    names = [f"{number} {kind}" for number, kind in enumerate(kinds)]
    schema = pa.schema([(n, KINDS[kind][0]) for n, kind in zip(names, kinds, strict=True)])
    found, rows = [], []
    for _ in range(draw(st.integers(1, 3))):
        values = {
            name: KINDS[kind][1] if draw(st.booleans()) else KINDS[kind][1] | st.none()
            for name, kind in zip(names, kinds, strict=True)
        }
        some = draw(st.lists(st.fixed_dictionaries(values), max_size=7))
        found.append(pa.Table.from_pylist(some, schema))
        rows += [{name: value(name, row[name]) for name in names} for row in some]
    return found, rows


_STAMP = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
# Columns as few write them: their types, a value, and what a reader makes of it.
_ODD: dict[str, list[tuple[Any, Any, Any]]] = {
    "numbers": [
        (pa.float16(), np.float16(0.5), np.float16(0.5)),
        (pa.list_(pa.float16()), [np.float16(0.5)], np.array([0.5], np.float16)),
        (pa.decimal128(5, 2), Decimal("1.25"), Decimal("1.25")),
        (pa.uint64(), 2**64 - 1, np.uint64(2**64 - 1)),
    ],
    "times": [
        (kind, _STAMP, pa.scalar(_STAMP, kind).as_py())
        for kind in [*map(pa.timestamp, ("s", "ms", "us", "ns")), pa.timestamp("us", "UTC")]
    ],
    "dictionaries": [(pa.dictionary(pa.int32(), pa.string()), "a", "a")],
}


def _odd(columns: list[tuple[Any, Any, Any]]) -> tuple[Any, list[dict[str, Any]]]:
    """A table of columns that begin with nothing, and its rows."""
    table = pa.table({
        f"{n}": pa.array([None, None, None, given, given], kind)
        for n, (kind, given, _) in enumerate(columns)
    })  # fmt: skip
    some = {f"{n}": found for n, (_, _, found) in enumerate(columns)}
    return table, [dict.fromkeys(some)] * 3 + [some] * 2


ODD = {name: _odd(columns) for name, columns in _ODD.items()}
VIEWS = _odd([(pa.string_view(), "a", "a"), (pa.binary_view(), b"a", b"a")])  # not in Parquet

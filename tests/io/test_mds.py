"""MDS: shards as mosaicml-streaming wrote them, and random ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing import equal
from tests.io import formats
from tests.io.cases import check_reader
from tests.io.contents import Contents
from tests.io.laws import put

FEW = settings(max_examples=max(4, settings.default.max_examples // 15))


def listed(files: Sequence[Sequence[dict[str, Any]]], **change: Any) -> Path:
    """The list of such shards."""
    return Path(put(Contents(formats.mds(files, **change), [])), "index.json")


ROWS = [{"text": str(n), "number": np.int32(n)} for n in range(5)]


SCALARS = [
    "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32",
    "float64",
]  # fmt: skip


def arrays(kind: str) -> st.SearchStrategy[Any]:
    """Arrays of a type, of one to three dimensions."""

    @st.composite
    def draw(draw: st.DrawFn) -> Any:
        shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
        size = int(np.prod(shape))
        content = draw(st.binary(min_size=size * np.dtype(kind).itemsize, max_size=size * 8))
        return np.frombuffer(content, kind, size).reshape(shape)

    return draw()


def encoded_array(value: Any, has_type: bool, has_shape: bool) -> bytes:
    """An array as MDS has it, with its type and shape before it unless the encoding says them."""
    kinds = {"u": 0, "i": 1, "f": 2}
    head = b"" if has_type else bytes([8 * value.itemsize + kinds[value.dtype.kind]])
    head += b"" if has_shape else bytes([value.ndim << 2, *value.shape])
    return head + value.tobytes()


def in_list(parts: list[bytes], head: bytes) -> bytes:
    sizes = np.array([len(parts), *map(len, parts)], "<u4")
    return head + sizes.tobytes() + b"".join(parts)


PARTS = st.lists(st.binary(max_size=3), max_size=3)
VALUES: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], bytes]]] = {
    "bytes": (st.binary(max_size=5), bytes),
    "str": (st.text(max_size=5), str.encode),
    "int": (st.integers(-(2**63), 2**63 - 1), lambda value: np.int64(value).tobytes()),
    "str_int": (st.integers(), lambda value: str(value).encode()),
    "str_float": (st.floats(), lambda value: str(value).encode()),
    "str_decimal": (st.decimals(allow_nan=False), lambda value: str(value).encode()),
    "json": (st.none() | st.lists(st.text() | st.floats()), lambda v: json.dumps(v).encode()),
    "ndarray": (st.sampled_from(SCALARS).flatmap(arrays), lambda v: encoded_array(v, False, False)),
    "ndarray:int16": (arrays("i2"), lambda value: encoded_array(value, True, False)),
    "ndarray:float32:2,3": (
        arrays("f4").map(lambda value: np.resize(value, (2, 3))),
        lambda value: encoded_array(value, True, True),
    ),
    "jpeg_array": (PARTS, lambda parts: in_list(parts, b"")),
    "list[png]": (PARTS, lambda parts: in_list(parts, bytes(4))),
} | {
    kind: (arrays(kind).map(lambda value: value.ravel()[0]), lambda value: value.tobytes())
    for kind in SCALARS
}  # fmt: skip
SIZES = {"int": 8, "ndarray:float32:2,3": 24} | {kind: np.dtype(kind).itemsize for kind in SCALARS}


@FEW
@given(st.data(), st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=5))
def test_values_of_all_encodings_are_as_they_were(data: st.DataObject, kinds: list[str]) -> None:
    rows = data.draw(st.lists(st.tuples(*(VALUES[kind][0] for kind in kinds)), max_size=4))
    samples = []
    for row in rows:
        parts = [VALUES[kind][1](value) for kind, value in zip(kinds, row, strict=True)]
        sizes = [len(p) for kind, p in zip(kinds, parts, strict=True) if kind not in SIZES]
        samples.append(np.array(sizes, "<u4").tobytes() + b"".join(parts))
    bounds = np.cumsum([4 * (len(rows) + 2), *map(len, samples)]).astype("<u4")
    content = np.uint32(len(rows)).tobytes() + bounds.tobytes() + b"".join(samples)
    names = [f"{number}" for number in range(len(kinds))]
    encodings = {"column_encodings": kinds, "column_sizes": [SIZES.get(kind) for kind in kinds]}
    raw = {"basename": "shard.00000.mds", "bytes": len(content)}
    path = listed([[]], column_names=names, samples=len(rows), raw_data=raw, **encodings)
    (path.parent / "shard.00000.mds").write_bytes(content)
    check_reader(lz.io.read_mds(path), [dict(zip(names, row, strict=True)) for row in rows])


def test_a_row_says_where_it_is() -> None:
    path = listed([ROWS[:3], ROWS[3:]])
    (found,) = lz.trace(lz.source(lz.io.read_mds(path)), 4)
    assert found.row == (str(path.parent / "shard.00001.mds"), 1, 27, 36)


def test_several_folders_are_one_sequence() -> None:
    paths = [listed([ROWS[:2]]), listed([ROWS[2:]])]
    assert equal(list(lz.io.read_mds(paths)), ROWS)


def test_shards_of_a_listing_are_not_looked_for() -> None:
    path = listed([ROWS])
    files = lz.io.files([path, path.parent / "*.mds"])
    saved = lz.io.Files.from_json(files.to_json())
    (path.parent / "shard.00000.mds").write_bytes(b"other")
    with pytest.raises(lz.SourceChanged, match=r"shard\.00000\.mds changed since it was listed"):
        list(lz.io.read_mds(saved))

"""Values that are none: errors that name the row, which alone is left out."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

import lazyckpt as lz
from tests.io.cases import folder, written
from tests.io.formats import saved


def no_text(out: Any, write: Callable[[Any, Any], None]) -> None:
    """A table of which row 1 has a text that is none."""
    buffers = [None, pa.py_buffer(np.arange(4, dtype="i4")), pa.py_buffer(b"a\xffc")]
    write(pa.table({"n": range(3), "t": pa.Array.from_buffers(pa.string(), 3, buffers)}), out)


@pytest.mark.parametrize(
    ("suffix", "write"),
    [
        (".parquet", parquet.write_table),
        (".arrow", lambda found, out: feather.write_feather(found, out, "uncompressed")),
        (".feather", lambda found, out: feather.write_feather(found, out, "zstd")),
    ],
)
def test_bytes_that_are_no_text_are_of_one_row(suffix: str, write: Any) -> None:
    read = lz.io.read_parquet if suffix == ".parquet" else lz.io.read_arrow
    reader = read(written([saved(lambda out: no_text(out, write))], suffix))
    batches = reader | lz.batch(2, collate=lz.stack)
    message = rf"record 1 at byte \d+ of .*000\{suffix}: 'utf-8' codec"
    for get in (lambda: reader[1], lambda: reader[::-1], lambda: list(reader), lambda: batches[0]):
        with pytest.raises(lz.io.RecordError, match=message):
            get()
    with lz.run(lz.source(reader), on_error="skip") as run:
        assert [row["t"] for row in run] == ["a", "c"]


def test_offsets_of_a_mapped_file_are_checked() -> None:
    content = saved(
        lambda out: feather.write_feather(pa.table({"t": ["a", "b", "c"]}), out, "uncompressed")
    )
    bounds = np.arange(4, dtype="i4").tobytes()
    assert content.count(bounds) == 1
    far = np.array([0, 1, 2, 1 << 30], "i4").tobytes()
    reader = lz.io.read_arrow(written([content.replace(bounds, far)], ".arrow"))
    with pytest.raises(lz.io.RecordError, match=r"record 0 at byte \d+ of .*000\.arrow: "):
        reader[2]


def test_the_row_of_a_database_that_is_no_text_is_named() -> None:
    path = folder() / "a.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (v)")
        for n in range(9):
            value = "CAST(x'ff' AS TEXT)" if n == 6 else f"'{n}'"
            connection.execute(f"INSERT INTO t VALUES ({value})")
    reader = lz.io.read_sqlite(path, "t")
    for get in (lambda: list(reader), lambda: reader[::-1]):
        with pytest.raises(lz.io.RecordError, match=rf"record 6 at byte 0 of {path}: "):
            get()

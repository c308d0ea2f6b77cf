"""Arrow IPC and Feather: record batches mapped into memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather

import lazyckpt as lz
from tests.io.cases import check_reader, folder
from tests.io.formats import ipc
from tests.io.tables import files_of


def numbers(count: int, form: str = "arrow") -> lz.io.Files:
    words = pa.array(["even", "odd"] * (count // 2)).dictionary_encode()
    return files_of(pa.table({"n": range(count), "word": words}), form=form, size=10)


@pytest.mark.parametrize("form", ["arrow", "stream"])
def test_dictionaries_are_what_they_hold(form: str) -> None:
    reader = lz.io.read_arrow(numbers(40, form))
    expected = [{"n": np.int64(n), "word": "odd" if n % 2 else "even"} for n in range(40)]
    check_reader(reader, expected)
    assert reader.block_starts.tolist() == [0, 10, 20, 30]


def test_the_footer_of_a_file_says_where_its_record_batches_are() -> None:
    files = files_of(pa.table({"x": range(9)}), form="arrow", size=4)
    path = Path(files[0].path)
    content = bytearray(path.read_bytes())
    first = int.from_bytes(content[12:16], "little") + 16  # bytes of the schema, which no one reads
    content[8:first] = bytes(first - 8)
    path.write_bytes(content)
    assert pa.ipc.open_file(path).read_all().to_pylist() == [{"x": n} for n in range(9)]
    rows = lz.io.read_arrow(path, index_dir=folder())
    assert [row["x"] for row in rows] == [rows[n]["x"] for n in range(9)] == [*range(9)]


def number(content: bytes, at: int, size: int = 4) -> int:
    return int.from_bytes(content[at : at + size], "little")


def big_endian(content: bytearray, root: int, slot: int) -> None:
    """Let the schema that a table of flatbuffers has in a slot say that numbers are big endian."""
    table = root + number(content, root)
    field = table + number(content, table - number(content, table) + 4 + 2 * slot, 2)
    schema = field + number(content, field)
    one = next(at for at in range(schema, len(content), 2) if number(content, at, 2) == 1)
    where = schema - number(content, schema) + 4  # of what it says first
    content[where : where + 2] = (one - schema).to_bytes(2, "little")


@pytest.mark.parametrize("made", [pa.ipc.new_file, pa.ipc.new_stream])
def test_numbers_may_be_big_endian(made: Any) -> None:
    values = [1, 2, 70_000]
    path = folder() / "a.arrow"
    ipc(pa.table({"x": pa.array(values * 2, pa.int32())}), path, 3, made)
    little, big = (np.array(values, f"{order}i4").tobytes() for order in "<>")
    content = bytearray(path.read_bytes().replace(little, big))
    if made is pa.ipc.new_stream:
        big_endian(content, 8, 2)
        reference = pa.ipc.open_stream(bytes(content)).read_all()
    else:
        big_endian(content, len(content) - 10 - number(content, len(content) - 10), 1)
        reference = pa.ipc.open_file(bytes(content)).read_all()
    assert reference["x"].to_pylist() == values * 2
    path.write_bytes(content)
    check_reader(lz.io.read_arrow(path), [{"x": np.int32(value)} for value in values * 2])


def test_a_reader_that_gives_no_rows_where_there_are_some_is_an_error() -> None:
    class Empty(lz.io.Rows[int]):
        def read_rows(self, number: int, records: Any) -> list[int]:
            return []

    rows = Empty("empty", numbers(2), [2], {})
    with pytest.raises(lz.PipelineError, match=r"empty: no rows of .*000\.arrow are left"):
        list(rows)


def test_a_dictionary_that_grows_is_refused() -> None:
    place = folder()
    batches = [
        pa.record_batch({"d": pa.array([word]).dictionary_encode()}) for word in ("one", "two")
    ]
    with pa.ipc.new_stream(f"{place}/a.arrow", batches[0].schema) as out:
        for batch in batches:
            out.write_batch(batch)
    with pytest.raises(lz.io.RecordError, match=r"a\.arrow: what a dictionary holds changes behin"):
        lz.io.read_arrow(f"{place}/a.arrow")


def test_columns_are_chosen() -> None:
    files = numbers(20)
    assert list(lz.io.read_arrow(files, columns=["word"])[1]) == ["word"]
    with pytest.raises(
        lz.ArgumentError, match=r"no column 'z' in .*000.arrow, which has \['n', 'w"
    ):
        lz.io.read_arrow(files, columns=["z"])


def test_feather_is_read() -> None:
    place = folder()
    feather.write_feather(pa.table({"n": range(9)}), f"{place}/a.feather", chunksize=4)
    assert [row["n"] for row in lz.io.read_arrow(f"{place}/a.feather")] == list(range(9))
    Path(f"{place}/b.feather").write_bytes(b"FEA1" + bytes(50) + b"FEA1")
    with pytest.raises(lz.io.RecordError, match=r"b\.feather: it is of Feather's version 1"):
        lz.io.read_arrow(f"{place}/b.feather")

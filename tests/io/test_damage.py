"""Damaged files of every format: an error that names the file, or rows that are left out."""

from __future__ import annotations

import random
import sqlite3
import struct
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

import lazyckpt as lz
from lazyckpt.testing import equal
from tests.io.cases import folder, written
from tests.io.formats import EXAMPLES, saved

OF_PYARROW = [".parquet", ".arrow"]
NONE = {  # what is no file of its format at all
    ".tar": [b"", b"no tar at all", b"x" * 2000],
    ".parquet": [
        b"",
        b"PAR1",
        b"no Parquet at all",
        b"PAR1" + b"x" * 99,
        b"PAR1" + b"x" * 50 + struct.pack("<I", 50) + b"PAR1",
    ],
    ".arrow": [b"no file of Arrow's at all"],
}


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Content of which some bytes are others, gone or new; more often near the end."""
    found = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 4])):
        behind = chance.randrange(min(len(found), chance.choice([400, 1 << 30])) or 1)
        at = max(0, len(found) - 1 - behind)
        new = chance.randbytes(chance.randrange(1, 30))
        found[slice(at, None)] = chance.choice([
            b"",
            new[:1] + found[at + 1 :],
            found[at + len(new) :],
            new + found[at:],
            bytes(len(new)) + found[at + len(new) :],
        ])  # fmt: skip
    return bytes(found)


@pytest.mark.parametrize("suffix", [each for each in EXAMPLES if each not in OF_PYARROW])
def test_damage_is_an_error_that_names_the_file(suffix: str) -> None:
    content, read = EXAMPLES[suffix]
    chance = random.Random(suffix)
    for _ in range(30):
        files = written([damaged(content, chance)], suffix)
        if (reader := opened(read, files)) is None:
            continue
        with lz.run(lz.source(reader), on_error="skip") as run:
            assert len(list(run)) + run.skipped == len(reader)
        if run.skipped:
            with pytest.raises(lz.PipelineError, match=files[0].path):
                list(reader)


def opened(read: Callable[..., lz.io.Rows[Any]], files: lz.io.Files) -> lz.io.Rows[Any] | None:
    """A reader; None where that is an error that names the file."""
    place = folder()
    with suppress(lz.PipelineError):
        return read(files, index_dir=place)
    with pytest.raises(lz.PipelineError, match=files[0].path):
        read(files, index_dir=place)
    return None


@pytest.mark.parametrize("suffix", NONE)
def test_what_is_none_of_a_format_is_named(suffix: str) -> None:
    for content in NONE[suffix]:
        with pytest.raises(lz.io.RecordError, match=rf"000\{suffix}: "):
            EXAMPLES[suffix][1](written([content], suffix))


PLAIN = [each for each in EXAMPLES if not each.endswith((".db", ".gz", ".zst"))]


@pytest.mark.parametrize("suffix", PLAIN)  # of a compressed file, what was read may be kept
def test_a_file_that_changed_is_named(suffix: str) -> None:
    content, read = EXAMPLES[suffix]
    files = written([content, content], suffix)
    reader = read(files, index_dir=folder())
    expected = reader[0]
    Path(files[1].path).write_bytes(content + content)
    assert equal(reader[0], expected)
    with pytest.raises((lz.SourceChanged, lz.io.RecordError), match=rf"001\{suffix} changed since"):
        reader[len(reader) - 1]


@pytest.mark.parametrize(
    ("suffix", "module"), [(".parquet", "pyarrow.parquet"), (".arrow", "pyarrow.ipc")]
)
def test_without_pyarrow_the_extra_is_named(
    suffix: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, read = EXAMPLES[suffix]
    monkeypatch.setitem(sys.modules, module, None)
    message = rf"{read.__name__} needs pyarrow: .*lazyckpt\[arrow\]"
    with pytest.raises(lz.PipelineError, match=message):
        read(written([content], suffix))


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

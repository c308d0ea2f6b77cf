"""Damaged files of every format: an error that names the file, or rows that are left out."""

from __future__ import annotations

import io
import random
import sqlite3
import struct
import tarfile
from collections.abc import Callable
from contextlib import closing, suppress
from gzip import compress as gzip
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google_crc32c import value as crc32c
from pyarrow import feather, parquet

import lazyckpt as lz
from tests.io.cases import folder, written, zstd

TEXT = "".join(f'{{"n": {n}, "é": "{"x" * (n % 9)}"}}\n' for n in range(60)).encode()


def tokens(files: Any, **options: Any) -> lz.io.Rows[Any]:
    return lz.io.read_tokens(files, length=5)


def table(files: Any, **options: Any) -> lz.io.Rows[Any]:
    return lz.io.read_sqlite(files, "t")


def saved(write: Callable[[Any], None]) -> bytes:
    out = io.BytesIO()
    write(out)
    return out.getvalue()


def samples(out: Any) -> None:
    with tarfile.open(fileobj=out, mode="w") as archive:
        for n in range(6):
            info = tarfile.TarInfo(f"{n}.txt")
            info.size = 700
            archive.addfile(info, io.BytesIO(b"%d" % n * 700))


def records(out: Any) -> None:
    for n in range(12):
        length, data = struct.pack("<Q", 5), b"%05d" % n
        sums = [(each >> 15 | each << 17) + 0xA282EAD8 for each in map(crc32c, (length, data))]
        first, second = (struct.pack("<I", each & 0xFFFFFFFF) for each in sums)
        out.write(length + first + data + second)


def database(out: Any) -> None:
    with closing(sqlite3.connect(":memory:")) as connection, connection:
        connection.execute("CREATE TABLE t (a, b)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, f"{n}") for n in range(200)])
        connection.commit()
        out.write(connection.serialize())


FORMATS: dict[str, tuple[bytes, Callable[..., lz.io.Rows[Any]]]] = {
    ".txt": (TEXT, lz.io.read_text),
    ".jsonl": (TEXT, lz.io.read_jsonl),
    ".jsonl.gz": (gzip(TEXT) + gzip(TEXT), lz.io.read_jsonl),
    ".jsonl.zst": (zstd.compress(TEXT) + zstd.compress(TEXT), lz.io.read_jsonl),
    ".csv": (b"a,b\n" + b'1,"x\n""y"\n' * 20, lz.io.read_csv),
    ".tar": (saved(samples), lz.io.read_tar),
    ".tar.gz": (gzip(saved(samples)), lz.io.read_tar),
    ".tfrecord": (saved(records), lz.io.read_tfrecord),
    ".npy": (saved(lambda out: np.save(out, np.arange(50))), tokens),
    ".npz": (saved(lambda out: np.savez(out, x=np.arange(50))), tokens),
    ".db": (saved(database), table),
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


@pytest.mark.parametrize("suffix", FORMATS)
def test_damage_is_an_error_that_names_the_file(suffix: str) -> None:
    content, read = FORMATS[suffix]
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


def test_a_footer_that_is_none_is_named() -> None:
    footer = b"x" * 50 + struct.pack("<I", 50) + b"PAR1"
    with pytest.raises(lz.io.RecordError, match=r"000\.parquet: "):
        lz.io.read_parquet(written([b"PAR1" + footer], ".parquet"))


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

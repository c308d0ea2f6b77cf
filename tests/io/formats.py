"""Random files of every format, and the rows that they have."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import struct
import tarfile
import zlib
from collections.abc import Callable
from contextlib import closing
from gzip import compress as gzip
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from google_crc32c import value as crc32c
from hypothesis import strategies as st
from pyarrow import parquet

import lazyckpt as lz
from tests.io.cases import zstd
from tests.io.tables import tables

Contents = tuple[list[bytes], list[Any]]  # of files, and the rows of all


def bgzf(data: bytes) -> bytes:
    """A block as bgzip writes them."""
    deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
    body = deflate.compress(data) + deflate.flush()
    head = struct.pack("<4BI2BH2BHH", 31, 139, 8, 4, 0, 0, 255, 6, 66, 67, 2, len(body) + 25)
    return head + body + struct.pack("<2I", zlib.crc32(data), len(data))


COMPRESSIONS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "none": ("", bytes),
    "gzip": (".gz", gzip),
    "bgzf": (".bgz", bgzf),
    "zstd": (".zst", zstd.compress),
}


def compressed(content: bytes, compression: str, size: int) -> bytes:
    """Content in pieces of so many bytes, each compressed for itself."""
    compress = COMPRESSIONS[compression][1]
    pieces = [content[start : start + size] for start in range(0, len(content), size)]
    return b"".join(map(compress, pieces or [b""]))


def archive(members: list[tuple[str, bytes]], form: int = tarfile.GNU_FORMAT) -> bytes:
    """A tar file of members; a name that ends with a slash is a folder's."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as made:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            made.addfile(info, io.BytesIO(content))
    return out.getvalue()


def record(data: bytes) -> bytes:
    """A record of a TFRecord file."""
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def _masked(data: bytes) -> bytes:
    found = crc32c(data)
    return struct.pack("<I", ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def saved(write: Callable[[Any], None]) -> bytes:
    """What is written to a file."""
    out = io.BytesIO()
    write(out)
    return out.getvalue()


_ENDS = st.sampled_from(["\n", "\r\n"])
_LINE = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=9)
_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
_FIELD = st.text(st.sampled_from('ab,"\n\r\té'), max_size=5)


def in_files(row: st.SearchStrategy[Any], most: int = 6) -> st.SearchStrategy[list[list[Any]]]:
    """Rows, file by file."""
    return st.lists(st.lists(row, max_size=most), min_size=1, max_size=4)


def all_of(files: list[list[Any]]) -> list[Any]:
    return [row for rows in files for row in rows]


@st.composite
def lines(draw: st.DrawFn) -> Contents:
    """Some files end without a newline."""
    files, contents = draw(in_files(_LINE)), []
    for found in files:
        end = draw(_ENDS)
        text = "".join(line + end for line in found)
        if found and found[-1] and draw(st.booleans()):
            text = text.removesuffix(end)
        contents.append(text.encode())
    return contents, all_of(files)


@st.composite
def json_lines(draw: st.DrawFn) -> Contents:
    """Some lines are blank, and some files end without a newline."""
    files, end, is_ended = draw(in_files(_VALUE)), draw(_ENDS), draw(st.booleans())
    texts = [
        "".join(f"{json.dumps(value)}{end}{end * (n % 3 == 2)}" for n, value in enumerate(found))
        for found in files
    ]
    return [(text if is_ended else text.rstrip()).encode() for text in texts], all_of(files)


@st.composite
def records_of_csv(draw: st.DrawFn) -> Contents:
    """As the standard library writes them."""
    names = draw(st.lists(_FIELD.filter(bool), min_size=1, max_size=3, unique=True))
    row = st.lists(_FIELD, min_size=len(names), max_size=len(names))
    files, contents = draw(in_files(row, 4)), []
    for rows in files:
        out, end = io.StringIO(newline=""), draw(_ENDS)
        csv.writer(out, lineterminator=end, quoting=csv.QUOTE_ALL).writerows([names, *rows])
        text = out.getvalue()
        contents.append((text if draw(st.booleans()) else text.removesuffix(end)).encode())
    return contents, [dict(zip(names, row, strict=True)) for row in all_of(files)]


@st.composite
def samples(draw: st.DrawFn) -> Contents:
    """Also with long names, and with members between that are none of a sample."""
    form = draw(st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
    is_long, has_others = form != tarfile.USTAR_FORMAT and draw(st.booleans()), draw(st.booleans())
    prefix = "ü/" + "long/" * 30 * is_long
    extensions = st.sampled_from(["jpg", "txt", "seg.png", "cls"])
    parts = st.dictionaries(extensions, st.binary(max_size=600), min_size=1, max_size=3)
    contents, rows = [], []
    for found in draw(in_files(parts, 5)):
        members = members_of(found, prefix)
        for place in range(0, len(members) + 1, 2) if has_others else ():
            members.insert(place, ("folder/", b"") if place % 4 else ("README", b"no sample"))
        contents.append(archive(members, form))
        rows += [{"__key__": f"{prefix}{n}", **each} for n, each in enumerate(found)]
    return contents, rows


def members_of(samples: list[dict[str, bytes]], prefix: str = "d/") -> list[tuple[str, bytes]]:
    return [
        (f"{prefix}{n}.{ext}", data) for n, each in enumerate(samples) for ext, data in each.items()
    ]


@st.composite
def in_parquet(draw: st.DrawFn) -> Contents:
    found, rows = draw(tables())
    how = {
        "row_group_size": draw(st.integers(1, 5)),
        "compression": draw(st.sampled_from(["snappy", "zstd", "none"])),
        "use_dictionary": draw(st.booleans()),
    }
    return [saved(lambda out, t=table: parquet.write_table(t, out, **how)) for table in found], rows


@st.composite
def in_arrow(draw: st.DrawFn) -> Contents:
    """Files and streams."""
    found, rows = draw(tables())
    made = draw(st.sampled_from([pa.ipc.new_file, pa.ipc.new_stream]))
    codec, size = draw(st.sampled_from([None, "lz4", "zstd"])), draw(st.integers(1, 5))
    return [saved(lambda out, t=table: ipc(t, out, size, made, codec)) for table in found], rows


def ipc(table: Any, out: Any, size: int, made: Any = pa.ipc.new_file, codec: Any = None) -> None:
    """Write a table in record batches of so many rows."""
    with made(out, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        for batch in table.to_batches(size):
            writer.write_batch(batch)


@st.composite
def arrays(draw: st.DrawFn) -> Contents:
    found = [np.arange(size, dtype="u2") for size in draw(st.lists(st.integers(0, 9), min_size=1))]
    rows = [each[start : start + 2] for each in found for start in range(0, len(each) - 1, 2)]
    return [saved(lambda out, each=each: np.save(out, each)) for each in found], rows


class Format(NamedTuple):
    """A format.

    - `suffix`: at the end of a name
    - `contents`: of files, random, with the rows of all
    - `read`: the reader
    - `options`: of the reader, which change no row
    """

    suffix: str
    contents: st.SearchStrategy[Contents]
    read: Callable[..., lz.io.Rows[Any]]
    options: st.SearchStrategy[dict[str, Any]] = st.just({})


def tokens(files: Any, **_: Any) -> lz.io.Rows[Any]:
    return lz.io.read_tokens(files, length=2)


def whole_files(files: Any, max_record_bytes: int = 1 << 28, **_: Any) -> lz.io.Rows[Any]:
    return lz.io.read_files(files, max_record_bytes=max_record_bytes)


@st.composite
def blobs(draw: st.DrawFn) -> Contents:
    found = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=9))
    return found, [{"name": f"{n:03}.raw", "data": data} for n, data in enumerate(found)]


def one_of(**options: list[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: st.sampled_from(some) for name, some in options.items()})


_records = in_files(st.binary(max_size=40)).map(
    lambda files: ([b"".join(map(record, rows)) for rows in files], all_of(files))
)
STREAMED = {
    "text": Format(".txt", lines(), lz.io.read_text),
    "jsonl": Format(".jsonl", json_lines(), lz.io.read_jsonl, one_of(loads=[None, json.loads])),
    "csv": Format(".csv", records_of_csv(), lz.io.read_csv),
    "tar": Format(".tar", samples(), lz.io.read_tar),
    "tfrecord": Format(".tfrecord", _records, lz.io.read_tfrecord, one_of(check_crc=[True, False])),
}
WHOLE = {
    "parquet": Format(
        ".parquet", in_parquet(), lz.io.read_parquet, one_of(cache_bytes=[0, 100, 1 << 28])
    ),
    "arrow": Format(".arrow", in_arrow(), lz.io.read_arrow, one_of(cache_bytes=[0, 1 << 28])),
    "tokens": Format(".npy", arrays(), tokens),
    "whole files": Format(".raw", blobs(), whole_files),
}

TEXT = "".join(f'{{"n": {n}, "é": "{"x" * (n % 9)}"}}\n' for n in range(60)).encode()
_TAR = archive([(f"{n}.txt", b"%d" % n * 700) for n in range(6)])
_TABLE = pa.table({"n": range(60), "text": [f"{n}" for n in range(60)]})


def database() -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection, connection:
        connection.execute("CREATE TABLE t (a, b)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, f"{n}") for n in range(200)])
        connection.commit()
        return connection.serialize()


# A file of each format, by its suffix, and the reader.
EXAMPLES: dict[str, tuple[bytes, Callable[..., lz.io.Rows[Any]]]] = {
    ".txt": (TEXT, lz.io.read_text),
    ".jsonl": (TEXT, lz.io.read_jsonl),
    ".jsonl.gz": (gzip(TEXT) + gzip(TEXT), lz.io.read_jsonl),
    ".jsonl.zst": (zstd.compress(TEXT) + zstd.compress(TEXT), lz.io.read_jsonl),
    ".csv": (b"a,b\n" + b'1,"x\n""y"\n' * 20, lz.io.read_csv),
    ".tar": (_TAR, lz.io.read_tar),
    ".tar.gz": (gzip(_TAR), lz.io.read_tar),
    ".tfrecord": (b"".join(record(b"%05d" % n) for n in range(12)), lz.io.read_tfrecord),
    ".npy": (saved(lambda out: np.save(out, np.arange(50))), tokens),
    ".npz": (saved(lambda out: np.savez(out, x=np.arange(50))), tokens),
    ".raw": (b"\xff" * 50, whole_files),
    ".db": (database(), lambda files, **_: lz.io.read_sqlite(files, "t")),
    ".parquet": (saved(lambda out: parquet.write_table(_TABLE, out, 9)), lz.io.read_parquet),
    ".arrow": (saved(lambda out: ipc(_TABLE, out, 9)), lz.io.read_arrow),
}

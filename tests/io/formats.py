"""Random files of every format, and the rows that they have."""

from __future__ import annotations

import csv
import io
import json
import struct
import tarfile
import zlib
from collections.abc import Callable
from gzip import compress as gzip
from typing import Any, NamedTuple

import numpy as np
from google_crc32c import value as crc32c
from hypothesis import strategies as st
from pyarrow import feather, parquet

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


def as_lines(rows: list[str]) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


def as_json(rows: list[Any]) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


def as_csv(rows: list[dict[str, str]]) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, ["a", "b"], lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def as_tar(rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for row in rows:
            for name in [each for each in row if each != "__key__"]:
                info = tarfile.TarInfo(f"{row['__key__']}.{name}")
                info.size = len(row[name])
                archive.addfile(info, io.BytesIO(row[name]))
    return out.getvalue()


def as_records(rows: list[bytes]) -> bytes:
    out = []
    for row in rows:
        length = struct.pack("<Q", len(row))
        sums = [(each >> 15 | each << 17) + 0xA282EAD8 for each in map(crc32c, (length, row))]
        first, second = (struct.pack("<I", each & 0xFFFFFFFF) for each in sums)
        out += [length, first, row, second]
    return b"".join(out)


def saved(write: Callable[[Any], None]) -> bytes:
    """What is written to a file."""
    out = io.BytesIO()
    write(out)
    return out.getvalue()


@st.composite
def in_files(draw: st.DrawFn, row: st.SearchStrategy[Any], write: Any) -> Contents:
    files = draw(st.lists(st.lists(row, max_size=5), min_size=1, max_size=3))
    return [write(rows) for rows in files], [each for rows in files for each in rows]


@st.composite
def samples(draw: st.DrawFn) -> Contents:
    parts = st.dictionaries(st.sampled_from(["txt", "seg.png"]), st.binary(max_size=9), min_size=1)
    contents, rows = draw(in_files(parts, list))
    numbers = iter(range(len(rows)))
    keyed = [[{"__key__": f"d/{next(numbers)}", **each} for each in some] for some in contents]
    return list(map(as_tar, keyed)), [row for some in keyed for row in some]


@st.composite
def of_tables(draw: st.DrawFn, write: Any) -> Contents:
    found, rows = draw(tables())
    return [saved(lambda out, table=table: write(table, out)) for table in found], rows


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
    """

    suffix: str
    contents: st.SearchStrategy[Contents]
    read: Callable[..., lz.io.Rows[Any]]


_LINE = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=5)
_VALUE = st.integers(-9, 9) | st.text(max_size=3) | st.lists(st.booleans(), max_size=2)
_FIELD = st.text('a,"\n', max_size=3)
_FIELDS = st.tuples(_FIELD, _FIELD).map(lambda pair: dict(zip("ab", pair, strict=True)))

STREAMED = {
    "text": Format(".txt", in_files(_LINE, as_lines), lz.io.read_text),
    "jsonl": Format(".jsonl", in_files(_VALUE, as_json), lz.io.read_jsonl),
    "csv": Format(".csv", in_files(_FIELDS, as_csv), lz.io.read_csv),
    "tar": Format(".tar", samples(), lz.io.read_tar),
    "tfrecord": Format(
        ".tfrecord", in_files(st.binary(max_size=9), as_records), lz.io.read_tfrecord
    ),
}
WHOLE = {
    "parquet": Format(
        ".parquet", of_tables(lambda t, out: parquet.write_table(t, out, 2)), lz.io.read_parquet
    ),
    "arrow": Format(
        ".feather",
        of_tables(lambda t, out: feather.write_feather(t, out, chunksize=2)),
        lz.io.read_arrow,
    ),
    "tokens": Format(".npy", arrays(), lambda files, **_: lz.io.read_tokens(files, length=2)),
}

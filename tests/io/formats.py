"""Writers of files of each format."""

from __future__ import annotations

import io
import json
import sqlite3
import struct
import tarfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from gzip import compress as gzip
from typing import Any

import numpy as np
import pyarrow as pa
from google_crc32c import value as crc32c

from tests.io.cases import zstd


def bgzf(data: bytes) -> bytes:
    """A block as bgzip writes them."""
    deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
    body = deflate.compress(data) + deflate.flush()
    head = struct.pack("<4BI2BH2BHH", 31, 139, 8, 4, 0, 0, 255, 6, 66, 67, 2, len(body) + 25)
    return head + body + struct.pack("<2I", zlib.crc32(data), len(data))


def skippable(data: bytes) -> bytes:
    """A frame of zstd that has no content."""
    return struct.pack("<2I", 0x184D2A50, len(data)) + data


def deflated(flush: int, **how: int) -> Callable[[bytes], bytes]:
    """A gzip member that is flushed now and then: pigz does so after 128 KiB."""

    def compress(data: bytes) -> bytes:
        made = zlib.compressobj(wbits=31, **how)
        parts = [data[at : at + 300] for at in range(0, len(data), 300)]
        return b"".join(made.compress(part) + made.flush(flush) for part in parts) + made.flush()

    return compress


def piped(data: bytes) -> bytes:
    """A frame of zstd that doesn't say how long it is, with a checksum."""
    made = zstd.ZstdCompressor(options={zstd.CompressionParameter.checksum_flag: 1})
    return bytes(made.compress(data) + made.flush())


# How content may be compressed: the suffix, and what compresses a piece of it.
COMPRESSIONS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": (".gz", gzip),
    "bgzf": (".bgz", bgzf),
    "zstd": (".zst", zstd.compress),
    "gzip, padded": (".gz", lambda data: gzip(data) + bytes(3)),
    "gzip, fixed": (".gz", deflated(zlib.Z_NO_FLUSH, strategy=zlib.Z_FIXED)),
    "gzip, stored": (".gz", deflated(zlib.Z_NO_FLUSH, level=0)),
    "gzip, synced": (".gz", deflated(zlib.Z_SYNC_FLUSH)),
    "gzip, partly flushed": (".gz", deflated(zlib.Z_PARTIAL_FLUSH)),
    "gzip, fully flushed": (".gz", deflated(zlib.Z_FULL_FLUSH)),
    "zstd, piped": (".zst", piped),
    "zstd, empty frames": (".zst", lambda data: zstd.compress(b"") + zstd.compress(data)),
    "zstd, skippable": (
        ".zst",
        lambda data: skippable(b"x") + zstd.compress(data) + skippable(b""),
    ),
}


def archive(members: Sequence[tuple[str, bytes]], form: int = tarfile.GNU_FORMAT) -> bytes:
    """A tar file of members; a name that ends with a slash is a folder's."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as made:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            made.addfile(info, io.BytesIO(content))
    return out.getvalue()


def header_of(content: bytes | bytearray) -> bytes:
    """A header of tar, with its checksum."""
    found = bytearray(content)
    found[148:156] = b" " * 8
    found[148:156] = b"%06o\0 " % sum(found)
    return bytes(found)


def sparse(form: int, size: int = 8) -> bytes:
    """An archive of a sample of two members, of which the first is 5 zeros, "abc" and zeros."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as made:
        if form == tarfile.PAX_FORMAT:
            info, content = tarfile.TarInfo("GNUSparseFile.0/1.txt"), b"1\n5\n3\n".ljust(512, b"\0") + b"abc"  # fmt: skip  # noqa: E501
            info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "d/1.txt", "GNU.sparse.realsize": f"{size}"}  # fmt: skip  # noqa: E501
        else:
            info, content = tarfile.TarInfo("d/1.txt"), b"abc"
        info.size = len(content)
        made.addfile(info, io.BytesIO(content))
        info = tarfile.TarInfo("d/1.cls")
        info.size = 1
        made.addfile(info, io.BytesIO(b"7"))
    found = bytearray(out.getvalue())
    if form == tarfile.GNU_FORMAT:  # its map: one span is in the header, one after it
        spans = [b"%011o\0%011o\0" % pair for pair in ((5, 3), (size, 0))]
        found[156:157] = tarfile.GNUTYPE_SPARSE
        found[386 : 386 + 24] = spans[0]
        found[482:483] = b"\1"
        found[483 : 483 + 12] = b"%011o\0" % size
        found[:512] = header_of(found[:512])
        found[512:512] = spans[1].ljust(512, b"\0")
    return bytes(found)


def members_of(
    samples: Sequence[Mapping[str, bytes]], prefix: str = "d/"
) -> list[tuple[str, bytes]]:
    return [
        (f"{prefix}{n}.{ext}", data) for n, each in enumerate(samples) for ext, data in each.items()
    ]


def record(data: bytes) -> bytes:
    """A record of a TFRecord file."""
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def _masked(data: bytes) -> bytes:
    found = crc32c(data)
    return struct.pack("<I", ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def saved(write: Callable[[Any], Any]) -> bytes:
    """The bytes that are written to a file."""
    out = io.BytesIO()
    write(out)
    return out.getvalue()


def ipc(
    table: Any,
    out: Any,
    size: int,
    made: Any = pa.ipc.new_file,
    codec: str | None = None,
    empty: int = 0,
) -> None:
    """Write a table in record batches of so many rows, some empty batches before each."""
    with made(out, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        for batch in table.to_batches(size):
            for _ in range(empty):
                writer.write_batch(batch.slice(0, 0))
            writer.write_batch(batch)


def in_batches(batches: Sequence[Any], made: Any = pa.ipc.new_file) -> bytes:
    """A file of record batches."""

    def write(out: Any) -> None:
        with made(out, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)

    return saved(write)


def megatron(files: Sequence[Sequence[Sequence[int]]]) -> dict[str, bytes]:
    """Documents of one sequence each, with an index next to them."""
    found = {}
    for number, documents in enumerate(files):
        tokens = np.array([t for document in documents for t in document], "<u2")
        found[f"{number:03}.bin"] = tokens.tobytes()
        found[f"{number:03}.idx"] = megatron_index([*map(len, documents)])
    return found


_MEGATRON_TYPES = ["", "u1", "i1", "<i2", "<i4", "<i8", "<f8", "<f4", "<u2"]


def megatron_index(
    lengths: Sequence[int], documents: Sequence[int] | None = None, kind: str = "<u2"
) -> bytes:
    """The index of sequences of such lengths, each a document, or with documents' ends as given."""
    ends = range(len(lengths) + 1) if documents is None else documents
    starts = np.cumsum([0, *lengths])[:-1] * np.dtype(kind).itemsize
    return (
        b"MMIDIDX\0\0"
        + struct.pack("<QBQQ", 1, _MEGATRON_TYPES.index(kind), len(lengths), len(ends))
        + np.array(lengths, "<i4").tobytes()
        + starts.astype("<i8").tobytes()
        + np.array(ends, "<i8").tobytes()
    )


def mds(
    files: Sequence[Sequence[Mapping[str, Any]]], compression: str = "", **change: Any
) -> dict[str, bytes]:
    """Shards of texts and numbers, with their list; of the last this says something else."""
    found, listed = {}, []
    for number, rows in enumerate(files):
        made = []
        for row in rows:
            text = row["text"].encode()
            size = np.array([len(text)], "<u4").tobytes()
            made.append(size + text + np.int32(row["number"]).tobytes())
        bounds = np.cumsum([4 * (len(made) + 2) + 2, *map(len, made)]).astype("<u4")
        name = f"shard.{number:05}.mds"
        found[name] = np.uint32(len(made)).tobytes() + bounds.tobytes() + b"{}" + b"".join(made)
        said = {
            "format": "mds",
            "version": 2,
            "samples": len(rows),
            "column_names": ["text", "number"],
            "column_encodings": ["str", "int32"],
            "column_sizes": [None, 4],
            "raw_data": {"basename": name, "bytes": len(found[name]), "hashes": {}},
            "zip_data": None,
        }
        if compression:
            suffix, compress = COMPRESSIONS[compression]
            found[f"{name}{suffix}"] = zipped = compress(found.pop(name))
            said["zip_data"] = {
                "basename": f"{name}{suffix}", "bytes": len(zipped), "hashes": {},
            }  # fmt: skip
        listed.append(said)
    listed[-1] |= change
    return found | {"index.json": json.dumps({"version": 2, "shards": listed}).encode()}


def database(rows: Sequence[tuple[Any, ...]], columns: str = "k, v") -> bytes:
    """A database of a table `some rows`."""
    with closing(sqlite3.connect(":memory:")) as connection, connection:
        connection.execute("PRAGMA page_size=512")
        connection.execute(f'CREATE TABLE "some rows" ({columns})')
        marks = ", ".join("?" * len(columns.split(",")))
        connection.executemany(f'INSERT INTO "some rows" VALUES ({marks})', rows)
        connection.commit()
        return connection.serialize()


def statements(*given: str) -> bytes:
    """A database that statements have made."""
    with closing(sqlite3.connect(":memory:")) as connection, connection:
        connection.execute("PRAGMA page_size=512")
        for each in given:
            connection.execute(each)
        connection.commit()
        return connection.serialize()


def compressed(content: bytes, kind: str, size: int) -> bytes:
    """Content in pieces of so many bytes, each compressed separately."""
    pieces = [content[start : start + size] for start in range(0, len(content), size)]
    return b"".join(map(COMPRESSIONS[kind][1], pieces or [b""]))

"""What writes rows to files: JSON lines in frames of zstd, Parquet, tar, tokens."""

from __future__ import annotations

import io
import json
import struct
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from lazyckpt.core.cached_property import cached_property
from lazyckpt.core.checks import brief
from lazyckpt.errors import PipelineError
from lazyckpt.io.decompress import zstd_module
from lazyckpt.io.storage import optional_module
from lazyckpt.io.tar import split_name
from lazyckpt.io.tokens import MEGATRON_MAGIC, MEGATRON_TYPES

FRAME = 1 << 20  # bytes of rows in a frame of zstd, as long as none is longer
_LONGEST = 1 << 22  # bytes of one row in a frame
_GROUP = 1 << 22  # bytes of rows in a row group of Parquet, before it is compressed
_SKIPPABLE, _SEEKABLE = 0x184D2A5E, 0x8F92EAB1  # magic numbers of zstd's seekable format


class Encoder(Protocol):
    """What writes rows to files of a format.

    - `suffixes`: how the names of the files end, of which all together hold the rows; that
      with the rows themselves is the first
    """

    suffixes: tuple[str, ...]

    def write(self, rows: Iterable[Any], first: int, *paths: str) -> None:
        """Write rows, of which `first` is the number of the first one, to a path a suffix."""


class Unwritable(PipelineError, ValueError):
    """A row can't be written in the format; the message says which."""


def encoded(rows: Iterable[Any], first: int, encode: Callable[[Any], Any]) -> Iterator[Any]:
    """What rows are in a format; an error says which row it is of."""
    for number, row in enumerate(rows, first):
        try:
            found = encode(row)
        except Exception as error:
            raise Unwritable(f"row {number:,} can't be written: {error}: {brief(row)}") from error
        yield found


def to_json(row: Any) -> bytes:
    """A row as one line of JSON, the newline included."""
    text = json.dumps(
        row, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
    )
    return f"{text}\n".encode()


def _plain(value: Any) -> Any:
    """What NumPy has as values, in Python."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON; make it some by map")


class JsonLines:
    """JSON lines in zstd's seekable format: frames of whole rows, and a table of them."""

    suffixes: tuple[str, ...] = (".jsonl.zst",)

    def write(self, rows: Iterable[Any], first: int, *paths: str) -> None:
        with open(paths[0], "xb") as out:
            writer = _Frames(out)
            for line in encoded(rows, first, to_json):
                writer.add(line)
            writer.finish()


class _Frames:
    """A file in the seekable format.

    github.com/facebook/zstd, contrib/seekable_format/zstd_seekable_compression_format.md
    """

    def __init__(self, out: BinaryIO) -> None:
        zstd = zstd_module()
        self._out, self._table = out, bytearray()
        self._compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.checksum_flag: 1})
        self._lines: list[bytes] = []
        self._size = 0

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        if self._size >= FRAME:
            self._end_frames()

    def finish(self) -> None:
        self._end_frames()
        frames = len(self._table) // 8
        self._out.write(struct.pack("<2I", _SKIPPABLE, len(self._table) + 9))
        self._out.write(self._table + struct.pack("<IBI", frames, 0, _SEEKABLE))

    def _end_frames(self) -> None:
        content = b"".join(self._lines)
        longest = _LONGEST if len(self._lines) == 1 else len(content)
        for start in range(0, len(content), longest):
            part = content[start : start + longest]
            frame = self._compressor.compress(part, mode=self._compressor.FLUSH_FRAME)
            self._out.write(frame)
            self._table += struct.pack("<2I", len(frame), len(part))
        self._lines, self._size = [], 0


class Parquet:
    """Parquet, of row groups of some MiB. All files have the columns and types of the first.

    Args:
        folder: Where the files are.
    """

    suffixes: tuple[str, ...] = (".parquet",)

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._arrow = optional_module("pyarrow", "arrow", "writing Parquet")
        self._parquet = optional_module("pyarrow.parquet", "arrow", "writing Parquet")

    def write(self, rows: Iterable[Any], first: int, *paths: str) -> None:
        found = list(encoded(rows, first, _fields))
        if first and "_schema" not in vars(self):
            self._schema = self._first_schema
        names = self._schema.names if first else list(dict.fromkeys(chain.from_iterable(found)))
        for number, row in enumerate(found, first):
            if more := row.keys() - {*names}:
                raise Unwritable(
                    f"row {number:,} can't be written: it has {min(more)!r}, a column that no row "
                    "of the first file has"
                )
        columns = [self._column(name, [row.get(name) for row in found], first) for name in names]
        table = self._arrow.table(columns, names=names)
        self._schema = table.schema
        size = max(1, len(found) * _GROUP // max(1, table.nbytes))
        self._parquet.write_table(table, paths[0], row_group_size=size, compression="zstd")

    @cached_property
    def _first_schema(self) -> Any:
        return self._parquet.read_schema(min(Path(self._folder).glob("*.parquet")))

    def _column(self, name: str, values: list[Any], first: int) -> Any:
        try:
            return self._arrow.array(values, self._schema.field(name).type if first else None)
        except (self._arrow.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise Unwritable(
                f"column {name!r} of rows {first:,} to {first + len(values) - 1:,} can't be "
                f"written: {error}"
                + (f"; in the first file it is {self._schema.field(name).type}" if first else "")
            ) from error


def _fields(row: Any) -> Mapping[str, Any]:
    """The columns of a row; of a text it is one."""
    if isinstance(row, str):
        return {"text": row}
    if not row or not isinstance(row, Mapping) or not all(isinstance(n, str) for n in row):
        raise TypeError("it must be a dict by name, or a text; make it one by map")
    return row


class Tar:
    """Tar files of samples, as WebDataset has them.

    A dict of bytes and texts becomes a member each, by its `__key__` or else its number; a text
    one of `.txt`, and whatever else one of `.json`.
    """

    suffixes: tuple[str, ...] = (".tar",)

    def write(self, rows: Iterable[Any], first: int, *paths: str) -> None:
        numbers, last = count(first), ""

        def members(row: Any) -> list[tuple[tarfile.TarInfo, bytes]]:
            nonlocal last
            last, found = _members(next(numbers), row, last)
            return found

        with tarfile.open(paths[0], "x", format=tarfile.PAX_FORMAT) as archive:
            for found in encoded(rows, first, members):
                for member, content in found:
                    archive.addfile(member, io.BytesIO(content))


def _members(number: int, row: Any, last: str) -> tuple[str, list[Any]]:
    """The key of a row, and its members, each with what is in it."""
    key, parts = f"{number:09}", row
    if isinstance(row, Mapping) and all(isinstance(part, (bytes, str)) for part in row.values()):
        key = str(row.get("__key__", key))
        parts = {name: part for name, part in row.items() if name != "__key__"}
    elif isinstance(row, (bytes, str)):
        parts = {"txt": row}
    else:
        parts = {"json": to_json(row)[:-1]}
    if not parts:
        raise ValueError("it has nothing that could be a member")
    if key == last:
        raise ValueError(f"it has the key {key!r} of the row before")
    return key, [_member(key, name, part) for name, part in parts.items()]


def _member(key: str, name: Any, part: bytes | str) -> tuple[tarfile.TarInfo, bytes]:
    content = part.encode() if isinstance(part, str) else part
    made = tarfile.TarInfo(f"{key}.{name}")
    made.size = len(content)
    if split_name(made) != (key, name):
        raise ValueError(
            f"{made.name!r} would not be read as {name!r} of {key!r}: keys have no dot, "
            "extensions no slash and no capitals"
        )
    return made, content


class Tokens:
    """Plain numbers, one row after the other, and the index that Megatron has beside them.

    Args:
        dtype: Their type.
    """

    suffixes: tuple[str, ...] = (".bin", ".idx")

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype

    def write(self, rows: Iterable[Any], first: int, *paths: str) -> None:
        lengths = []
        with open(paths[0], "xb") as out:
            for content in encoded(rows, first, self._numbers):
                out.write(content.tobytes())
                lengths.append(len(content))
        size, width = len(lengths), self.dtype.itemsize
        starts = np.cumsum([0, *lengths[:-1]], dtype="<i8")[:size] * width
        kind = MEGATRON_TYPES.index(self.dtype.str.lstrip("|"))
        with open(paths[1], "xb") as out:
            out.write(MEGATRON_MAGIC + struct.pack("<QBQQ", 1, kind, size, size + 1))
            out.write(np.array(lengths, "<i4").tobytes() + starts.tobytes())
            out.write(np.arange(size + 1, dtype="<i8").tobytes())

    def _numbers(self, row: Any) -> np.ndarray[Any, Any]:
        found = np.asarray(row)
        if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
            raise TypeError("tokens must be ints in one dimension; make them some by map")
        limits = np.iinfo(self.dtype)
        bad = found[(found < limits.min) | (found > limits.max)] if found.size else found
        if bad.size:
            raise ValueError(
                f"the token {bad[0]} doesn't fit into {self.dtype.name}; give a larger dtype"
            )
        return found.astype(self.dtype)

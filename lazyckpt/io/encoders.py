"""What writes rows to files: JSON lines in frames of zstd, Parquet, tar, tokens."""

from __future__ import annotations

import io
import json
import struct
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import chain, count
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from lazyckpt.core.checks import brief
from lazyckpt.errors import ArgumentError, PipelineError
from lazyckpt.io.columns import Column, columns_of
from lazyckpt.io.decompress import zstd_module
from lazyckpt.io.storage import optional_module
from lazyckpt.io.tar import split_name
from lazyckpt.io.text import json_loads
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
    content = f"{text}\n".encode()
    found = json_loads()(content)
    if not _is_same(row, found):
        raise ValueError(f"it would be read as {brief(found)}; make it JSON by map")
    return content


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

    What was written is read again and compared, so that no value is cast to another one.

    Args:
        folder: Where the files are.
        schema: That of all files; None for that of the rows of the first one.
    """

    suffixes: tuple[str, ...] = (".parquet",)

    def __init__(self, folder: str, schema: Any = None) -> None:
        self._folder = folder
        self._arrow = optional_module("pyarrow", "arrow", "writing Parquet")
        self._parquet = optional_module("pyarrow.parquet", "arrow", "writing Parquet")
        if schema is not None and not isinstance(schema, self._arrow.Schema):
            raise ArgumentError(f"convert: schema must be a pyarrow.Schema, got {brief(schema)}")
        self._schema, self._is_given = schema, schema is not None

    def write(self, rows: Iterable[Any], first: int, *paths: str) -> None:
        found = list(encoded(rows, first, _fields))
        if first and self._schema is None:
            self._schema = self._written()
        known = self._schema
        names = known.names if known else list(dict.fromkeys(chain.from_iterable(found)))
        for number, row in enumerate(found, first):
            if more := row.keys() - {*names}:
                where = (
                    "the schema doesn't have" if self._is_given else "no row of the first file has"
                )
                raise Unwritable(
                    f"row {number:,} can't be written: it has {min(more)!r}, a column that {where}"
                )
        values = {name: [row.get(name) for row in found] for name in names}
        columns = [self._column(name, values[name], first) for name in names]
        table = self._arrow.table(columns, names=names)
        self._schema = known if self._is_given else _settled(self._arrow, known, table.schema)
        size = max(1, len(found) * _GROUP // max(1, table.nbytes))
        self._parquet.write_table(table, paths[0], row_group_size=size, compression="zstd")
        with self._parquet.ParquetFile(paths[0]) as written:
            read = columns_of(written.read(use_threads=False))
        for name in names:
            self._check(name, values[name], read[name], first)

    def _written(self) -> Any:
        """The schema of the files that are there."""
        schemas = map(self._parquet.read_schema, sorted(Path(self._folder).glob("*.parquet")))
        return reduce(partial(_settled, self._arrow), schemas)

    def _type(self, name: str) -> Any:
        """The type that a column has to have; None where any will do."""
        found = None if self._schema is None else self._schema.field(name).type
        return None if found is None or (not self._is_given and _is_open(found)) else found

    def _column(self, name: str, values: list[Any], first: int) -> Any:
        kind = self._type(name)
        types = {*map(type, values)} - {type(None)}
        try:
            if np.datetime64 in types and len(types) > 1:  # at which pyarrow may crash
                raise TypeError("some are numpy.datetime64, and others aren't")
            return self._arrow.array(values, kind)
        except (self._arrow.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise Unwritable(
                f"column {name!r} of rows {first:,} to {first + len(values) - 1:,} can't be "
                f"written: {error}{self._reason(kind)}"
            ) from error

    def _check(self, name: str, values: list[Any], column: Column, first: int) -> None:
        try:
            found = column.take(range(len(values)))
            number = first_difference(values, found)
        except Exception as error:  # such as of nanoseconds without pandas
            raise Unwritable(f"column {name!r} can't be read again: {error}") from error
        if number is not None:
            kind = self._type(name)
            raise Unwritable(
                f"row {first + number:,} can't be written: its {name!r} would be read as "
                f"{brief(found[number])}, and is {brief(values[number])}{self._reason(kind)}"
            )

    def _reason(self, kind: Any) -> str:
        if self._is_given:
            return f"; in the schema it is {kind}"
        said = "" if kind is None else f"; in the first file it is {kind}"
        return f"{said}; convert it by map, or give its type by schema="


def _settled(arrow: Any, known: Any, later: Any) -> Any:
    """A schema, with the types of a later file where only missing values were known."""
    pairs = zip(known or later, later, strict=True)
    return arrow.schema([new if _is_open(old.type) else old for old, new in pairs])


def _is_open(kind: Any) -> bool:
    """Whether a type is that of missing values, or holds such a one."""
    parts = (kind.field(number).type for number in range(kind.num_fields))
    return str(kind) == "null" or any(map(_is_open, parts))


def first_difference(given: Sequence[Any], found: Any) -> int | None:
    """The number of the first value that isn't what was given; None if all are."""
    found = found.tolist() if isinstance(found, np.ndarray) else found
    pairs = enumerate(zip(given, found, strict=True))
    return next((number for number, pair in pairs if not _is_same(*pair)), None)


def _is_same(given: Any, found: Any) -> bool:
    """Whether a value is one that was given, as far as files know types.

    A list may have been a tuple or an array, and a field that is missing in a dict is None.
    """
    if type(given) in (str, int, bytes):
        return bool(given == found)
    if isinstance(given, (np.datetime64, np.timedelta64)):
        coarse = given.astype(f"{type(given).__name__}[us]")
        given = coarse.item() if coarse == given else given
    elif isinstance(given, np.generic):
        given = given.item()
    if isinstance(given, Mapping):
        if not isinstance(found, Mapping):
            return _is_same(list(given.items()), found)
        pairs = [(given.get(name), value) for name, value in found.items()]
        return given.keys() <= found.keys() and all(_is_same(*pair) for pair in pairs)
    if isinstance(given, (list, tuple, np.ndarray)):
        if not isinstance(found, (list, tuple, np.ndarray)) or len(given) != len(found):
            return False
        if isinstance(given, np.ndarray) and isinstance(found, np.ndarray):
            return np.array_equal(given, found, equal_nan=given.dtype.kind == "f")
        return all(map(_is_same, given, found))
    try:
        return bool(given == found) or (given != given and (found is None or found != found))
    except (TypeError, ValueError):  # which no value of a file raises
        return False


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
    if split_name(made.name) != (key, name):
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

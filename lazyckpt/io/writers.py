"""Writers of rows to files: JSON lines in zstd frames, Parquet, tar, tokens."""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
import tarfile
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from itertools import chain, count
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lazyckpt.core.checks import brief
from lazyckpt.errors import ArgumentError, PipelineError
from lazyckpt.io.arrow_columns import columns_of, common_type
from lazyckpt.io.decompress import zstd_module
from lazyckpt.io.storage import optional_module
from lazyckpt.io.tar import split_name
from lazyckpt.io.tokens import megatron_index

FRAME = 1 << 20  # bytes after which a frame of zstd ends
LONGEST = 1 << 22  # most bytes of a frame
GROUP = 1 << 22  # bytes of rows in a row group of Parquet, before compression
_SKIPPABLE, _SEEKABLE = 0x184D2A5E, 0x8F92EAB1  # magic numbers of zstd's seekable format


class Writer(Protocol):
    """A writer of rows to files of one format.

    - `suffixes`: the suffixes of the files that hold rows together; the first file has the rows
      themselves
    """

    suffixes: tuple[str, ...]

    def write(self, rows: Iterable[Any], first: int, *paths: str) -> None:
        """Write rows, numbered from `first`, to one path per suffix."""


class Unwritable(PipelineError, ValueError):
    """A row can't be written in the format; the message names the row."""


def encoded(rows: Iterable[Any], first: int, encode: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield encoded rows; an error names its row."""
    for number, row in enumerate(rows, first):
        try:
            found = encode(row)
        except Exception as error:
            raise Unwritable(f"row {number:,} can't be written: {error}: {brief(row)}") from error
        yield found


def to_json(row: Any) -> bytes:
    """Return a row as one line of JSON, newline included."""
    text = json.dumps(
        row, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
    )
    content = f"{text}\n".encode()
    found = json.loads(content)
    if not _is_same(row, found):
        raise ValueError(f"it would be read as {brief(found)}; convert it to JSON by map")
    return content


def _plain(value: Any) -> Any:
    """Convert values of NumPy to Python."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON; convert it by map")


class JsonLinesWriter:
    """JSON lines in zstd's seekable format: frames of whole rows, and a table of the frames.

    github.com/facebook/zstd, contrib/seekable_format/zstd_seekable_compression_format.md
    """

    suffixes: tuple[str, ...] = (".jsonl.zst",)

    def write(self, rows: Iterable[Any], first: int, *paths: str) -> None:
        zstd = zstd_module()
        compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.checksum_flag: 1})
        table = bytearray()
        with open(paths[0], "xb") as out:
            for content in _frames(encoded(rows, first, to_json)):
                frame = compressor.compress(content, mode=compressor.FLUSH_FRAME)
                out.write(frame)
                table += struct.pack("<2I", len(frame), len(content))
            out.write(struct.pack("<2I", _SKIPPABLE, len(table) + 9) + table)
            out.write(struct.pack("<IBI", len(table) // 8, 0, _SEEKABLE))


def _frames(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield whole rows of a few MiB in all, and a row that is larger in parts."""
    found = bytearray()
    for line in chain(lines, [b""]):
        found += line
        if len(found) >= FRAME or not line:
            for start in range(0, len(found), LONGEST):
                yield bytes(found[start : start + LONGEST])
            found.clear()


class ParquetWriter:
    """Parquet with row groups of a few MiB; all files have the columns and types of the first.

    Written files are read again and compared, so that no value is silently cast to a different one.

    Args:
        folder: Folder of the files.
        schema: Schema of all files; None to take it from the rows of the first file.
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
            schemas = map(self._parquet.read_schema, sorted(Path(self._folder).glob("*.parquet")))
            self._schema = reduce(self._settled, schemas)
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
        columns = {name: [row.get(name) for row in found] for name in names}
        try:
            schema = self._save(columns, paths[0])
        except Exception:
            self._blame(columns, first)
            raise
        self._schema = schema

    def _save(self, columns: dict[str, list[Any]], out: Any) -> Any:
        """Write columns, read them again, and raise an error if they differ; return the schema."""
        arrays = [self._array(name, values) for name, values in columns.items()]
        table = self._arrow.table(arrays, names=[*columns])
        size = max(1, len(table) * GROUP // max(1, table.nbytes))
        self._parquet.write_table(table, out, row_group_size=size, compression="zstd")
        with self._parquet.ParquetFile(out) as written:
            schema, read = written.schema_arrow, columns_of(written.read(use_threads=False))
        for name, values in columns.items():
            found = _in_python(read[name].take(range(len(values))))
            for given, value in zip(values, found, strict=True):
                if not _is_same(given, value):
                    raise ValueError(f"it would be read as {brief(value)}")
        return schema if self._schema is None else self._settled(self._schema, schema)

    def _array(self, name: str, values: list[Any]) -> Any:
        types, kind = {*map(type, values)} - {type(None)}, self._type(name)
        if np.datetime64 in types and len(types) > 1:  # pyarrow may crash
            raise TypeError("some are numpy.datetime64, and others aren't")
        if "map<" in str(kind) and any(map(_has_gap, values)):  # here too
            raise TypeError("a list that holds None can't be written in a column with a map")
        try:
            return self._arrow.array(values, kind)
        except Exception:
            found = None if self._is_given or kind is None else self._arrow.array(values)
            if found is None or common_type(kind, found.type) is None:
                raise
            return found

    def _type(self, name: str) -> Any:
        """Return the type of a column in the schema; None if it isn't known yet."""
        return None if self._schema is None else self._schema.field(name).type

    def _settled(self, known: Any, later: Any) -> Any:
        """Return a schema that also holds the values of a later one, such as after only None."""
        if self._is_given:
            return known
        pairs = zip(later.names, later.types, strict=True)
        types = [(name, common_type(known.field(name).type, kind)) for name, kind in pairs]
        return self._arrow.schema(types)

    def _blame(self, columns: dict[str, list[Any]], first: int) -> None:
        """Raise the error of the first row of a column that can't be written."""

        def reason(name: str, count: int) -> Exception | None:
            try:
                self._save({name: columns[name][:count]}, io.BytesIO())
            except Exception as error:
                return error
            return None

        for name, values in columns.items():
            if reason(name, len(values)) is not None:
                counts = range(1, len(values) + 1)
                count = 1 + bisect_left(counts, True, key=lambda n: reason(name, n) is not None)
                raise Unwritable(
                    f"row {first + count - 1:,} can't be written: its {name!r} is "
                    f"{brief(values[count - 1])}: {reason(name, count)}{self._advice(name)}"
                ) from reason(name, count)

    def _advice(self, name: str) -> str:
        kind = self._type(name)
        if self._is_given:
            return f"; in the schema it is {kind}"
        said = "" if kind is None else f"; in earlier files it is {kind}"
        return f"{said}; convert it by map, or set its type by schema="


def _has_gap(value: Any) -> bool:
    """Return whether a list inside a value contains a missing value or NaN."""
    value = _in_python(value)
    if isinstance(value, Mapping):
        return any(map(_has_gap, value.values()))
    is_list = isinstance(value, (list, tuple))
    return is_list and any(each is None or each != each or _has_gap(each) for each in value)


_EXACT = {str, bytes, int, float, bool}  # types whose values are compared as they are


def _is_same(given: Any, found: Any) -> bool:
    """Return whether two values are equal, as far as files can store their types.

    A list may have been a tuple or an array, and a missing field of a dict is None.
    """
    if type(given) is type(found) and type(given) in _EXACT:
        return bool(given == found or (given != given and found != found))
    if type(given) is type(found) is np.ndarray and given.dtype == found.dtype:
        return np.array_equal(given, found, equal_nan=given.dtype.kind == "f")
    given, found = _in_python(given), _in_python(found)
    if isinstance(given, Mapping):
        if not isinstance(found, Mapping):
            return _is_same(list(given.items()), found)
        pairs = [(given.get(name), value) for name, value in found.items()]
        return given.keys() <= found.keys() and all(_is_same(*pair) for pair in pairs)
    if isinstance(given, (list, tuple)) and isinstance(found, (list, tuple)):
        return len(given) == len(found) and all(map(_is_same, given, found))
    if isinstance(given, dt.datetime) and isinstance(found, dt.datetime):
        return given == found and given.utcoffset() == found.utcoffset()
    if isinstance(given, bool) or isinstance(found, bool):
        return given is found  # True == 1
    try:
        if given != given:  # NaN; or NaT, which is read as None
            is_time = isinstance(given, (np.datetime64, np.timedelta64, dt.datetime))
            return found is None if is_time else bool(found != found)
        return bool(given == found)
    except (TypeError, ValueError):  # no value from a file raises these
        return False


def _in_python(value: Any) -> Any:
    """Convert a value of NumPy to Python, except for times that Python can't represent."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        coarse = value.astype(f"{type(value).__name__}[us]")
        return coarse.item() if coarse == value else value
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value


def _fields(row: Any) -> Mapping[str, Any]:
    """Return the columns of a row; a string is one column."""
    if isinstance(row, str):
        return {"text": row}
    if not row or not isinstance(row, Mapping) or not all(isinstance(n, str) for n in row):
        raise TypeError("it must be a dict with names as keys, or a str; convert it by map")
    return row


class TarWriter:
    """Tar files of samples, in WebDataset's layout.

    A dict of bytes and strings becomes one member per key, named after its `__key__` or else its
    number. A string becomes a `.txt`, and any other row a `.json`.
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
    """Return the key of a row, and its members with their contents."""
    key, parts = f"{number:09}", row
    if isinstance(row, Mapping) and all(isinstance(part, (bytes, str)) for part in row.values()):
        key = row.get("__key__", key)
        if not isinstance(key, str):
            raise TypeError(f"its __key__ must be a str, got {brief(key)}")
        parts = {name: part for name, part in row.items() if name != "__key__"}
    elif isinstance(row, (bytes, str)):
        parts = {"txt": row}
    else:
        parts = {"json": to_json(row)[:-1]}
    if not parts:
        raise ValueError("it has no values to write as members")
    if key == last:
        raise ValueError(f"it has the same key {key!r} as the row before it")
    return key, [_member(key, name, part) for name, part in parts.items()]


def _member(key: str, name: Any, part: bytes | str) -> tuple[tarfile.TarInfo, bytes]:
    content = part.encode() if isinstance(part, str) else part
    made = tarfile.TarInfo(f"{key}.{name}")
    made.size = len(content)
    if split_name(made.name) != (key, name) or b"\0" in made.name.encode():
        raise ValueError(
            f"{made.name!r} would not be read as {name!r} of {key!r}: keys have no dot, "
            "extensions no slash and no capitals, and neither may contain NUL"
        )
    return made, content


class TokensWriter:
    """Plain numbers, row after row, and a Megatron index next to them.

    Args:
        dtype: Type of the numbers.
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
        Path(paths[1]).write_bytes(megatron_index(self.dtype, lengths))

    def _numbers(self, row: Any) -> np.ndarray[Any, Any]:
        found = np.asarray(row)
        is_whole = not isinstance(row, np.ma.MaskedArray)
        if not is_whole or found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
            raise TypeError("tokens must be one-dimensional ints; convert them by map")
        limits = np.iinfo(self.dtype)
        bad = found[(found < limits.min) | (found > limits.max)] if found.size else found
        if bad.size:
            raise ValueError(
                f"the token {bad[0]} doesn't fit into {self.dtype.name}; pass a larger dtype"
            )
        return found.astype(self.dtype)

"""`read_mds`: samples of shards written by mosaicml-streaming, by number."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import brief, checked, optional
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.executor import Executor
from lazyckpt.io.arrow_columns import column_names
from lazyckpt.io.content import ContentScan
from lazyckpt.io.files import Files, as_files
from lazyckpt.io.records import MAX_RECORD, Options, Records
from lazyckpt.io.rows import RecordError, Rows
from lazyckpt.io.storage import File, optional_module, storage_of

_LIST = "index.json"  # lists the shards of a folder
_VALUES = {  # codes of the types of an array's values
    8: "u1", 9: "i1", 16: "<u2", 17: "<i2", 18: "<f2", 32: "<u4", 33: "<i4", 34: "<f4",
    64: "<u8", 65: "<i8", 66: "<f8",
}  # fmt: skip
_TYPES = {np.dtype(each).name: np.dtype(each) for each in _VALUES.values()}

Decode = Callable[[bytes], Any]


class _Encoding(NamedTuple):
    """A decoder of values, and their number of bytes if that is fixed."""

    decode: Decode
    size: int | None = None


def _text(data: bytes) -> str:
    return str(data, "utf-8")


def _decimal(data: bytes) -> Decimal:
    return Decimal(_text(data))


def _scalar(data: bytes, dtype: Any) -> Any:
    return np.frombuffer(data, dtype).reshape(())[()]


def _int(data: bytes) -> int:
    return int(_scalar(data, "<i8"))


def _array(data: bytes, dtype: np.dtype[Any] | None, shape: tuple[int, ...] | None) -> NDArray[Any]:
    at = 0
    if dtype is None:
        dtype, at = np.dtype(_VALUES[data[0]]), 1
    if shape is None:
        sizes = np.frombuffer(data, f"<u{1 << data[at] % 4}", data[at] >> 2, at + 1)
        shape, at = tuple(sizes.tolist()), at + 1 + sizes.nbytes
    return np.frombuffer(data, dtype, offset=at).reshape(shape)


def _image(data: bytes) -> Any:
    """Decode an image that is stored as raw pixels."""
    width, height, size = np.frombuffer(data, "<u4", 3).tolist()
    mode, pixels = str(data[12 : 12 + size], "utf-8"), data[12 + size :]
    if width * height > 8 * len(pixels):
        raise ValueError(f"{len(pixels):,} bytes can't be {width:,} by {height:,} pixels")
    library = optional_module("PIL.Image", "image", "an image in MDS")
    return library.frombytes(mode, (width, height), pixels)


def _several(data: bytes, at: int, decode: Decode) -> list[Any]:
    """Decode a list of values; their number and sizes start at a byte, and the values follow."""
    count = int(np.frombuffer(data, "<u4", 1, at)[0])
    sizes = np.frombuffer(data, "<u4", count, at + 4).astype(np.int64)
    bounds = np.cumsum([at + 4 + 4 * count, *sizes]).tolist()
    if bounds[-1] != len(data):
        raise ValueError(f"a list has {len(data):,} bytes, and its values end at {bounds[-1]:,}")
    return [decode(data[start:stop]) for start, stop in pairwise(bounds)]


_ENCODINGS = {
    "bytes": _Encoding(bytes),
    "jpeg": _Encoding(bytes),
    "png": _Encoding(bytes),
    "str": _Encoding(_text),
    "int": _Encoding(_int, 8),
    "str_int": _Encoding(int),
    "str_float": _Encoding(float),
    "str_decimal": _Encoding(_decimal),
    "json": _Encoding(json.loads),
    "pil": _Encoding(_image),
    "jpeg_array": _Encoding(partial(_several, at=0, decode=bytes)),
    "jpegarray": _Encoding(partial(_several, at=0, decode=bytes)),
    "list[jpeg]": _Encoding(partial(_several, at=4, decode=bytes)),
    "list[png]": _Encoding(partial(_several, at=4, decode=bytes)),
    "list[pil]": _Encoding(partial(_several, at=4, decode=_image)),
} | {
    name: _Encoding(partial(_scalar, dtype=dtype), dtype.itemsize) for name, dtype in _TYPES.items()
}


def _encoding(text: str) -> _Encoding | None:
    """Return an encoding by its name in `index.json`; None if it isn't supported."""
    kind, _, given = text.partition(":")
    if kind != "ndarray":
        return _ENCODINGS.get(text)
    name, _, sizes = given.partition(":")
    dtype = _TYPES[name] if name else None
    shape = tuple(map(int, sizes.split(","))) if sizes else None
    decode = partial(_array, dtype=dtype, shape=shape)
    return _Encoding(decode, dtype.itemsize * prod(shape) if dtype and shape else None)


class _Layout(NamedTuple):
    """The columns of samples: their names, encodings, and numbers of bytes if fixed."""

    names: tuple[str, ...]
    encodings: tuple[str, ...]
    sizes: tuple[int | None, ...]


class _Shard(NamedTuple):
    """A shard as listed: its files, its number of samples, and their layout.

    Each file has its number of bytes, if known. The first file that exists is read.
    """

    files: list[tuple[str, int | None]]
    samples: int
    layout: _Layout


def _shard(said: Any) -> _Shard:
    """Parse a shard of a list; raise some error if it isn't valid."""
    kind = said["format"], said["version"]
    if kind != ("mds", 2):
        raise ValueError(f"shards must be of MDS's version 2, got {kind}")
    layout = _Layout(*(tuple(said[f"column_{each}"]) for each in _Layout._fields))
    for name, text, size in zip(*layout, strict=True):
        if not isinstance(name, str) or layout.names.count(name) > 1:
            raise ValueError(f"columns must have different names, got {layout.names}")
        found = _encoding(text)
        if found is not None and size != found.size:
            raise ValueError(f"column {name!r} of {text!r} can't have {size!r} bytes")
    each = [said["zip_data"], said["raw_data"]]
    files = [(str(one["basename"]), one.get("bytes")) for one in each if one]
    is_named = files and not any("\0" in name for name, _ in files)
    if not is_named or not isinstance(said["samples"], int):
        raise ValueError(f"a shard must have files and a number of samples, got {brief(said)}")
    return _Shard(files, said["samples"], layout)


def _shards(file: File) -> list[_Shard]:
    """Return the shards in a list."""
    content = storage_of(file.path).read(file, 0, file.size)
    try:
        return [_shard(each) for each in json.loads(content)["shards"]]
    except Exception as error:
        raise RecordError(f"{file.path}: not a valid list of shards: {error!r}") from error


def _file(folder: str, shard: _Shard, known: Mapping[str, File]) -> File:
    """Return the file of a shard: the first one that is in the listing or exists."""
    for name, size in shard.files:
        path = f"{folder}/{name}"
        with suppress(FileNotFoundError):
            found = known.get(path) or storage_of(path).stat(path)
            if size not in (None, found.size):
                raise RecordError(f"{path}: {_LIST} says {size} bytes, but it has {found.size:,}")
            return found
    raise FileNotFoundError(f"{path} doesn't exist, but {folder}/{_LIST} lists it")


class _SampleScan(ContentScan):
    """The offsets of samples, which a shard stores after their number and before the samples."""

    @property
    def name(self) -> str:
        return f"shard {self.compression}"

    def __call__(self, file: File) -> Generator[NDArray[Any], None, int]:
        content = self.content(file)
        size = content.size(file)
        (head,) = content.read_ranges(file, [(0, min(4, size))])
        first = 4 * (int.from_bytes(head, "little") + 2)  # after the count and the offsets
        (found,) = content.read_ranges(file, [(4, first if first <= size else 4)])
        offsets = np.frombuffer(found, "<u4").astype(np.int64)
        steps = np.diff(offsets, prepend=first, append=size)
        if not len(offsets) or (steps < 0).any() or steps[-1]:
            raise RecordError(f"{file.path}: not a shard, or it is cut: it has {size:,} bytes")
        yield offsets.astype(np.uint64)
        return zlib.crc32(offsets.tobytes())


class _Samples(Records[dict[str, Any]]):
    reader = "read_mds"

    def __init__(
        self,
        files: Files,
        shards: Sequence[_Shard],
        columns: Sequence[str] | None,
        options: Options,
    ) -> None:
        names, encodings, sizes = shards[0].layout
        for name in columns or []:
            if name not in names:
                raise ArgumentError(f"read_mds: no column {name!r} in {[*names]}")
        self._columns: list[tuple[str, int | None, Decode | None]] = []
        for name, text, size in zip(names, encodings, sizes, strict=True):
            is_read = columns is None or name in columns
            found = _encoding(text) if is_read else None
            if is_read and found is None:
                raise ArgumentError(
                    f"read_mds: column {name!r} of {files[0].path} is encoded as {text!r}, which "
                    f"is not supported{': it may execute code' if text == 'pkl' else ''}; pass "
                    "columns without it"
                )
            self._columns.append((name, size, found and found.decode))
        self._variable = sum(size is None for size in sizes)
        scan = _SampleScan(options.compression, options.index_dir)
        super().__init__(files, scan, options, {} if columns is None else {"columns": columns})
        for file, shard, found in zip(files, shards, self.row_index.counts.tolist(), strict=True):
            if found != shard.samples:
                raise RecordError(
                    f"{file.path}: {_LIST} says {shard.samples:,} samples, but it has {found:,}"
                )

    def decode(self, record: bytes) -> dict[str, Any]:
        sizes = iter(np.frombuffer(record, "<u4", self._variable).tolist())
        at, row = 4 * self._variable, {}
        for name, size, decode in self._columns:
            start, at = at, at + (next(sizes) if size is None else size)
            if decode is not None:
                row[name] = decode(record[start:at])
        if at != len(record):
            raise ValueError(f"it has {len(record):,} bytes, but its columns have {at:,}")
        return row


def read_mds(
    files: Any,
    *,
    columns: Sequence[str] | None = None,
    max_record_bytes: int = MAX_RECORD,
    index_dir: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> Rows[dict[str, Any]]:
    """Read the samples of MDS shards, by number, as dicts.

    MDS is the format of mosaicml-streaming, which doesn't need to be installed. Values are the same
    as its own reader returns, except JPEG and PNG images, which are bytes. Arrays are read-only.
    The sizes of shards are compared with the list; the hashes in the list cover whole shards and
    are not checked.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Args:
        files: The `index.json` of one or several folders of shards: a listing by
            `lazyckpt.io.files`, or patterns for one. A listing that includes the shards saves
            looking them up: `files([f"{folder}/index.json", f"{folder}/*.mds"])`.
        columns: Names of the columns to read; None for all. Rows keep the order of columns in the
            shards.

    Raises:
        ArgumentError: If a column doesn't exist or is pickled, which could execute code, if shards
            have different columns, or if their compression has no random access; gzip and zstd
            have.
        FileNotFoundError: If a shard doesn't exist.
        RecordError: If a list, a shard or a sample is damaged.

    Resume:
        Re-reads nothing; a shard that is one zstd frame is decompressed again.

    >>> import json
    >>> import lazyckpt as lz
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> shard = {"format": "mds", "version": 2, "samples": 2, "zip_data": None}
    >>> shard |= {"raw_data": {"basename": "shard.00000.mds"}, "column_names": ["word"]}
    >>> shard |= {"column_encodings": ["str"], "column_sizes": [None]}
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "index.json").write_text(json.dumps({"shards": [shard]}))
    ...     content = bytes.fromhex("02000000 10000000 16000000 1c000000")
    ...     content += bytes.fromhex("02000000 746f 02000000 6265")
    ...     _ = Path(folder, "shard.00000.mds").write_bytes(content)
    ...     list(lz.io.read_mds(f"{folder}/index.json", index_dir=folder))
    [{'word': 'to'}, {'word': 'be'}]
    """
    options = Options.of("read_mds", "infer", max_record_bytes, index_dir, executor, progress)
    names = checked("read_mds", "columns", columns, optional(column_names))
    listed = as_files(files, "read_mds")
    known = {file.path: file for file in listed}
    lists = [file for file in listed if file.path.rpartition("/")[2] == _LIST]
    found = [(file, shard) for file in lists for shard in _shards(file)]
    if not found:
        raise ArgumentError(
            f"read_mds: files must include an {_LIST} that lists a shard, got {listed!r}"
        )
    for file, shard in found:
        if shard.layout != found[0][1].layout:
            raise ArgumentError(
                f"read_mds: all shards must have the same layout, got {brief(shard.layout)} for "
                f"{shard.files[0][0]} in {file.path}, and {brief(found[0][1].layout)} for the first"
            )
    shards = Files(_file(file.path.rpartition("/")[0], shard, known) for file, shard in found)
    return _Samples(shards, [shard for _, shard in found], names, options)

"""`read_mds`: samples of shards as mosaicml-streaming writes them, by number."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import brief, checked, optional
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.executor import Executor
from lazyckpt.io.columns import column_names
from lazyckpt.io.content import ContentScan
from lazyckpt.io.files import Files, as_files
from lazyckpt.io.ranges import MAX_RECORD, Options, Records
from lazyckpt.io.rows import RecordError, Rows
from lazyckpt.io.storage import File, optional_module, storage_of

_LIST = "index.json"  # what lists the shards of a folder
_VALUES = {
    8: "u1", 9: "i1", 16: "<u2", 17: "<i2", 18: "<f2", 32: "<u4", 33: "<i4", 34: "<f4",
    64: "<u8", 65: "<i8", 66: "<f8",
}  # fmt: skip
_SCALARS = {
    "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
    "float16", "float32", "float64",
}  # fmt: skip
_BYTES = {"bytes", "jpeg", "png"}
_LISTS = {"jpeg_array": 0, "jpegarray": 0, "list[jpeg]": 4, "list[png]": 4, "list[pil]": 4}

Decode = Callable[[bytes], Any]


def _array(data: bytes, dtype: str | None, shape: tuple[int, ...] | None) -> NDArray[Any]:
    at = 0
    if dtype is None:
        dtype, at = _VALUES[data[0]], 1
    if shape is None:
        sizes = np.frombuffer(data, f"<u{1 << data[at] % 4}", data[at] >> 2, at + 1)
        shape, at = tuple(sizes.tolist()), at + 1 + sizes.nbytes
    return np.frombuffer(data, dtype, offset=at).reshape(shape)


def _image(data: bytes) -> Any:
    """An image as it was, without a format."""
    width, height, size = np.frombuffer(data, "<u4", 3).tolist()
    mode = str(data[12 : 12 + size], "utf-8")
    library = optional_module("PIL.Image", "image", "an image in MDS")
    return library.frombytes(mode, (width, height), data[12 + size :])


def _several(data: bytes, at: int, decode: Decode) -> list[Any]:
    """Values behind their number and sizes."""
    count = int(np.frombuffer(data, "<u4", 1, at)[0])
    sizes = np.frombuffer(data, "<u4", count, at + 4).tolist()
    at += 4 + 4 * count
    found = []
    for size in sizes:
        found.append(decode(data[at : at + size]))
        at += size
    return found


def _scalar(data: bytes, dtype: np.dtype[Any]) -> Any:
    return np.frombuffer(data, dtype)[0]


def _decoder(name: str, encoding: str) -> Decode:
    """What makes a value of its bytes."""
    kind, _, given = encoding.partition(":")
    if kind in _BYTES:
        return bytes
    if kind in _LISTS:
        return partial(_several, at=_LISTS[kind], decode=_image if "pil" in kind else bytes)
    if kind == "ndarray":
        dtype, _, sizes = given.partition(":")
        shape = tuple(map(int, sizes.split(","))) if sizes else None
        return partial(_array, dtype=dtype or None, shape=shape)
    if kind in _SCALARS:
        return partial(_scalar, dtype=np.dtype(kind).newbyteorder("<"))
    if kind not in _PLAIN:
        raise ArgumentError(
            f"read_mds: column {name!r} is encoded as {encoding!r}, which is not read here"
            f"{': it may execute code' if kind == 'pkl' else ''}; give columns without it"
        )
    return _PLAIN[kind]


def _text(data: bytes) -> str:
    return str(data, "utf-8")


def _int(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _decimal(data: bytes) -> Decimal:
    return Decimal(_text(data))


_PLAIN: dict[str, Decode] = {
    "str": _text,
    "int": _int,
    "str_int": int,
    "str_float": float,
    "str_decimal": _decimal,
    "json": json.loads,
    "pil": _image,
}


class _Layout(NamedTuple):
    """The columns of a sample: their names, how values are encoded, and bytes where fixed."""

    names: list[str]
    encodings: list[str]
    sizes: list[int | None]


class _Shard(NamedTuple):
    """What a list says of a shard.

    - `names`: its file's name, before it that of one which is compressed, if there is one
    - `size`: how many samples it has
    - `layout`: which all shards must have alike
    """

    names: list[str]
    size: int
    layout: _Layout


def _listed(said: Any) -> Iterator[_Shard]:
    for shard in said["shards"]:
        kind = shard["format"], shard["version"]
        if kind != ("mds", 2):
            raise ArgumentError(f"read_mds: shards must be of MDS's version 2, got {kind}")
        layout = _Layout(shard["column_names"], shard["column_encodings"], shard["column_sizes"])
        raw, packed = shard["raw_data"], shard["zip_data"]
        names = [*([packed["basename"]] if packed else []), raw["basename"]]
        yield _Shard(names, shard["samples"], layout)


def _shards(files: Any) -> list[tuple[File, _Shard]]:
    """The shards that lists name; those that are in the listing too aren't looked for."""
    given = as_files(files, "read_mds")
    known = {file.path: file for file in given}
    found: list[tuple[File, _Shard]] = []
    for file in given:
        folder, _, name = file.path.rpartition("/")
        for shard in _shards_of(file) if name == _LIST else []:
            found.append((_file([f"{folder}/{each}" for each in shard.names], known), shard))
    if not found:
        raise ArgumentError(
            f"read_mds: files must be the {_LIST} of folders, which list a shard, got {given!r}"
        )
    for file, shard in found:
        if shard.layout != found[0][1].layout:
            raise ArgumentError(
                f"read_mds: all shards must have one layout, got {brief(shard.layout)} of "
                f"{file.path}, and {brief(found[0][1].layout)} of {found[0][0].path}"
            )
    return found


def _shards_of(file: File) -> list[_Shard]:
    try:
        return [*_listed(json.loads(storage_of(file.path).read(file, 0, file.size)))]
    except ArgumentError as error:
        raise ArgumentError(f"{error}, in {file.path}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{file.path}: no list of shards: {error!r}") from error


def _file(paths: list[str], known: Mapping[str, File]) -> File:
    """A shard's file: one that is listed, or else the first that is there."""
    *others, last = paths
    for path in others:
        with suppress(FileNotFoundError):
            return known.get(path) or storage_of(path).stat(path)
    return known.get(last) or storage_of(last).stat(last)


class _ShardScan(ContentScan):
    """Where samples begin: a count, one offset more than that, and the samples."""

    @property
    def name(self) -> str:
        return f"shard {self.compression}"

    def __call__(self, file: File) -> Iterator[NDArray[Any]]:
        content = self.content(file)
        head, passed, needed = b"", 0, 4  # bytes at the front, and how many of them there are
        for chunk in content.chunks(file):  # to its end: pieces are noted on the way
            passed += len(chunk)
            if len(head) < needed:
                head += chunk
                needed = 4 * (int(np.frombuffer(head, "<u4", 1)[0]) + 2) if len(head) > 3 else 4
        if len(head) < max(8, needed):
            raise RecordError(f"{file.path}: no shard, or it is cut: it has {passed:,} bytes")
        offsets = np.frombuffer(head, "<u4", needed // 4 - 1, 4).astype(np.int64)
        if (np.diff(offsets, prepend=needed, append=passed) < 0).any():
            raise RecordError(f"{file.path}: no shard, or it is cut: {passed:,} bytes lack records")
        yield offsets.astype(np.uint64)


class _Samples(Records[dict[str, Any]]):
    reader = "read_mds"

    def __init__(
        self, shards: list[tuple[File, _Shard]], columns: list[str] | None, options: Options
    ) -> None:
        layout = shards[0][1].layout
        for name in columns or []:
            if name not in layout.names:
                raise ArgumentError(f"read_mds: no column {name!r} in {layout.names}")
        self._columns = [
            (name, size, _decoder(name, kind) if columns is None or name in columns else None)
            for name, kind, size in zip(*layout, strict=True)
        ]
        scan = _ShardScan(options.compression, options.index_dir)
        given = {} if columns is None else {"columns": columns}
        super().__init__(Files(file for file, _ in shards), scan, options, given)
        for (file, shard), found in zip(shards, self.row_index.counts.tolist(), strict=True):
            if found != shard.size:
                raise RecordError(
                    f"{file.path}: {_LIST} says {shard.size:,} records, and it has {found:,}"
                )

    def decode(self, record: bytes) -> dict[str, Any]:
        known = [size for _, size, _ in self._columns]
        sizes = iter(np.frombuffer(record, "<u4", sum(not size for size in known)).tolist())
        at = 4 * sum(not size for size in known)
        row = {}
        for name, size, decode in self._columns:
            size = size or next(sizes)
            if decode is not None:
                row[name] = decode(record[at : at + size])
            at += size
        if at != len(record):
            raise ValueError(f"it has {len(record):,} bytes, and its columns have {at:,}")
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
    """The samples of MDS shards, by number, as dicts.

    MDS is what mosaicml-streaming writes, which isn't needed. Values are what it makes of
    them, but for images with a format, which are their bytes. Arrays can't be written to.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Args:
        files: The `index.json` of a folder of shards, or of several: a listing by
            `lazyckpt.io.files`, or patterns for one. Shards in the listing aren't looked for:
            `files([f"{folder}/index.json", f"{folder}/*.mds"])`.
        columns: Those to read, by name; None for all.

    Raises:
        ArgumentError: There is no such column, one is pickled, which could execute code, or
            shards differ in their columns or are compressed by what has no random access:
            gzip and zstd have.
        FileNotFoundError: A shard isn't there.
        RecordError: A list, a shard or a sample is damaged.

    Resume:
        Re-reads nothing; a shard that zstd made in one piece is decompressed again.

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
    return _Samples(_shards(files), names, options)

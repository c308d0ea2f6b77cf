"""`read_litdata`: items of chunks as litData writes them, by number."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import checked, optional, positive
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.executor import Executor
from lazyckpt.io.content import Content
from lazyckpt.io.decompress import zstd_module
from lazyckpt.io.files import Files
from lazyckpt.io.index import Scan
from lazyckpt.io.litdata_batches import BatchScan, batches
from lazyckpt.io.litdata_tables import TableRows, has_table
from lazyckpt.io.ranges import MAX_RECORD, Options
from lazyckpt.io.rows import Rows
from lazyckpt.io.shards import Shard, ShardRows, ShardScan, shards
from lazyckpt.io.tokens import TokenPart, TokenRows

_READER = "read_litdata"
_TENSORS: list[str | None] = [
    "<f4", "<f4", "<f8", "<f8", "<c8", "<c8", "<c16", "<c16", "<f2", "<f2", None, "u1", "i1",
    "<i2", "<i2", "<i4", "<i4", "<i8", "<i8", "?", "<u2",
]  # fmt: skip
_ARRAYS: list[str | None] = [
    "i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16", "?",
]  # fmt: skip
_TYPES = {"tensor": _TENSORS, "numpy": _ARRAYS}

_LEVELS = (None, "chunk", "batch", "sample")

Decode = Callable[[bytes], Any]


class _Layout(NamedTuple):
    """How items are read.

    - `formats`: what each of their values is
    - `tree`: the containers that these are in, as litData's JSON has them
    - `level`: what is compressed for itself: nothing, a "chunk", a "batch" of items, a "sample"
    - `is_tokens`: whether a chunk is nothing but tokens
    """

    formats: list[str]
    tree: Any
    level: str | None
    is_tokens: bool


def _listed(said: Any) -> list[Shard]:
    config = said["config"]
    level = (config.get("compression_level") or "chunk") if config["compression"] else None
    is_zstd = level is None or config["compression"].partition(":")[0] == "zstd"
    if config.get("encryption") or level not in _LEVELS or not is_zstd:
        raise ArgumentError(
            f"{_READER}: chunks must not be encrypted, nor compressed by anything but zstd, got "
            f"compression={config['compression']!r}, compression_level={level!r}"
        )
    is_tokens = config.get("item_loader") == "TokensLoader"
    tree = json.loads(config["data_spec"])[1]
    layout = _Layout(config["data_format"], tree, level, is_tokens)
    return [Shard((each["filename"],), each["chunk_size"], layout) for each in said["chunks"]]


def _dtype(format: str, types: list[str | None], number: int) -> np.dtype[Any]:
    found = types[number] if number < len(types) else None
    if found is None:
        raise ArgumentError(f"{_READER}: values of {format!r} are not read here")
    return np.dtype(found)


def _array(data: bytes, format: str, order: str) -> NDArray[Any]:
    """An array behind its type and shape."""
    kind, rank = np.frombuffer(data, f"{order}u4", 2).tolist()
    shape = np.frombuffer(data, f"{order}u4", rank, 8).tolist()
    dtype = _dtype(format, _TYPES[format], kind)
    return np.frombuffer(data, dtype, offset=8 + 4 * rank).reshape(shape)


def _text(data: bytes) -> str:
    return str(data, "utf-8")


def _unpacked(data: bytes, form: str) -> Any:
    return struct.unpack(form, data)[0]


_PLAIN: dict[str, Decode] = {
    "int": partial(_unpacked, form="<q"),
    "float": partial(_unpacked, form="<d"),
    "bool": partial(_unpacked, form="?"),
    "str": _text,
    "text": _text,
    "bytes": bytes,
    "jpeg": bytes,
    "image": bytes,
    "numpy": partial(_array, format="numpy", order="<"),
    "tensor": partial(_array, format="tensor", order=">"),
}


def _decoder(format: str) -> Decode:
    """What makes a value of its bytes."""
    kind, _, number = format.partition(":")
    if kind.startswith("no_header_") and number:
        dtype = _dtype(format, _TYPES[kind.removeprefix("no_header_")], int(number))
        return partial(np.frombuffer, dtype=dtype)
    if kind not in _PLAIN:
        raise ArgumentError(f"{_READER}: values of {format!r} are not read here")
    return _PLAIN[kind]


def _build(tree: Any, values: Iterator[Any]) -> Any:
    """Containers with values in them."""
    kind = tree["type"]
    if kind is None:
        return next(values)
    found = [_build(each, values) for each in tree["children_spec"]]
    if kind == "builtins.dict":
        return dict(zip(json.loads(tree["context"]), found, strict=True))
    return tuple(found) if kind == "builtins.tuple" else found


def _check_tree(tree: Any) -> None:
    if tree["type"] not in (None, "builtins.dict", "builtins.list", "builtins.tuple"):
        raise ArgumentError(f"{_READER}: containers of {tree['type']!r} are not read here")
    for each in tree["children_spec"]:
        _check_tree(each)


class _Items(ShardRows[Any]):
    reader = _READER

    def __init__(
        self, files: Files, counts: Sequence[int], layout: _Layout, options: Options
    ) -> None:
        _check_tree(layout.tree)
        self._tree, self._level = layout.tree, layout.level
        self._decoders = [_decoder(each) for each in layout.formats]
        scan: Scan = ShardScan(options.compression, options.index_dir)
        if layout.level == "batch":
            scan = BatchScan()
        super().__init__(files, counts, scan, options, {})

    def _content(self, number: int) -> Content:
        return batches if self._level == "batch" else super()._content(number)

    def decode(self, record: bytes) -> Any:
        if self._level == "sample":
            record = zstd_module().decompress(record)
        sizes = np.frombuffer(record, "<u4", len(self._decoders)).tolist()
        at = 4 * len(sizes)
        if at + sum(sizes) != len(record):
            raise ValueError(f"it has {len(record):,} bytes, and its values {at + sum(sizes):,}")
        values = []
        for size, decode in zip(sizes, self._decoders, strict=True):
            values.append(decode(record[at : at + size]))
            at += size
        return _build(self._tree, iter(values))


def _tokens(
    files: Files, counts: Sequence[int], layout: _Layout, length: int, stride: int | None
) -> TokenRows:
    kind, _, number = layout.formats[0].partition(":")
    if layout.level is not None or not kind.startswith("no_header_"):
        raise ArgumentError(f"{_READER}: tokens of {layout.formats[0]!r} are not read here")
    dtype = _dtype(layout.formats[0], _TYPES[kind.removeprefix("no_header_")], int(number))
    starts = [4 * (count + 2) for count in counts]
    parts = [
        TokenPart(dtype, start, (file.size - start) // dtype.itemsize)
        for file, start in zip(files, starts, strict=True)
    ]
    return TokenRows(_READER, files, parts, length, stride, {})


def read_litdata(
    files: Any,
    *,
    length: int | None = None,
    stride: int | None = None,
    max_record_bytes: int = MAX_RECORD,
    index_dir: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> Rows[Any]:
    """The items of litData's chunks, by number.

    litData isn't needed. Numbers, texts, bytes and containers are what was written, arrays
    and tensors NumPy's, which can't be written to, and images with a format their bytes,
    for `map(decode_image)`. Rows of plain values, which newer versions write as tables, are
    what `read_arrow` gives. Of chunks of tokens, rows are `length` of them.

    Args:
        files: The `index.json` of a folder of chunks, or of several: a listing by
            `lazyckpt.io.files`, or patterns for one. Chunks in the listing aren't looked for:
            `files([f"{folder}/index.json", f"{folder}/*.bin"])`.
        length: How many tokens a row has, where chunks are nothing but tokens.
        stride: How many tokens there are from the beginning of one row to that of the next;
            by default `length`.
        max_record_bytes: A larger item is an error; nothing of it is read.
        index_dir: Where indices are kept; by default `LAZYCKPT_CACHE`, or the user's
            folder for caches.
        executor: Who reads where items begin, where there is no index yet.
        progress: Whether to show a bar of tqdm meanwhile, where installed.

    Returns:
        The rows, data for `source` and for `|`.

    Raises:
        ArgumentError: Chunks are encrypted, or compressed by anything but zstd; values are of a
            format that isn't read here; or tokens need `length`.
        FileNotFoundError: A chunk isn't there.
        RecordError: A list, a chunk or an item is damaged; it names the file, and of an item
            its number and offset.
        SourceChanged: When a chunk is read that changed since the listing.
        PipelineError: The index can't be written; or zstd is missing, or pyarrow for tables.

    State:
        The epoch and a count of rows; of the chunks their number and a digest.

    Resume:
        Re-reads nothing; what is compressed for itself is decompressed again.

    Random access:
        Yes.

    Rank-free:
        Yes.

    Memory:
        Some 256 KiB of items at a time, or one if that is larger; of compressed chunks 64 MiB;
        of tables 256 MiB.

    >>> import json
    >>> import lazyckpt as lz
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> leaf = {"type": None, "context": None, "children_spec": []}
    >>> config = {"compression": None, "data_format": ["str"], "data_spec": json.dumps([1, leaf])}
    >>> chunk = {"filename": "chunk-0-0.bin", "chunk_size": 2}
    >>> with TemporaryDirectory() as folder:
    ...     said = json.dumps({"chunks": [chunk], "config": config})
    ...     _ = Path(folder, "index.json").write_text(said)
    ...     content = bytes.fromhex("02000000 10000000 16000000 1c000000")
    ...     content += bytes.fromhex("02000000 746f 02000000 6265")
    ...     _ = Path(folder, "chunk-0-0.bin").write_bytes(content)
    ...     list(lz.io.read_litdata(f"{folder}/index.json", index_dir=folder))
    ['to', 'be']
    """
    size = checked(_READER, "length", length, optional(positive))
    step = checked(_READER, "stride", stride, optional(positive))
    options = Options.of(_READER, "none", max_record_bytes, index_dir, executor, progress)
    found, counts, layout = shards(files, _READER, _listed)
    if layout.is_tokens != (size is not None):
        need = "are nothing but tokens, and need" if layout.is_tokens else "are no tokens, without"
        raise ArgumentError(f"{_READER}: chunks {need} length, got length={length}")
    if size is not None:
        return _tokens(found, counts, layout, size, step)
    if layout.level == "chunk":
        options = Options.of(_READER, "zstd", max_record_bytes, index_dir, executor, progress)
    elif has_table(found[-1]):
        return TableRows(found, counts, options)
    return _Items(found, counts, layout, options)

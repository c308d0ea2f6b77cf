"""Chunks of litData whose items are compressed some at a time."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazyckpt.io.compressed import BlockCompressed
from lazyckpt.io.numbers import Numbers
from lazyckpt.io.rows import RecordError
from lazyckpt.io.storage import File, storage_of

_HEAD = struct.Struct("<8sHHIII")  # magic, version, flags, items, items of a frame, frames
_MAGIC = b"LDFZ01\0\0"
_FRAME = np.dtype(
    [("item", "<u4"), ("items", "<u4"), ("start", "<u8"), ("size", "<u4"), ("made", "<u4")]
)


class _Table(NamedTuple):
    """What a chunk has at its front.

    - `offsets`: where items begin in what frames hold, and where the last ends
    - `bounds`: where frames begin, in the file and in what they hold, and where the last ends
    """

    offsets: Numbers
    bounds: Numbers


@lru_cache(maxsize=64)
def _table(file: File) -> _Table:
    storage = storage_of(file.path)
    head = storage.read(file, 0, min(_HEAD.size, file.size))
    if len(head) < _HEAD.size or not head.startswith(_MAGIC):
        raise RecordError(f"{file.path}: no chunk of compressed batches, or it is cut")
    _, version, _, items, _, count = _HEAD.unpack(head)
    middle = _HEAD.size + 4 * (items + 1)
    end = middle + _FRAME.itemsize * count
    if version != 1 or end > file.size:
        raise RecordError(f"{file.path}: it is of version {version}, or cut")
    content = storage.read(file, _HEAD.size, end)
    offsets = np.frombuffer(content, "<u4", items + 1).astype(np.uint64)
    frames = np.frombuffer(content, _FRAME, count, middle - _HEAD.size)
    starts = np.append(frames["start"], (frames["start"] + frames["size"])[-1:])
    made = np.append(0, np.cumsum(frames["made"], dtype=np.uint64))
    bounds = np.array([starts, made], np.uint64)
    rises = all((np.diff(each.astype(np.int64)) >= 0).all() for each in (offsets, *bounds))
    if not rises or starts[-1] > file.size or made[-1] != offsets[-1]:
        raise RecordError(f"{file.path}: its frames are not those of {file.size:,} bytes")
    return _Table(offsets, bounds)


class Batches(BlockCompressed):
    """What frames hold, by the chunk's own table of them."""

    def __init__(self) -> None:
        super().__init__("zstd", "")

    def bounds(self, file: File) -> Numbers:
        return _table(file).bounds


batches = Batches()


@dataclass(frozen=True)
class BatchScan:
    """Where items begin in what frames hold."""

    columns: int = field(default=1, init=False)
    is_bounds: bool = field(default=True, init=False)
    name: str = field(default="litdata batches", init=False)

    def __call__(self, file: File) -> Iterator[NDArray[Any]]:
        yield _table(file).offsets

"""Chunks of litData whose rows are a table behind items that are empty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.io.files import Files
from lazyckpt.io.groups import CACHE_BYTES, Group, GroupedRows
from lazyckpt.io.index import Index
from lazyckpt.io.ranges import Options
from lazyckpt.io.rows import RecordError, decoding
from lazyckpt.io.shards import check_counts
from lazyckpt.io.storage import File, optional_module, storage_of
from lazyckpt.io.stored_file import StoredFile

_MAGIC = b"LDARW01\0"  # at a chunk's end, behind the table and its length
_END = 4 + len(_MAGIC)


def _arrow() -> Any:
    return optional_module("pyarrow", "arrow", "read_litdata")


def has_table(file: File) -> bool:
    """Whether a chunk's rows are a table."""
    return _ending(file).endswith(_MAGIC)


def _ending(file: File) -> bytes:
    return storage_of(file.path).read(file, max(0, file.size - _END), file.size)


@lru_cache(maxsize=64)
def _bounds(file: File) -> tuple[int, int]:
    """The bytes that the table takes."""
    ending = _ending(file)
    stop = file.size - _END
    start = stop - int.from_bytes(ending[:4], "little")
    if not ending.endswith(_MAGIC) or start < 0:
        raise RecordError(f"{file.path}: it has no table, which other chunks have, or is cut")
    return start, stop


def _table(file: File) -> Any:
    """What reads a chunk's record batches."""
    source = _arrow().PythonFile(StoredFile(file, *_bounds(file)), mode="r")
    return optional_module("pyarrow.ipc", "arrow", "read_litdata").open_file(source)


class TableScan:
    """The record batches of a chunk, which take its table's bytes together."""

    columns = 4
    is_bounds = False
    name = "litdata table"

    def __call__(self, file: File) -> Iterator[NDArray[Any]]:
        with decoding(file):
            table = _table(file)
            sizes = [table.get_batch(n).num_rows for n in range(table.num_record_batches)]
        found = [Group(number, size, *_bounds(file)) for number, size in enumerate(sizes)]
        yield np.array(found, np.uint64).reshape(-1, 4)


class TableRows(GroupedRows):
    """Rows of tables as dicts."""

    def __init__(self, files: Files, counts: Sequence[int], options: Options) -> None:
        _arrow()
        index = Index(
            files,
            TableScan(),
            options.index_dir,
            executor=options.executor,
            progress=options.progress,
        )
        super().__init__("read_litdata", files, index, CACHE_BYTES, {})
        check_counts(files, [edges[-1] for edges in self._edges], counts)

    def decode(self, number: int, group: Group) -> Any:
        batch = _table(self.files[number]).get_batch(group.number)
        return _arrow().Table.from_batches([batch])

"""Readers of records that are ranges of a file's bytes; and `read_files`, for whole files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import boolean, checked, positive
from lazyckpt.errors import PipelineError, SourceChanged, StorageError
from lazyckpt.executors.executor import Executor
from lazyckpt.io.cache import Uint64Array, cache_folder
from lazyckpt.io.content import Content, compression_check, compression_of, content_of
from lazyckpt.io.files import Files, as_files
from lazyckpt.io.index import Index, Scan
from lazyckpt.io.rows import Rows
from lazyckpt.io.storage import storage_of

T = TypeVar("T", covariant=True)

MAX_RECORD = 1 << 28

_RANGE = 1 << 20  # most bytes per read of several records


@dataclass(frozen=True)
class Options:
    """The arguments that all readers of records share, checked."""

    compression: str
    max_record_bytes: int
    index_dir: str
    executor: Executor | None
    progress: bool

    @staticmethod
    def of(
        reader: str,
        compression: Any,
        max_record_bytes: Any,
        index_dir: str | os.PathLike[str] | None,
        executor: Executor | None,
        progress: Any,
    ) -> Options:
        return Options(
            checked(reader, "compression", compression, compression_check),
            checked(reader, "max_record_bytes", max_record_bytes, positive),
            cache_folder() if index_dir is None else os.path.abspath(index_dir),
            executor,
            checked(reader, "progress", progress, boolean),
        )

    @property
    def given(self) -> dict[str, Any]:
        """The arguments that affect the rows and aren't at their defaults."""
        found = {"compression": "infer", "max_record_bytes": MAX_RECORD}
        return {n: getattr(self, n) for n, usual in found.items() if getattr(self, n) != usual}

    def __reduce__(self) -> tuple[Any, ...]:
        # a process that reads rows doesn't scan
        return Options, (self.compression, self.max_record_bytes, self.index_dir, None, False)


class LazyArray:
    """An array that is computed when NumPy first asks for it."""

    def __init__(self, make: Callable[[], NDArray[np.int64]]) -> None:
        self._make = make

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self._make().astype(dtype or np.int64)


class Records(Rows[T]):
    """Rows that are ranges of bytes, with bounds found by a scan."""

    reader: str
    scan: Scan

    def __init__(
        self, files: Files, scan: Scan, options: Options, arguments: Mapping[str, Any]
    ) -> None:
        self.scan, self.options = scan, options
        self.row_index = Index(
            files,
            scan,
            options.index_dir,
            executor=options.executor,
            progress=options.progress,
        )
        # Inferred once: for rows at random over many files it takes a tenth of each.
        self._kinds = [compression_of(file.path, options.compression) for file in files]
        super().__init__(
            self.reader, files, self.row_index.counts.tolist(), {**arguments, **options.given}
        )
        self.sums = self.row_index.sums.tolist()

    def decode(self, record: bytes) -> T:
        """Decode one record to a row."""
        raise NotImplementedError

    def decode_all(self, content: bytes, bounds: Uint64Array) -> list[T]:
        """Decode consecutive records to rows; an error may name no row."""
        return [self.decode(content[start:stop]) for start, stop in pairwise(bounds.tolist())]

    def read_rows(self, number: int, records: Sequence[int]) -> list[T]:
        if isinstance(records, range) and records.step == 1 and len(records) > 1:
            try:
                return self._consecutive(number, records)
            except (StorageError, SourceChanged):
                raise
            except Exception:  # decoding rows one by one finds the bad one
                pass
        if len(records) == 1:
            return [self.read_row(number, records[0])]
        file, spans = self.files[number], self._checked_spans(number, records)
        found = self._content(number).read_ranges(file, spans)
        return [self._decoded(number, *each) for each in zip(records, found, strict=True)]

    def read_row(self, number: int, record: int) -> T:
        file, span = self.files[number], self._checked_span(number, record)
        (content,) = self._content(number).read_ranges(file, (span,))
        return self._decoded(number, record, content)

    def read_block(self, number: int, record: int, budget: int) -> list[T]:
        entries, budget = self.row_index.entries(number), min(budget, self.options.max_record_bytes)
        end = entries[record] + np.uint64(budget)
        stop = int(np.searchsorted(entries, end, "right")) - 1
        return self._consecutive(number, range(record, max(stop, record + 1)))

    def _consecutive(self, number: int, records: range) -> list[T]:
        """Return consecutive rows with one read, or in halves if that read would be too large."""
        if len(records) == 1:
            return [self.read_row(number, records.start)]
        bounds = self.row_index.entries(number)[records.start : records.stop + 1]
        if (bounds[1:] - bounds[:-1]).max() > self.options.max_record_bytes:  # or below 0
            return self.read_rows(number, list(records))  # the error names the row
        start, stop = int(bounds[0]), int(bounds[-1])
        if stop - start > _RANGE:
            half = len(records) // 2
            first = self._consecutive(number, records[:half])
            return first + self._consecutive(number, records[half:])
        file = self.files[number]
        (content,) = self._content(number).read_ranges(file, [(start, stop)])
        return self.decode_all(content, bounds - bounds[0])

    def span(self, number: int, record: int) -> tuple[int, int]:
        start, stop = self.row_index.entries(number)[record : record + 2].tolist()
        return start, stop

    @property
    def block_starts(self) -> LazyArray:
        """The first row of each file and of each block that is decompressed as a whole."""
        return LazyArray(self._block_starts)

    def _block_starts(self) -> NDArray[np.int64]:
        begins = enumerate(self._begins[:-1])
        return np.concatenate([self._first_rows(number) + begin for number, begin in begins])

    def _first_rows(self, number: int) -> NDArray[np.int64]:
        """Return the first row of each block of a file."""
        file = self.files[number]
        begins = self._content(number).block_begins(file)
        if len(begins) < 2:
            return np.zeros(1, np.int64)
        rows = self.row_index.entries(number)[:-1]
        return np.unique(np.searchsorted(rows, begins))

    def _checked_spans(self, number: int, records: Sequence[int]) -> list[tuple[int, int]]:
        """Return the byte ranges of records, after checking their sizes."""
        entries, places = self.row_index.entries(number).view(np.int64), np.asarray(records)
        spans = np.stack([entries[places], entries[places + 1]], axis=1)
        sizes = spans[:, 1] - spans[:, 0]
        for bad in np.flatnonzero((sizes < 0) | (sizes > self.options.max_record_bytes)).tolist():
            self._checked_span(number, records[bad])  # an error
        found: list[tuple[int, int]] = spans.tolist()
        return found

    def _checked_span(self, number: int, record: int) -> tuple[int, int]:
        start, stop = self.span(number, record)
        if start > stop:
            raise PipelineError(
                f"the index of {self.files[number].path} is damaged: remove "
                f"{self.row_index.path(number)}"
            )
        most = self.options.max_record_bytes
        if stop - start > most:
            raise self.error(
                number, record, f"it has {stop - start:,} bytes, and max_record_bytes is {most:,}"
            )
        return start, stop

    def _decoded(self, number: int, record: int, content: bytes) -> T:
        try:
            return self.decode(content)
        except Exception as error:
            raise self.error(number, record, error) from error

    def _content(self, number: int) -> Content:
        return content_of(self._kinds[number], self.row_index.folder)


class _WholeFiles(Rows[dict[str, Any]]):
    def __init__(self, files: Files, max_record_bytes: int) -> None:
        self._most, self._named_from = max_record_bytes, len(files.root) + 1
        given = {} if max_record_bytes == MAX_RECORD else {"max_record_bytes": max_record_bytes}
        super().__init__("read_files", files, [1] * len(files), given)

    def read_rows(self, number: int, records: Sequence[int]) -> list[dict[str, Any]]:
        file = self.files[number]
        if file.size > self._most:
            reason = f"it has {file.size:,} bytes, and max_record_bytes is {self._most:,}"
            raise self.error(number, 0, reason)
        data = storage_of(file.path).read(file, 0, file.size)
        return [{"name": file.path[self._named_from :], "data": data} for _ in records]

    def span(self, number: int, record: int) -> tuple[int, int]:
        return 0, self.files[number].size


def read_files(files: Any, *, max_record_bytes: int = MAX_RECORD) -> Rows[dict[str, Any]]:
    """Read whole files, by number, as dicts of name and bytes: images, audio, documents.

    Decode the content with `map`; compressed files are not decompressed. A name is the path below
    the folder that contains all files.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Returns:
        The rows: `{"name": "cats/1.jpg", "data": b"..."}`.

    Raises:
        RecordError: If a file is larger than `max_record_bytes`.

    Memory:
        One file at a time.

    >>> import lazyckpt as lz
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("to", "be"):
    ...         _ = Path(folder, f"{name}.txt").write_text(name * 2)
    ...     list(lz.io.read_files(f"{folder}/*.txt"))
    [{'name': 'be.txt', 'data': b'bebe'}, {'name': 'to.txt', 'data': b'toto'}]
    """
    most = checked("read_files", "max_record_bytes", max_record_bytes, positive)
    return _WholeFiles(as_files(files, "read_files"), most)

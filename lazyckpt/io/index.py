"""Indices: the positions of rows in files, found once, kept on disk, mapped into memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lazyckpt.combinators.map import map as mapped
from lazyckpt.combinators.source import source
from lazyckpt.errors import ArgumentError, PipelineError
from lazyckpt.executors.executor import Executor, as_executor
from lazyckpt.io.cache import (
    SMALL,
    LRUCache,
    Uint64Array,
    array_footer,
    atomic_writer,
    build_lock,
    cache_bytes,
    cache_errors,
    cache_folder,
    map_array,
    remove_abandoned,
    remove_unused,
    short_digest,
    write_array,
)
from lazyckpt.io.decompress import Damaged
from lazyckpt.io.files import Files, as_files
from lazyckpt.io.rows import RecordError
from lazyckpt.io.storage import File, check_unchanged, open_limit, relative_path
from lazyckpt.monitoring.bar import progress_bar
from lazyckpt.pipeline import run

_KEPT = 1 << 26  # bytes of entries to keep in memory


@dataclass(frozen=True, slots=True)
class _Entries:
    values: Uint64Array

    @property
    def size(self) -> int:
        """Their share of the cache: their bytes, or the share of one mapped file."""
        return self.values.nbytes if self.values.nbytes <= SMALL else 4 * _KEPT // open_limit()


class Scan(Protocol):
    """A function that finds the rows of a file.

    - `name`: what it looks for, arguments included; two scans of one name find the same rows
    - `columns`: number of numbers per entry
    - `is_bounds`: True if the last entry is the end of the last row, not a row
    """

    @property
    def name(self) -> str: ...
    @property
    def columns(self) -> int: ...
    @property
    def is_bounds(self) -> bool: ...

    def __call__(self, file: File) -> Iterator[NDArray[Any]]:
        """Yield the entries in order, in chunks, as arrays of unsigned 64-bit integers.

        A generator may return a checksum of the content it has read. States use it to distinguish
        the file from others with the same name and size.
        """


class Index:
    """The rows of files, as found by a scan; built if it doesn't exist.

    Each file has its own entries, verified against its size and version, so an added file costs
    only its own scan. A listing has one file for all row counts and checksums, so opening 10,000
    files opens one. One process builds an index while others wait. Each process keeps up to 64 MiB
    of entries in memory. The entries of a file are memory-mapped if they take more than 64 KiB; the
    number of mapped files is at most a quarter of the files that the process may have open.

    Args:
        files: The files.
        scan: Function that finds their rows.
        folder: Folder for the index; by default the cache folder. If it is next to the files or
            inside their folder, it can be moved together with them.
        executor: Executor that scans new files.
        progress: If True, show a tqdm progress bar, if tqdm is installed.
    """

    counts: NDArray[np.int64]
    sums: NDArray[np.int64]

    def __init__(
        self,
        files: Files,
        scan: Scan,
        folder: str | os.PathLike[str] | None = None,
        *,
        executor: Executor | None = None,
        progress: bool = False,
    ) -> None:
        self.files, self.scan = files, scan
        self.folder = cache_folder() if folder is None else os.path.abspath(os.fspath(folder))
        self._entries = LRUCache[_Entries](_KEPT)
        self.counts, self.sums = self._build(as_executor(executor), progress).T

    def entries(self, number: int) -> Uint64Array:
        """Return the entries of a file; if there are several columns, as rows."""
        return self._entries.get(number, lambda: self._open(number)).values

    def path(self, number: int) -> str:
        """Return the path of the entries of a file."""
        return _entries_path(self.scan, self.folder, self.files[number])

    @property
    def nbytes(self) -> int:
        """The bytes that the entries take on disk."""
        numbers = range(len(self.files))
        return sum(os.path.getsize(self.path(number)) for number in numbers)

    def __repr__(self) -> str:
        rows = int(self.counts.sum())
        return f"<Index of {len(self.files):,} files, {rows:,} rows, in {self.folder}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Index, (self.files, self.scan, self.folder)

    @property
    def _counts_path(self) -> str:
        names = [_key(file, self.scan, self.folder) for file in self.files]
        return os.path.join(self.folder, f"{short_digest(*names)}.counts")

    def _open(self, number: int) -> _Entries:
        found = map_array(self.path(number), self.scan.columns)
        if found is None:  # lost or damaged since
            write_entries(self.scan, self.folder, self.files[number])
            found = map_array(self.path(number), self.scan.columns)
        if found is None or _rows(len(found), self.scan) != self.counts[number]:
            raise PipelineError(
                f"the index of {self.files[number].path} is damaged: remove {self.path(number)} "
                f"and {self._counts_path}"
            )
        return _Entries(found)

    def _build(self, executor: Executor | None, progress: bool) -> NDArray[np.int64]:
        path = self._counts_path
        find = partial(_read_counts, path, len(self.files))
        with cache_errors(self.folder), build_lock(f"{path}.lock", find) as found:
            if found is None:
                remove_abandoned(self.folder)
                if self.folder == cache_folder():
                    remove_unused(self.folder, cache_bytes())
                found = self._scan_all(executor, progress)
                with atomic_writer(path) as temporary:
                    write_array(temporary, [found], 2)
        return found

    def _scan_all(self, executor: Executor | None, progress: bool) -> NDArray[np.int64]:
        """Return the number of rows and a checksum per file; scan files without entries."""
        known = [array_footer(self.path(number)) for number in range(len(self.files))]
        new = [file for file, footer in zip(self.files, known, strict=True) if footer is None]
        pipeline = source(new) | mapped(partial(_scanned, self.scan, self.folder))
        with run(pipeline, executor=executor) as done:
            scanned = list(progress_bar(done, len(new), progress, "index", "file"))
        errors = [each for each in scanned if isinstance(each, PipelineError)]
        if errors:
            if len(errors) > 1:
                errors[0].add_note(f"{len(errors) - 1:,} more files can't be indexed")
            raise errors[0]
        rest: Iterator[Any] = iter(scanned)
        pairs = [footer or next(rest) for footer in known]
        counts = [(_rows(entries, self.scan), checksum) for entries, checksum in pairs]
        return np.array(counts, np.int64).reshape(-1, 2)


def index(
    files: Any,
    scan: Scan,
    *,
    index_dir: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> Index:
    """Find the rows of files and store their positions, unless an index exists already.

    Readers call it themselves. Call it before them to scan with several workers.

    Args:
        files: A listing, or patterns for one.
        scan: Function that finds the rows, such as `reader.scan`.
        index_dir: Folder for the index; by default `LAZYCKPT_CACHE` or the user's cache folder.
        executor: Executor that scans files in parallel.
        progress: If True, show a tqdm progress bar, if tqdm is installed.

    Raises:
        PipelineError: If the index can't be written.
        SourceChanged: If a file changed since the listing, or while it was read.

    >>> import lazyckpt as lz
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("to be\\nor not\\n")
    ...     rows = lz.io.read_text(f"{folder}/a.txt", index_dir=folder)
    ...     lz.io.index(rows.files, rows.scan, index_dir=folder).counts
    array([2])
    """
    listed = as_files(files, "index")
    return Index(listed, scan, index_dir, executor=executor, progress=progress)


def _scanned(scan: Scan, folder: str, file: File) -> tuple[int, int] | PipelineError:
    """Scan one file; return its error if it can't be read, so that the others are scanned."""
    try:
        return write_entries(scan, folder, file)
    except (RecordError, ArgumentError, Damaged) as error:
        return error


def write_entries(scan: Scan, folder: str, file: File) -> tuple[int, int]:
    """Scan one file and store its entries; return their number and a checksum."""
    try:
        return _write_entries(scan, folder, file)
    except Damaged:  # now the damage is noted, and the content ends before it
        return _write_entries(scan, folder, file)


def _write_entries(scan: Scan, folder: str, file: File) -> tuple[int, int]:
    with cache_errors(folder), atomic_writer(_entries_path(scan, folder, file)) as temporary:
        found = write_array(temporary, scan(file), scan.columns)
        check_unchanged(file)
        return found


def _read_counts(path: str, length: int) -> NDArray[np.int64] | None:
    found = map_array(path, 2)
    return None if found is None or len(found) != length else found.astype(np.int64)


def _rows(entries: int, scan: Scan) -> int:
    return max(0, entries - scan.is_bounds)


def _entries_path(scan: Scan, folder: str, file: File) -> str:
    return os.path.join(folder, f"{short_digest(_key(file, scan, folder))}.index")


def _key(file: File, scan: Scan, folder: str) -> str:
    return f"{relative_path(folder, file.path)}\n{file.size}\n{file.version}\n{scan.name}"

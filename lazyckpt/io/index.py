"""Where the rows of files begin: found once, kept on disk, mapped into memory."""

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

_KEPT = 1 << 26  # bytes of entries that are kept in memory


@dataclass(frozen=True, slots=True)
class _Entries:
    """The entries of a file."""

    values: Uint64Array

    @property
    def size(self) -> int:
        """What they take of what may be kept: their bytes, or a place among what is mapped."""
        return self.values.nbytes if self.values.nbytes <= SMALL else 4 * _KEPT // open_limit()


class Scan(Protocol):
    """What finds the rows of a file.

    - `name`: what it looks for, arguments included: two scans of one name find the same
    - `columns`: how many numbers an entry has
    - `is_bounds`: whether the last entry is where the last row ends, and no row itself
    """

    @property
    def name(self) -> str: ...
    @property
    def columns(self) -> int: ...
    @property
    def is_bounds(self) -> bool: ...

    def __call__(self, file: File) -> Iterator[NDArray[Any]]:
        """The entries in order, some at a time, as arrays of unsigned 64-bit integers.

        What a generator returns is a checksum of what it has read, by which states tell the file
        from others of its name and size.
        """


class Index:
    """The rows of files, as a scan found them. It is built where there is none.

    Each file has its own entries, which are verified against its size and version, so that
    one which is added costs its own scan alone; a listing has the numbers of rows and the
    checksums of what was read, so that opening 10,000 files opens one. One process builds;
    others wait for it. In memory are 64 MiB of entries at most, in each process; what is larger
    than 64 KiB of a file is mapped, a quarter as many files as the process may have open.

    Args:
        files: The files.
        scan: What finds their rows.
        folder: Where it is kept; by default the cache folder. One beside the files, or
            within their folder, may be moved together with them.
        executor: Who scans files that aren't scanned yet.
        progress: Whether to show a bar of tqdm, where installed.
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
        """The entries of a file, mapped into memory; of several columns in rows."""
        return self._entries.get(number, lambda: self._open(number)).values

    def path(self, number: int) -> str:
        """Where the entries of a file are kept."""
        return _entries_path(self.scan, self.folder, self.files[number])

    @property
    def nbytes(self) -> int:
        """What it takes on disk."""
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
        if found is None:  # lost since, or damaged
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
        """How many rows each file has, and a checksum; those that have no entries are scanned."""
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
    """Find the rows of files and keep where they are, unless that is kept already.

    Readers do so themselves; ahead of them it can be done by several workers.

    Args:
        files: A listing, or patterns for one.
        scan: What finds the rows, such as `reader.scan`.
        index_dir: Where it is kept; by default `LAZYCKPT_CACHE` or the user's cache folder.
        executor: Who scans: files in parallel.
        progress: Whether to show a bar of tqdm, where installed.

    Raises:
        PipelineError: The index can't be written.
        SourceChanged: A file changed since the listing, or while it was read.

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
    """Scan one file; return the error of one that can't be read, so that others are scanned."""
    try:
        return write_entries(scan, folder, file)
    except (RecordError, ArgumentError, Damaged) as error:
        return error


def write_entries(scan: Scan, folder: str, file: File) -> tuple[int, int]:
    """Scan one file, and keep its entries: how many there are, and a checksum."""
    try:
        return _write_entries(scan, folder, file)
    except Damaged:  # which is noted by now, so that the content ends before it
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

"""The common base of readers: rows of files as one sequence."""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import accumulate
from typing import Any, Self, SupportsIndex, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import brief
from lazyckpt.core.prng import Indices
from lazyckpt.core.show import show
from lazyckpt.errors import PipelineError
from lazyckpt.io.files import Files
from lazyckpt.io.storage import File, RowOrigin, unreadable

T = TypeVar("T", covariant=True)

# Bytes of rows per block: the first block, and later ones. The allocator gets memory above 128 KiB
# from the system again for every block, which costs as much as decoding it.
_FIRST, _BLOCK = 1 << 14, 7 << 14


class RecordError(PipelineError, ValueError):
    """A record of a file can't be read; the message names record, offset and file."""


@contextmanager
def decoding(file: File) -> Iterator[None]:
    """Add the path of a file to errors of decoding it; errors of its storage name it already."""
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise unreadable(file, error) from error
        text = f"{error}".strip() or type(error).__name__
        raise RecordError(f"{file.path}: {text}") from error


def shifted(indices: Indices, by: int) -> Indices:
    """Add a number to each index."""
    if isinstance(indices, range):
        return range(indices.start + by, indices.stop + by, indices.step)
    return indices + by


class Rows(Sequence[T]):
    """The rows of files as one sequence, by number: the result of every reader.

    Use it in `source`, with `|`, or wherever a map-style dataset is accepted. `rows[7]` is a row,
    and `rows[7:9]` a list of two. The following holds for every reader whose docstring doesn't say
    otherwise.

    Readers take these arguments, as far as they apply:

    - `files`: a listing by `lazyckpt.io.files`, or patterns for one, on any storage
    - `compression`: "infer" uses the suffix: `.gz`, `.bgz`, `.zst` and `.zstd`; alternatives are
      "none", "gzip", "zstd", or options of `lazyckpt.io.Zstd`
    - `max_record_bytes`: most bytes of a record; a larger one is an error and isn't read
    - `index_dir`: folder for indices. An index takes up to 8 bytes per row in formats that don't
      store the positions of rows, and 2 % of a large gzip member. By default it is
      `LAZYCKPT_CACHE`, or the user's cache folder. Before an index is built there, the least
      recently used ones are removed until the folder takes at most `LAZYCKPT_CACHE_BYTES` (16 GiB).
    - `executor`: executor that scans files without an index
    - `progress`: if True, show a tqdm progress bar while scanning, if tqdm is installed

    Raises:
        ArgumentError: If a file has no random access, such as `.xz`, or if its first bytes show a
            different compression than its name. Other files are indexed first.
        RecordError: If a file has a different format, or a record is damaged or larger than
            `max_record_bytes` when it is read. The error names the file, and the number and offset
            of the record; `run(..., on_error="skip")` skips the record.
        SourceChanged: If a file changed since the listing, when it is read.
        StorageError: If a file can't be read from its storage; no `on_error` skips it.
        PipelineError: If the index can't be written, or a package is missing. Also if the last row
            of a damaged compressed file is read. Rows before the damaged gzip member or zstd frame
            can be read; in a file that is cut, rows up to 1 MiB before the cut.

    State:
        The epoch, a count of rows, the number of files, and a digest. The digest covers the files'
        names below the folder that contains them all, their sizes, and a checksum of the content
        that a scan reads. A scan reads all of text, JSON lines, CSV and TFRecord files, the footers
        of Parquet and Arrow files, the positions of samples in tar and MDS files, and the index of
        Megatron. So the same data can be resumed from any folder, whenever it was written. An edit
        that changes none of these, such as new numbers in an Arrow file, is detected only with
        `files(..., digest=True)`.

    Resume:
        Re-reads nothing; a compressed file is read from the nearest seek point.

    Random access:
        Yes. Reading a row of a compressed file decompresses its block up to the row: about 2 MiB of
        gzip, a small gzip member or a zstd frame. The last read blocks are kept. `local_shuffle`
        decompresses each block once, if `window` of them fit into 64 MiB.

    Rank-invariant:
        Yes.

    Memory:
        About 112 KiB of rows at a time, or one row if that is larger; for compressed files 64 MiB;
        and up to 64 MiB for positions of rows.
    """

    def __init__(
        self, reader: str, files: Files, counts: Sequence[int], arguments: Mapping[str, Any]
    ) -> None:
        """Initialize a reader; a subclass reads rows of one file.

        Args:
            reader: Name of the reader.
            files: The files.
            counts: Number of rows per file.
            arguments: The reader's other arguments by name, without those at their defaults.
        """
        self.reader, self.files, self.arguments = reader, files, dict(arguments)
        self.sums: Sequence[int] = [0] * len(files)  # checksums of the content a scan read
        self._begins = [0, *accumulate(map(int, counts))]  # of files, among all rows
        self._length = self._begins[-1]

    def read_rows(self, number: int, records: Sequence[int]) -> list[T]:
        """Return rows of file `number` by their ascending numbers in it."""
        raise NotImplementedError

    def read_row(self, number: int, record: int) -> T:
        """Return row `record` of file `number`."""
        return self.read_rows(number, (record,))[0]

    def read_block(self, number: int, record: int, budget: int) -> list[T]:
        """Return rows of file `number` from `record` on: about `budget` bytes, at least one row."""
        stop = min(record + max(1, budget >> 10), self._begins[number + 1] - self._begins[number])
        return self.read_rows(number, range(record, stop))

    def span(self, number: int, record: int) -> tuple[int, int]:
        """Return the range of bytes of a record in file `number`."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> T | list[T]:
        """Return a row by number, or a list for a slice."""
        if isinstance(index, slice):
            return self.__getitems__(range(self._length)[index])
        number, record = self._find(operator.index(index))
        return self.read_row(number, record)

    def __getitems__(self, indices: Sequence[int]) -> list[T]:
        """Return rows by their numbers, in that order; rows of one file are read together."""
        if not len(indices):
            return []
        if isinstance(indices, range) and 0 <= indices.start < indices.stop:
            self._find(indices[-1])
            return self._ascending(indices)
        wanted = np.asarray(indices)
        if wanted.dtype.kind not in "iu":
            raise TypeError(f"{self.reader}: row numbers must be ints, got {brief(wanted)}")
        self._find(int(wanted.min())), self._find(int(wanted.max()))
        wanted = wanted.astype(np.int64, copy=False)
        wanted = np.where(wanted < 0, wanted + self._length, wanted)
        order = np.argsort(wanted, kind="stable")
        found: list[Any] = [None] * len(order)
        for place, row in zip(order.tolist(), self._ascending(wanted[order]), strict=True):
            found[place] = row
        return found

    def _ascending(self, indices: Indices) -> list[T]:
        """Return rows by ascending numbers."""
        found: list[T] = []
        while len(indices):
            number, _ = self._find(int(indices[0]))
            begin, end = self._begins[number : number + 2]
            count = bisect_left(indices, end)
            some, indices = shifted(indices[:count], -begin), indices[count:]
            found += self.read_rows(number, some if isinstance(some, range) else some.tolist())
        return found

    def __iter__(self) -> Iterator[T]:
        for block in self.iter_blocks(0):
            yield from block

    def iter_blocks(self, start: int) -> Iterator[list[T]]:
        """Yield blocks of rows, starting at number `start`; an error is raised at the bad row."""
        budget = _FIRST
        while start < self._length:
            number, record = self._find(start)
            try:
                block = self.read_block(number, record, budget)
                budget = min(budget * 4, _BLOCK)
            except Exception:  # yield the rows before the bad one first
                block, budget = [self.read_row(number, record)], 0
            if not block:
                raise PipelineError(f"{self.reader}: {self.files[number].path} has no more rows")
            yield block
            start += len(block)
            budget = max(budget, 1)

    def locate(self, index: int) -> RowOrigin:
        """Return the origin of a row: file, record and bytes."""
        number, record = self._find(operator.index(index))
        return RowOrigin(self.files[number].path, record, *self.span(number, record))

    @property
    def paths(self) -> list[str]:
        """The paths of the files."""
        return [file.path for file in self.files]

    def locate_many(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the file numbers of rows, -1 for none, and the row numbers in the files.

        Args:
            indices: Numbers of rows, of shape `(n,)`.
        """
        begins = np.asarray(self._begins)
        numbers = np.searchsorted(begins, indices, side="right") - 1
        return numbers, indices - begins[numbers]

    @property
    def source_identity(self) -> dict[str, Any]:
        """The values that a state stores in addition to the number of rows."""
        return {"files": len(self.files), "digest": self.files.digest_with(self.sums)}

    def changed_path(self, digest: Any) -> str | None:
        """Return the only file in which these rows differ from a digest; None if there is none.

        Args:
            digest: Digest such as that of `source_identity`.
        """
        return self.files.differing(self.source_identity["digest"], digest)

    def first_files(self, count: Any) -> Self | None:
        """Return the rows of the first `count` files; None if there are fewer files."""
        if not isinstance(count, int) or not 0 <= count <= len(self.files):
            return None
        found = copy(self)
        found.files, found.sums = self.files[:count], self.sums[:count]
        found._begins = self._begins[: count + 1]
        found._length = found._begins[-1]
        return found

    def error(self, number: int, record: int, reason: object) -> RecordError:
        """Return the error of a record that can't be read."""
        try:
            start = f" at byte {self.span(number, record)[0]:,}"
        except Exception:  # the span itself may be unreadable
            start = ""
        return RecordError(f"record {record:,}{start} of {self.files[number].path}: {reason}")

    def _find(self, index: int) -> tuple[int, int]:
        """Return the file number of a row, and its number in that file."""
        wanted = index + self._length if index < 0 else index
        if not 0 <= wanted < self._length:
            raise IndexError(f"{self.reader}: row {brief(index)} of {self._length:,}")
        number = bisect_right(self._begins, wanted) - 1
        return number, wanted - self._begins[number]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rows):
            return NotImplemented
        mine, theirs = (
            (each.reader, each.files, each.arguments, each._begins) for each in (self, other)
        )
        return mine == theirs

    def __hash__(self) -> int:
        return hash((self.reader, self.files))

    def __repr__(self) -> str:
        given = "".join(f", {name}={show(value, name)}" for name, value in self.arguments.items())
        return f"{self.reader}({self.files!r}{given})"

"""What readers have in common: rows of files as one sequence."""

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

# Bytes of rows that are made at once: at first, and later. What is larger than 128 KiB
# the allocator takes from the system for every block anew, which costs as much as to decode it.
_FIRST, _BLOCK = 1 << 14, 7 << 14


class RecordError(PipelineError, ValueError):
    """A record of a file can't be read; the message names record, offset and file."""


@contextmanager
def decoding(file: File) -> Iterator[None]:
    """Errors of whatever decodes a file name it; those of its storage do so themselves."""
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
    """Indices, a number added to each."""
    if isinstance(indices, range):
        return range(indices.start + by, indices.stop + by, indices.step)
    return indices + by


class Rows(Sequence[T]):
    """The rows of files as one sequence, by number: what every reader gives.

    It is data for `source`, for `|`, and for whatever takes map-style data sets: `rows[7]` is a
    row, `rows[7:9]` a list of two. What follows holds for each reader that doesn't say otherwise.
    Readers have these arguments, as far as they need them:

    - `files`: a listing by `lazyckpt.io.files`, or patterns for one, on any storage
    - `compression`: "infer" goes by `.gz`, `.bgz`, `.zst` and `.zstd` at the end of a name; else
      "none", "gzip", "zstd", or options of `lazyckpt.io.Zstd`
    - `max_record_bytes`: a larger record is an error; nothing of it is read
    - `index_dir`: where indices are kept, with 8 bytes a row or less, for formats that don't say
      where rows begin, and 2 % of a large gzip member; by default `LAZYCKPT_CACHE`, or the user's
      folder for caches, where the indices that were used least recently are removed before one is
      built, down to `LAZYCKPT_CACHE_BYTES` (16 GiB)
    - `executor`: who scans files, where there is no index yet
    - `progress`: whether to show a bar of tqdm meanwhile, where installed

    Raises:
        ArgumentError: A file has no random access, such as `.xz`, or by its first bytes a
            different compression than its name says. Other files are indexed before.
        RecordError: A file is none of the format, or a record that is read is damaged, or larger
            than `max_record_bytes`. It names the file, and of a record its number and offset;
            `run(..., on_error="skip")` leaves the record out.
        SourceChanged: A file that is read changed since the listing.
        StorageError: A file can't be read, which no `on_error` leaves out.
        PipelineError: The index can't be written, or a package is missing; or, when it is read,
            the last row of a compressed file that is damaged, whose rows before the damaged gzip
            member or zstd frame can be read, and of a file that is cut those up to 1 MiB before.

    State:
        The epoch and a count of rows; of the files their number and a digest: of their names
        below the folder that all are in, of sizes, and of a checksum of what a scan reads. That
        is all of texts, JSON lines, CSV and TFRecords, the footers of Parquet and Arrow, where
        samples of tar and MDS begin, an index of Megatron's. So the same data resume wherever
        they are and whenever they were written. An edit that changes none of these, such as of
        numbers in an Arrow file, is found by `files(..., digest=True)` alone.

    Resume:
        Re-reads nothing; of a compressed file, from the nearest point that can be sought.

    Random access:
        Yes. A row of a compressed file takes what is before it in its block: in 2 MiB or so of
        gzip, a small gzip member or a zstd frame. The last read blocks are kept;
        `local_shuffle` decompresses each once, if `window` of them fit into 64 MiB.

    Rank-invariant:
        Yes.

    Memory:
        Some 112 KiB of rows at a time, or one row if that is larger; of compressed files 64 MiB;
        and up to 64 MiB of where rows begin.
    """

    def __init__(
        self, reader: str, files: Files, counts: Sequence[int], arguments: Mapping[str, Any]
    ) -> None:
        """Of a subclass, which reads some rows of one file.

        Args:
            reader: The reader's name.
            files: The files.
            counts: How many rows each has.
            arguments: The reader's other arguments, by name, those at their defaults left out.
        """
        self.reader, self.files, self.arguments = reader, files, dict(arguments)
        self.sums: Sequence[int] = [0] * len(files)  # of what was read of each
        self._begins = [0, *accumulate(map(int, counts))]  # of files, among all rows
        self._length = self._begins[-1]

    def read_rows(self, number: int, records: Sequence[int]) -> list[T]:
        """Rows of file `number` by their numbers in it, which ascend."""
        raise NotImplementedError

    def read_row(self, number: int, record: int) -> T:
        """Row `record` of file `number`."""
        return self.read_rows(number, (record,))[0]

    def read_block(self, number: int, record: int, budget: int) -> list[T]:
        """Rows of file `number` from `record` on: one, or more of about `budget` bytes in all."""
        stop = min(record + max(1, budget >> 10), self._begins[number + 1] - self._begins[number])
        return self.read_rows(number, range(record, stop))

    def span(self, number: int, record: int) -> tuple[int, int]:
        """The bytes that a record takes in file `number`."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> T | list[T]:
        """A row by its number; or a list of some."""
        if isinstance(index, slice):
            return self.__getitems__(range(self._length)[index])
        number, record = self._find(operator.index(index))
        return self.read_row(number, record)

    def __getitems__(self, indices: Sequence[int]) -> list[T]:
        """Rows by their numbers, in that order; those of one file are read together."""
        if not len(indices):
            return []
        if isinstance(indices, range) and 0 <= indices.start < indices.stop:
            self._find(indices[-1])
            return self._ascending(indices)
        wanted = np.asarray(indices)
        if wanted.dtype.kind not in "iu":
            raise TypeError(f"{self.reader}: rows have ints as numbers, got {brief(wanted)}")
        self._find(int(wanted.min())), self._find(int(wanted.max()))
        wanted = wanted.astype(np.int64, copy=False)
        wanted = np.where(wanted < 0, wanted + self._length, wanted)
        order = np.argsort(wanted, kind="stable")
        found: list[Any] = [None] * len(order)
        for place, row in zip(order.tolist(), self._ascending(wanted[order]), strict=True):
            found[place] = row
        return found

    def _ascending(self, indices: Indices) -> list[T]:
        """Rows by numbers that rise."""
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
        """The rows from number `start` on, some at a time; an error comes where its row is."""
        budget = _FIRST
        while start < self._length:
            number, record = self._find(start)
            try:
                block = self.read_block(number, record, budget)
                budget = min(budget * 4, _BLOCK)
            except Exception:  # of one row; those before it come first
                block, budget = [self.read_row(number, record)], 0
            if not block:
                raise PipelineError(f"{self.reader}: no rows of {self.files[number].path} are left")
            yield block
            start += len(block)
            budget = max(budget, 1)

    def locate(self, index: int) -> RowOrigin:
        """Where a row comes from: file, record and bytes."""
        number, record = self._find(operator.index(index))
        return RowOrigin(self.files[number].path, record, *self.span(number, record))

    @property
    def paths(self) -> list[str]:
        """The paths of its files."""
        return [file.path for file in self.files]

    def locate_many(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Where rows come from: the numbers of their files, -1 for none, and theirs in these.

        Args:
            indices: Numbers of rows, of shape `(n,)`.
        """
        begins = np.asarray(self._begins)
        numbers = np.searchsorted(begins, indices, side="right") - 1
        return numbers, indices - begins[numbers]

    @property
    def source_identity(self) -> dict[str, Any]:
        """What a state has of it, beside the number of rows."""
        return {"files": len(self.files), "digest": self.files.digest_with(self.sums)}

    def changed_path(self, digest: Any) -> str | None:
        """The file by which alone these are others than those of a digest; None if there is none.

        Args:
            digest: Such as of `source_identity`.
        """
        return self.files.differing(self.source_identity["digest"], digest)

    def first_files(self, count: Any) -> Self | None:
        """The rows of so many files alone; None if there are not so many."""
        if not isinstance(count, int) or not 0 <= count <= len(self.files):
            return None
        found = copy(self)
        found.files, found.sums = self.files[:count], self.sums[:count]
        found._begins = self._begins[: count + 1]
        found._length = found._begins[-1]
        return found

    def error(self, number: int, record: int, reason: object) -> RecordError:
        """The error of a record that can't be read."""
        try:
            start = f" at byte {self.span(number, record)[0]:,}"
        except Exception:  # it may be why
            start = ""
        return RecordError(f"record {record:,}{start} of {self.files[number].path}: {reason}")

    def _find(self, index: int) -> tuple[int, int]:
        """A row's file, and its number in that."""
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

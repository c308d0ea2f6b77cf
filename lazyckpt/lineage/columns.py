"""Origins as columns, with files and records: from codes, or from items that carry them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazyckpt.lineage.codes import Codes, leaves
from lazyckpt.lineage.tracing import Followed

Column = NDArray[np.int64]


Names: TypeAlias = dict[str, int]
"""Texts that columns have as numbers, in the order in which they came up."""


def _number(text: str, names: Names) -> int:
    return names.setdefault(text, len(names))


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """Some rows of `Seen`, as arrays of ints with one element per row.

    Attributes:
        item: The output's number in the run, from 0.
        stage: The source, as a number in `stages`.
        epoch: The source's epoch.
        index: The item's number in that epoch; its index, if the data can be indexed.
        file: The file, as a number in `files`; -1 if the data don't provide one.
        record: The row's number in its file; -1 if the data don't provide one.
        stages: The sources known so far, as named by `Origin.stage`.
        files: The files known so far.
    """

    item: Column
    stage: Column
    epoch: Column
    index: Column
    file: Column
    record: Column
    stages: list[str]
    files: list[str]

    def __len__(self) -> int:
        return len(self.item)


Finder: TypeAlias = Callable[[Column], tuple[Column, Column]]


def _finder(reader: Any, names: Names) -> Finder:
    """Return a function from indices to files and records, -1 if the data don't provide them."""
    if reader is None:
        return lambda indices: (_unknown(indices), _unknown(indices))
    if not hasattr(reader, "locate_many"):
        return lambda indices: _pairs([_named(reader.locate(n), names) for n in indices.tolist()])
    numbers: list[Column] = []

    def find(indices: Column) -> tuple[Column, Column]:
        if not numbers:
            numbers.append(np.array([*(_number(path, names) for path in reader.paths), -1]))
        files, records = reader.locate_many(indices)
        return numbers[0][files], records

    return find


def _unknown(indices: Column) -> Column:
    return np.full(len(indices), -1)


def _pairs(found: list[tuple[int, int]]) -> tuple[Column, Column]:
    files, records = np.array(found, np.int64).reshape(-1, 2).T
    return files, records


def _named(row: Any, names: Names) -> tuple[int, int]:
    """Return the file and the record that data provide for an item."""
    path = row if isinstance(row, str) else getattr(row, "path", None)
    record = getattr(row, "record", None)
    known = -1 if path is None else _number(str(path), names)
    return known, record if type(record) is int else -1


def blocks_of(found: Followed) -> Callable[[Any, int], Block]:
    """Yield blocks of items that carry their origins, given the number of the first."""
    stages: Names = {}
    files: Names = {}
    columns = (
        _traced(found, stages, files) if found.codes is None else _coded(found.codes, stages, files)
    )

    def block(items: Any, number: int) -> Block:
        item, stage, epoch, index, file, record = columns(items)
        known = [*stages], [*files]
        return Block(item + number, stage, epoch, index, file, record, *known)

    return block


Columns: TypeAlias = Callable[[Any], Sequence[Column]]  # the columns of a block


def _traced(found: Followed, stages: Names, files: Names) -> Columns:
    def columns(items: list[Any]) -> Sequence[Column]:
        rows = [
            (number, _number(each.stage, stages), each.epoch, each.index, *_named(each.row, files))
            for number, item in enumerate(items)
            for each in found.origins(item)
        ]
        return [*np.array(rows, np.int64).reshape(-1, 6).T]

    return columns


def _coded(codes: Codes, stages: Names, files: Names) -> Columns:
    numbers = np.array([_number(source.stage, stages) for source in codes.sources])
    finders = [_finder(source.reader, files) for source in codes.sources]

    def columns(items: list[Any] | Column) -> Sequence[Column]:
        found = leaves(items)
        source, epoch, index = codes.decoded(found.codes)
        if len(finders) == 1:
            return found.item, numbers[source], epoch, index, *finders[0](index)
        file, record = _unknown(index), _unknown(index)
        for number in np.unique(source).tolist():
            mine = source == number
            file[mine], record[mine] = finders[number](index[mine])
        return found.item, numbers[source], epoch, index, file, record

    return columns

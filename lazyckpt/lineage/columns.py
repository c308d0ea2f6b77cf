"""Origins as columns, with files and records: from codes, or from items that carry them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazyckpt.lineage.codes import Codes, leaves
from lazyckpt.lineage.tracing import Followed

Column = NDArray[np.int64]


class Names:
    """Texts that columns have as numbers, in the order in which they came up."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._known: dict[str, int] = {}

    def number(self, text: str) -> int:
        """That of a text."""
        if text not in self._known:
            self._known[text] = len(self.texts)
            self.texts.append(text)
        return self._known[text]

    def numbers(self, texts: Iterable[str]) -> Column:
        """Those of several."""
        return np.fromiter(map(self.number, texts), np.int64)


class Columns(NamedTuple):
    """Origins: of each the number of its item among these, and what `Block` has."""

    item: Column
    stage: Column
    epoch: Column
    place: Column
    file: Column
    record: Column


Finder: TypeAlias = Callable[[Column], tuple[Column, Column]]


def _finder(reader: Any, names: Names) -> Finder:
    """Of places in data the files and the records in them, -1 where the data don't tell."""
    if reader is None:
        return lambda places: (_unknown(places), _unknown(places))
    if not hasattr(reader, "locate_many"):
        return lambda places: _pairs([_named(reader.locate(n), names) for n in places.tolist()])
    numbers: list[Column] = []

    def find(places: Column) -> tuple[Column, Column]:
        if not numbers:
            numbers.append(np.append(names.numbers(reader.paths), -1))
        files, records = reader.locate_many(places)
        return numbers[0][files], records

    return find


def _unknown(places: Column) -> Column:
    return np.full(len(places), -1)


def _pairs(found: list[tuple[int, int]]) -> tuple[Column, Column]:
    files, records = np.array(found, np.int64).reshape(-1, 2).T
    return files, records


def _named(row: Any, names: Names) -> tuple[int, int]:
    """The file and the record that data tell of an item."""
    path = row if isinstance(row, str) else getattr(row, "path", None)
    record = getattr(row, "record", None)
    known = -1 if path is None else names.number(str(path))
    return known, record if type(record) is int else -1


def columns_of(found: Followed, stages: Names, files: Names) -> Callable[[Any], Columns]:
    """From items that tell where they come from to columns."""
    if found.codes is not None:
        return _of_codes(found.codes, stages, files)

    def columns(items: list[Any]) -> Columns:
        rows = [
            (number, stages.number(each.stage), each.epoch, each.place, *_named(each.row, files))
            for number, item in enumerate(items)
            for each in found.origins(item)
        ]
        return Columns(*np.array(rows, np.int64).reshape(-1, len(Columns._fields)).T)

    return columns


def _of_codes(codes: Codes, stages: Names, files: Names) -> Callable[[Any], Columns]:
    numbers = stages.numbers(source.stage for source in codes.sources)
    finders = [_finder(source.reader, files) for source in codes.sources]

    def columns(items: list[Any] | Column) -> Columns:
        found = leaves(items)
        source, epoch, place = codes.decoded(found.codes)
        if len(finders) == 1:
            return Columns(found.item, numbers[source], epoch, place, *finders[0](place))
        file, record = _unknown(place), _unknown(place)
        for number in np.unique(source).tolist():
            mine = source == number
            file[mine], record[mine] = finders[number](place[mine])
        return Columns(found.item, numbers[source], epoch, place, file, record)

    return columns

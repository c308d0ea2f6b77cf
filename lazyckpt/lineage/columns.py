"""Origins as columns, with files and records: from codes, or from items that carry them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.frames import is_reader
from lazyckpt.lineage.coded import Codes, leaves
from lazyckpt.origins import Origin, origins

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


class Files:
    """Finds the files and records of places in data."""

    def __init__(self, data: Any, names: Names) -> None:
        self._data, self._names = data, names
        self._numbers: Column | None = None

    def find(self, places: Column) -> tuple[Column, Column]:
        """Of each place the file and the record in it, -1 where the data don't tell."""
        if not is_reader(self._data):
            return _unknown(places), _unknown(places)
        many = getattr(self._data, "locate_many", None)
        if many is None:
            return self._one_by_one(places)
        if self._numbers is None:
            self._numbers = np.append(self._names.numbers(self._data.paths), -1)
        files, records = many(places)
        return self._numbers[files], records

    def _one_by_one(self, places: Column) -> tuple[Column, Column]:
        found = [named(self._data.locate(place), self._names) for place in places.tolist()]
        pairs = np.array(found, np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]


def _unknown(places: Column) -> Column:
    return np.full(len(places), -1)


def named(row: Any, names: Names) -> tuple[int, int]:
    """The file and the record that data tell of an item."""
    path = row if isinstance(row, str) else getattr(row, "path", None)
    record = getattr(row, "record", None)
    known = -1 if path is None else names.number(str(path))
    return known, record if type(record) is int else -1


def of_codes(codes: Codes, stages: Names, files: Names) -> Callable[[Any], Columns]:
    """From items of codes to columns."""
    numbers = stages.numbers(source.stage for source in codes.sources)
    finders = [Files(source.data, files) for source in codes.sources]

    def columns(items: list[Any] | Column) -> Columns:
        found = leaves(items)
        source, epoch, place = codes.decoded(found.codes)
        if len(finders) == 1:
            return Columns(found.item, numbers[source], epoch, place, *finders[0].find(place))
        file, record = _unknown(place), _unknown(place)
        for number in np.unique(source).tolist():
            mine = source == number
            file[mine], record[mine] = finders[number].find(place[mine])
        return Columns(found.item, numbers[source], epoch, place, file, record)

    return columns


def of_traced(stages: Names, files: Names) -> Callable[[Any], Columns]:
    """From items that come with their origins to columns."""

    def row(number: int, origin: Origin) -> Sequence[int]:
        stage = stages.number(origin.stage)
        return number, stage, origin.epoch, origin.place, *named(origin.row, files)

    def columns(items: list[Any]) -> Columns:
        rows = [
            row(number, origin)
            for number, item in enumerate(items)
            for origin in dict.fromkeys(origins(item))
        ]
        return Columns(*np.array(rows, np.int64).reshape(-1, len(Columns._fields)).T)

    return columns

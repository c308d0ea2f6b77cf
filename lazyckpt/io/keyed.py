"""Rows of a database by the values of a key, which are read once."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import Unfit, checked
from lazyckpt.errors import ArgumentError, SourceChanged
from lazyckpt.io.files import as_files
from lazyckpt.io.rows import RecordError, Rows
from lazyckpt.io.storage import File, is_local

Found = tuple[list[str], list[Sequence[Any]]]  # names of columns, and rows


class KeyedRows(Rows[dict[str, Any]]):
    """Rows of a table or query by lists of their keys. A subclass asks the database.

    Args:
        database: The file.
        query: A table's name, or a SELECT.
        key: The column of the key.
    """

    reader_name: ClassVar[str]
    most: ClassVar[int]  # keys of one query

    def __init__(self, database: Any, query: str, key: str) -> None:
        listed = as_files(database, self.reader_name)
        if len(listed) != 1 or not is_local(listed[0].path):
            raise ArgumentError(
                f"{self.reader_name}: database must be one file of this machine, got {listed!r}"
            )
        self._query = checked(self.reader_name, "query", query, _text)
        self._key = checked(self.reader_name, "key", key, _text)
        is_table = not self._query.split(None, 1)[1:]
        self._from = quoted(self._query) if is_table else f"({self._query})"
        self._keys = self._read_keys(listed[0])
        given = {"query": self._query, "key": self._key}
        super().__init__(self.reader_name, listed, [len(self._keys)], given)

    def ask(self, file: File, query: str, values: Sequence[Any] = ()) -> Found:
        """The names and rows of a query."""
        raise NotImplementedError

    def error_type(self) -> type[Exception]:
        """What the database raises."""
        raise NotImplementedError

    def condition(self, key: str, keys: list[Any]) -> tuple[str, list[Any]]:
        """What says in a query that a column is one of these, and the values for its marks."""
        return f"{key} IN ({', '.join('?' * len(keys))})", keys

    def _read_keys(self, file: File) -> NDArray[np.int64] | list[Any]:
        name = quoted(self._key)
        order = f"SELECT {name} FROM {self._from} ORDER BY {name}"
        try:
            keys = [key for (key,) in self.ask(file, order)[1]]
            known = self.ask(file, f"{self._select} LIMIT 0")[0]
        except self.error_type() as error:
            raise RecordError(f"{file.path}: {error}: {order}") from error
        if self._key.lower() not in ("rowid", *map(str.lower, known[1:])):
            raise ArgumentError(f"{self.reader_name}: no column {self._key!r} in {known[1:]}")
        for number, key in enumerate(keys):
            is_again = number and key == keys[number - 1]
            if key is None or is_again or not isinstance(key, Hashable) or key != key:
                raise ArgumentError(
                    f"{self.reader_name}: key must be of different values, and {key!r} is that "
                    f"of several rows of {file.path}, or of one that has none, "
                    f"got key={self._key!r}"
                )
        if not {*map(type, keys)} <= {int}:
            return keys
        is_small = not keys or (keys[0] >= -(1 << 63) and keys[-1] < 1 << 63)  # they rise
        return np.array(keys, np.int64) if is_small else keys

    @property
    def _select(self) -> str:
        return f"SELECT {quoted(self._key)}, * FROM {self._from}"

    @property
    def source_identity(self) -> dict[str, Any]:
        text = f"{self.files.digest}\n{self._query}\n{self._key}"
        return {"files": 1, "digest": hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}

    def read_rows(self, number: int, records: Sequence[int]) -> list[dict[str, Any]]:
        return [
            row
            for start in range(0, len(records), self.most)
            for row in self._some(number, records[start : start + self.most])
        ]

    def _some(self, number: int, records: Sequence[int]) -> list[dict[str, Any]]:
        keys = [self._keys[record] for record in records]
        keys = [key.item() if isinstance(key, np.generic) else key for key in keys]
        is_one, values = self.condition(quoted(self._key), keys)
        query = f"{self._select} WHERE {is_one}"
        try:
            names, rows = self.ask(self.files[number], query, values)
        except self.error_type() as error:
            if len(records) > 1:  # of one of them
                return [row for record in records for row in self._some(number, [record])]
            raise self.error(number, records[0], error) from error
        found = {row[0]: dict(zip(names[1:], row[1:], strict=True)) for row in rows}
        for key in keys:
            if key not in found:
                raise SourceChanged(f"{self.files[number].path}: the row of key {key!r} is gone")
        return [dict(found[key]) for key in keys]

    def span(self, number: int, record: int) -> tuple[int, int]:
        return 0, self.files[number].size


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Unfit("a str that isn't empty")
    return value.strip().removesuffix(";")

"""`read_sqlite`: rows of an SQLite database by number."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import Unfit, checked
from lazyckpt.errors import ArgumentError, SourceChanged
from lazyckpt.io.files import as_files
from lazyckpt.io.rows import RecordError, Rows
from lazyckpt.io.storage import File, changed, is_local, storage_of

_MOST = 500  # keys of one query


class _Connection:
    """An open database, which is only read; closed when nobody needs it any more."""

    def __init__(self, file: File) -> None:
        self.process, self.file = os.getpid(), file
        uri = f"{Path(file.path.removeprefix('file://')).as_uri()}?mode=ro"
        self.database = sqlite3.connect(uri, uri=True, check_same_thread=False)

    def __del__(self) -> None:
        # one from before a fork is the other process's
        if getattr(self, "process", 0) == os.getpid() and hasattr(self, "database"):
            with suppress(sqlite3.Error):
                self.database.close()


_open = threading.local()


def _execute(file: File, query: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
    """A query, on this thread's connection in this process, if nothing has changed."""
    now = storage_of(file.path).stat(file.path)
    if now != file:
        raise changed(file, now)
    log = f"{file.path.removeprefix('file://')}-wal"
    if os.path.exists(log) and os.path.getsize(log):
        raise SourceChanged(
            f"{file.path} has changes in its write-ahead log, {log}, by which no one can tell "
            "what it was; write them into it by PRAGMA wal_checkpoint(TRUNCATE)"
        )
    found: _Connection | None = getattr(_open, "connection", None)
    if found is None or (found.process, found.file) != (os.getpid(), file):
        found = _open.connection = _Connection(file)
    return found.database.execute(query, values)


class _SqlRows(Rows[dict[str, Any]]):
    """Rows of a table or query, by the values of a key, which are read once."""

    def __init__(self, database: Any, query: str, key: str) -> None:
        listed = as_files(database, "read_sqlite")
        if len(listed) != 1 or not is_local(listed[0].path):
            raise ArgumentError(
                f"read_sqlite: database must be one file of this machine, got {listed!r}"
            )
        self._query = checked("read_sqlite", "query", query, _text)
        self._key = checked("read_sqlite", "key", key, _text)
        is_table = not self._query.split(None, 1)[1:]
        self._from = _quoted(self._query) if is_table else f"({self._query})"
        self._keys = self._read_keys(listed[0])
        given = {"query": self._query, "key": self._key}
        super().__init__("read_sqlite", listed, [len(self._keys)], given)

    def _read_keys(self, file: File) -> NDArray[np.int64] | list[Any]:
        name = _quoted(self._key)
        order = f"SELECT {name} FROM {self._from} ORDER BY {name}"
        try:
            keys = [key for (key,) in _execute(file, order)]
            known = _names(_execute(file, f"{self._select} LIMIT 0"))
        except sqlite3.Error as error:
            raise RecordError(f"{file.path}: {error}: {order}") from error
        if self._key.lower() not in ("rowid", *map(str.lower, known[1:])):
            raise ArgumentError(f"read_sqlite: no column {self._key!r} in {known[1:]}")
        for number, key in enumerate(keys):
            if key is None or (number and key == keys[number - 1]):
                raise ArgumentError(
                    f"read_sqlite: key must be of different values, and {key!r} is that "
                    f"of several rows of {file.path}, or of one that has none, "
                    f"got key={self._key!r}"
                )
        return np.array(keys, np.int64) if {*map(type, keys)} <= {int} else keys

    @property
    def _select(self) -> str:
        return f"SELECT {_quoted(self._key)}, * FROM {self._from}"

    @property
    def source_identity(self) -> dict[str, Any]:
        text = f"{self.files.digest}\n{self._query}\n{self._key}"
        return {"files": 1, "digest": hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}

    def read_rows(self, number: int, records: Sequence[int]) -> list[dict[str, Any]]:
        return [
            row
            for start in range(0, len(records), _MOST)
            for row in self._some(number, records[start : start + _MOST])
        ]

    def _some(self, number: int, records: Sequence[int]) -> list[dict[str, Any]]:
        keys = [self._keys[record] for record in records]
        keys = [key.item() if isinstance(key, np.generic) else key for key in keys]
        marks = ", ".join("?" * len(keys))
        query = f"{self._select} WHERE {_quoted(self._key)} IN ({marks})"
        try:
            cursor = _execute(self.files[number], query, keys)
            names, rows = _names(cursor), cursor.fetchall()
        except sqlite3.Error as error:
            if len(records) > 1:  # of one of them
                return [row for record in records for row in self._some(number, [record])]
            raise self.error(number, records[0], error) from error
        found = {row[0]: dict(zip(names[1:], row[1:], strict=True)) for row in rows}
        for key, record in zip(keys, records, strict=True):
            if key not in found:
                raise self.error(number, record, f"the row of key {key!r} is gone")
        return [dict(found[key]) for key in keys]

    def span(self, number: int, record: int) -> tuple[int, int]:
        return 0, self.files[number].size


def _names(cursor: sqlite3.Cursor) -> list[str]:
    """The columns of what a query finds."""
    return [column[0] for column in cursor.description]


def _quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Unfit("a str that isn't empty")
    return value.strip().removesuffix(";")


def read_sqlite(database: Any, query: str, *, key: str = "rowid") -> Rows[dict[str, Any]]:
    """The rows of a table or query of an SQLite database, by number, as dicts.

    They come in the order of a key that no two share. Keys are read once; rows by lists of
    their keys, never by OFFSET, so that any order costs the same where the key is indexed.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Args:
        database: The file.
        query: A table's name, or a SELECT whose columns have names of their own.
        key: The column of the key; by default that which SQLite has for each table.

    Raises:
        ArgumentError: The key is missing in a row, or that of several; or the database is
            not on this machine.
        RecordError: The file is no database, or has no such table or column.
        SourceChanged: When a file is read that changed since, or has a write-ahead log that isn't
            empty.

    State:
        The epoch and a count of rows; a digest of the file, the query and the key.

    Resume:
        Re-reads the keys.

    Memory:
        The keys: 8 bytes each, where all are ints; other ones as Python has them.

    >>> import lazyckpt as lz
    >>> import sqlite3
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     connection = sqlite3.connect(f"{folder}/a.db")
    ...     _ = connection.execute("CREATE TABLE words (word TEXT)")
    ...     _ = connection.executemany("INSERT INTO words VALUES (?)", [("to",), ("be",)])
    ...     connection.commit(), connection.close()
    ...     list(lz.io.read_sqlite(f"{folder}/a.db", "words"))
    (None, None)
    [{'word': 'to'}, {'word': 'be'}]
    """
    return _SqlRows(database, query, key)

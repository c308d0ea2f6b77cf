"""`read_sqlite`: rows of an SQLite database by number, looked up by the values of a key."""

from __future__ import annotations

import os
import sqlite3
import threading
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np

from lazyckpt.core.checks import Unfit, brief, checked
from lazyckpt.errors import ArgumentError, SourceChanged, StorageError
from lazyckpt.io.cache import short_digest
from lazyckpt.io.files import as_files
from lazyckpt.io.rows import RecordError, Rows
from lazyckpt.io.storage import File, check_unchanged, is_local, storage_of

_MOST = 500  # most keys per query
_HEADER = 100  # bytes with a counter that changes when the database is written
_SIZE = "SELECT page_size * page_count FROM pragma_page_size, pragma_page_count"
_NAMED = "SELECT 1 FROM sqlite_master WHERE name = ? COLLATE NOCASE"
_NO_ROWID = (
    "; views, queries and tables made WITHOUT ROWID have no rowid: pass key, the name of a column "
    "with unique values"
)
_UNREADABLE = sqlite3.Error, UnicodeDecodeError
_AWAY = {  # errors if another process has locked the database, or its disk fails
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
}  # fmt: skip


class _Connection:
    """An open read-only database, closed when it is garbage-collected."""

    def __init__(self, process: int, file: File, mode: str) -> None:
        self.key = process, file, mode
        uri = f"{Path(file.path.removeprefix('file://')).as_uri()}?{mode}"
        self.database = sqlite3.connect(uri, uri=True, check_same_thread=False)
        finalize(self, self.database.close)


_open = threading.local()


def _ask(
    file: File, query: str, values: Sequence[Any] = (), mode: str = "immutable=1"
) -> tuple[list[str], list[Any]]:
    """Return the column names and rows of a query, using this thread's connection in this process.

    After the query the file is checked, so writes by other processes until then are noticed. SQLite
    needn't check for them or lock the file, except while keys are read with "mode=ro".
    """
    found: _Connection | None = getattr(_open, "connection", None)
    key = os.getpid(), file, mode
    try:
        if found is None or found.key != key:
            found = _open.connection = _Connection(*key)
        cursor = found.database.execute(query, values)
        names, rows = [column[0] for column in cursor.description], cursor.fetchall()
    except sqlite3.Error as error:
        _check(file)
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _AWAY:
            raise StorageError(f"{file.path} can't be read: {error}") from error
        raise
    _check(file)
    return names, rows


def _check(file: File) -> None:
    check_unchanged(file)
    log = f"{file.path.removeprefix('file://')}-wal"
    with suppress(FileNotFoundError):
        if os.stat(log).st_size:
            raise SourceChanged(
                f"{file.path} has changes in its write-ahead log, {log}, so its earlier content "
                "is unknown; merge them with PRAGMA wal_checkpoint(TRUNCATE)"
            )


class _SqliteRows(Rows[dict[str, Any]]):
    def __init__(self, database: Any, query: str, key: str) -> None:
        listed = as_files(database, "read_sqlite")
        file = listed[0]
        if len(listed) != 1 or not is_local(file.path):
            raise ArgumentError(
                f"read_sqlite: database must be one file on this machine, got {listed!r}"
            )
        self._query = checked("read_sqlite", "query", query, _text)
        self._key = checked("read_sqlite", "key", key, _text)
        (size,) = self._asked(file, _SIZE)[0]
        if size > file.size:
            raise RecordError(f"{file.path}: it is cut: it has {file.size:,} of {size:,} bytes")
        is_word = not self._query.split(None, 1)[1:]
        is_table = is_word or self._asked(file, _NAMED, self._query)
        table = _quoted(self._query) if is_table else f"({self._query}\n)"
        self._select = f"SELECT {_quoted(self._key)}, * FROM {table}"
        order = f"SELECT {_quoted(self._key)} FROM {table} ORDER BY 1"
        found = [key for (key,) in self._asked(file, order)]
        known: set[Any] = {None}
        for each in found:
            if each in known:
                hint = _NO_ROWID * (self._key == "rowid")
                raise ArgumentError(
                    f"read_sqlite: values of key must be unique and not NULL, but {brief(each)} is "
                    f"repeated or missing in {file.path}, got key={self._key!r}{hint}"
                )
            known.add(each)
        is_small = {*map(type, found)} <= {int}
        self._keys = np.array(found, np.int64 if is_small else object)
        given = {"query": self._query, "key": self._key}
        super().__init__("read_sqlite", listed, [len(found)], given)
        header = storage_of(file.path).read(file, 0, _HEADER)
        self.sums = [zlib.crc32(repr(found).encode(), zlib.crc32(header))]

    def _asked(self, file: File, query: str, *values: str) -> list[Any]:
        """Return the rows of a query that runs before rows are read."""
        try:
            return _ask(file, query, values, mode="mode=ro")[1]
        except _UNREADABLE as error:
            hint = _NO_ROWID * ("no such column: rowid" in f"{error}")
            reason = f"{error}: {query}; key={self._key!r}{hint}"
            raise RecordError(f"{file.path}: {reason}") from error

    @property
    def source_identity(self) -> dict[str, Any]:
        return {**super().source_identity, "query": short_digest(self._query, self._key)[:16]}

    def read_rows(self, number: int, records: Sequence[int]) -> list[dict[str, Any]]:
        parts = (records[start : start + _MOST] for start in range(0, len(records), _MOST))
        return [row for part in parts for row in self._some(number, part)]

    def _some(self, number: int, records: Sequence[int]) -> list[dict[str, Any]]:
        keys = self._keys[np.asarray(records)].tolist()
        query = f"{self._select} WHERE {_quoted(self._key)} IN ({', '.join('?' * len(keys))})"
        try:
            names, rows = _ask(self.files[number], query, keys)
        except _UNREADABLE as error:
            if len(records) > 1:  # to find the bad one
                return [row for record in records for row in self._some(number, [record])]
            raise self.error(number, records[0], error) from error
        found = {key: row for key, *row in rows}
        for key, record in zip(keys, records, strict=True):
            if key not in found:
                raise self.error(number, record, f"the row of key {key!r} is gone")
        return [dict(zip(names[1:], found[key], strict=True)) for key in keys]

    def span(self, number: int, record: int) -> tuple[int, int]:
        return 0, self.files[number].size


def _quoted(name: str) -> str:
    """Quote a name for SQL with backticks, because SQLite may take one in `"` for a string."""
    return f"`{name.replace('`', '``')}`"


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Unfit("a str that isn't empty")
    return value.strip().removesuffix(";")


def read_sqlite(database: Any, query: str, *, key: str = "rowid") -> Rows[dict[str, Any]]:
    """Read the rows of a table or query of an SQLite database, by number, as dicts.

    Rows are in the order of a key with unique values. Keys are read once. Rows are then looked up
    by lists of keys, never by OFFSET: if the key is indexed, any order costs the same. The database
    is locked only while keys are read. If it is written after that, reading the next row raises an
    error. SQLite keeps no checksums.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Args:
        database: The file.
        query: Name of a table or view, or a SELECT whose columns have different names.
        key: Column of the key. The default, `rowid`, doesn't exist in views, in queries and in
            tables created WITHOUT ROWID.

    Raises:
        ArgumentError: If the key is missing in a row or not unique, or if the database is not on
            this machine.
        RecordError: If the file is not a database, or has no such table or column.
        StorageError: If the database is locked while keys are read, or can't be opened.
        SourceChanged: If the file has changed when rows are read, or has a write-ahead log that
            isn't empty.

    State:
        The epoch, a count of rows, and a digest of the file, the query and the key.

    Resume:
        Re-reads the keys.

    Memory:
        The keys: 8 bytes each if all are ints; other keys as Python objects.

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
    return _SqliteRows(database, query, key)

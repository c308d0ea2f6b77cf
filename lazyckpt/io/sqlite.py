"""`read_sqlite`: rows of an SQLite database by number."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lazyckpt.errors import SourceChanged
from lazyckpt.io.keyed import Found, KeyedRows
from lazyckpt.io.rows import Rows
from lazyckpt.io.storage import File, check_unchanged


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
    check_unchanged(file)
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


class _SqliteRows(KeyedRows):
    reader_name = "read_sqlite"
    most = 500

    def ask(self, file: File, query: str, values: Sequence[Any] = ()) -> Found:
        cursor = _execute(file, query, values)
        return [column[0] for column in cursor.description], cursor.fetchall()

    def error_type(self) -> type[Exception]:
        return sqlite3.Error


def read_sqlite(database: Any, query: str, *, key: str = "rowid") -> Rows[dict[str, Any]]:
    """The rows of a table or query of an SQLite database, by number, as dicts.

    They come in the order of a key that no two share. Keys are read once; rows by lists of
    their keys, never by OFFSET, so that any order costs the same where the key is indexed.

    Args:
        database: The file.
        query: A table's name, or a SELECT whose columns have names of their own.
        key: The column of the key; by default that which SQLite has for each table.

    Returns:
        The rows, data for `source` and for `|`.

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

    Random access:
        Yes.

    Rank-free:
        Yes.

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
    return _SqliteRows(database, query, key)

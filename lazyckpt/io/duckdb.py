"""`read_duckdb`: rows of a DuckDB database by number."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from lazyckpt.io.keyed import Found, KeyedRows
from lazyckpt.io.rows import Rows
from lazyckpt.io.storage import File, changed, optional_module, storage_of


def _module() -> Any:
    return optional_module("duckdb", "duckdb", "read_duckdb")


class _Connection:
    """An open database, which is only read; without threads, which a fork would not have."""

    def __init__(self, file: File) -> None:
        now = storage_of(file.path).stat(file.path)
        if now != file:
            raise changed(file, now)
        self.process, self.file = os.getpid(), file
        # each has an instance of its own: those that a path opens are shared, by forks too
        self.database = _module().connect(":memory:", config={"threads": "1"})
        path = now.path.replace("'", "''")
        self.database.execute(f"ATTACH '{path}' AS read_duckdb (TYPE duckdb, READ_ONLY)")
        self.database.execute("USE read_duckdb")


_open = threading.local()
_forked: list[_Connection] = []  # of the process before a fork, which must not close them


def _connection(file: File) -> Any:
    """This thread's connection in this process."""
    found: _Connection | None = getattr(_open, "connection", None)
    if found is not None and found.process != os.getpid():
        _forked.append(found)
        found = None
    if found is None or found.file != file:
        found = _open.connection = _Connection(file)
    return found.database


class _DuckdbRows(KeyedRows):
    reader_name = "read_duckdb"
    most = 5000

    def ask(self, file: File, query: str, values: Sequence[Any] = ()) -> Found:
        found = _connection(file).execute(query, list(values))
        return [column[0] for column in found.description], found.fetchall()

    def error_type(self) -> type[Exception]:
        found: type[Exception] = _module().Error
        return found

    def condition(self, key: str, keys: list[Any]) -> tuple[str, list[Any]]:
        if len(keys) == 1:
            return f"{key} = ?", keys
        return f"{key} IN (SELECT unnest(?))", [keys]  # planned in a fifth of the time of marks


def read_duckdb(database: Any, query: str, *, key: str = "rowid") -> Rows[dict[str, Any]]:
    """The rows of a table or query of a DuckDB database, by number, as dicts.

    They come in the order of a key that no two share. Keys are read once; rows by lists of
    their keys, never by OFFSET. A query of many keys is one pass over their column: read
    many rows at once, or a `shuffle` of batches.

    Args:
        database: The file.
        query: A table's name, or a SELECT whose columns have names of their own.
        key: The column of the key; by default that which DuckDB has for each table.

    Returns:
        The rows, data for `source` and for `|`.

    Raises:
        ArgumentError: The key is missing in a row, or that of several; or the database is
            not on this machine.
        RecordError: The file is no database, has no such table or column, or another process
            writes to it.
        SourceChanged: When a file is read that changed since, or a row is gone.
        PipelineError: DuckDB is missing.

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

    >>> import duckdb
    >>> import lazyckpt as lz
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with duckdb.connect(f"{folder}/a.duckdb") as connection:
    ...         _ = connection.execute("CREATE TABLE words (word TEXT)")
    ...         _ = connection.execute("INSERT INTO words VALUES ('to'), ('be')")
    ...     list(lz.io.read_duckdb(f"{folder}/a.duckdb", "words"))
    [{'word': 'to'}, {'word': 'be'}]
    """
    _module()
    return _DuckdbRows(database, query, key)

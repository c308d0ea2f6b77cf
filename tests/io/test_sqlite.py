"""SQLite: rows by lists of keys."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.io.storage import storage_of
from tests.io import formats
from tests.io.cases import folder


def database(rows: list[tuple[Any, ...]], columns: str = "k, v") -> Path:
    path = folder() / "a.db"
    path.write_bytes(formats.database(rows, columns))
    return path


ROWS = 'SELECT * FROM "some rows"'


def test_many_rows_at_once() -> None:
    reader = lz.io.read_sqlite(database([(n, n) for n in range(3000)]), ROWS, key="k")
    found = [row["k"] for batch in reader | lz.shuffle(seed=0) | lz.batch(1700) for row in batch]
    assert sorted(found) == list(range(3000))


def test_a_state_knows_query_and_key() -> None:
    path = database([(1, 4), (2, 3)])
    state = lz.init(lz.source(lz.io.read_sqlite(path, ROWS, key="k")))
    with pytest.raises(lz.StateMismatch, match="digest"):
        lz.run(lz.source(lz.io.read_sqlite(path, ROWS, key="v")), state)


def test_changes_in_a_write_ahead_log_are_an_error() -> None:
    path = database([(n, n) for n in range(9)])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        reader = lz.io.read_sqlite(path, ROWS, key="k")
        assert reader[3]["v"] == 3
        connection.execute('UPDATE "some rows" SET v = 7')
        for read in (lambda: reader[3], lambda: lz.io.read_sqlite(path, ROWS, key="k")):
            with pytest.raises(lz.SourceChanged, match=r"write-ahead log, .*a\.db-wal.*TRUNCATE"):
                read()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with pytest.raises(lz.SourceChanged, match="changed since it was listed"):
            reader[3]
        assert lz.io.read_sqlite(path, ROWS, key="k")[3]["v"] == 7


def test_nothing_is_written() -> None:
    path = database([(1, 1)])
    reader = lz.io.read_sqlite(path, ROWS, key="k")
    os.chmod(path, 0o444)
    assert reader[0] == {"k": 1, "v": 1}
    assert [each.name for each in path.parent.iterdir()] == ["a.db"]


def test_a_database_that_is_held_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    path = database([(1, 1)])
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0))
    reader = lz.io.read_sqlite(path, ROWS, key="k")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(
            lz.errors.StorageError, match=r"a\.db can't be read: database is locked"
        ):
            lz.io.read_sqlite(path, ROWS, key="k")
        assert list(reader) == [{"k": 1, "v": 1}]  # as nothing is written yet
        connection.execute("ROLLBACK")
    path.unlink()
    with pytest.raises(lz.SourceChanged, match=r"a\.db was removed since it was listed"):
        reader[0]


def test_what_is_written_while_a_query_runs_is_noticed() -> None:
    path = database([(1, "old"), (2, "old")])
    reader = lz.io.read_sqlite(path, ROWS, key="k")
    stat, writer = storage_of(str(path)).stat, sqlite3.connect(path)

    def written_behind(found: str) -> lz.io.File:
        with writer:
            writer.execute("UPDATE \"some rows\" SET v = 'new'")
        return stat(found)

    with closing(writer), pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage_of(str(path)), "stat", written_behind)
        with pytest.raises(lz.SourceChanged, match="changed since it was listed"):
            reader[0]

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
from tests.io.cases import check_reader, folder


def database(rows: list[tuple[Any, ...]], columns: str = "k, v") -> Path:
    path = folder() / "a.db"
    path.write_bytes(formats.database(rows, columns))
    return path


ROWS = 'SELECT * FROM "some rows"'


def test_a_table_has_a_key_of_its_own() -> None:
    path = database([(9, "a"), (8, "b")])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('ALTER TABLE "some rows" RENAME TO rows')
    reader = lz.io.read_sqlite(path, "rows")
    assert list(reader) == [{"k": 9, "v": "a"}, {"k": 8, "v": "b"}]
    assert lz.trace(lz.source(reader), 1)[0].row[:2] == (str(path), 1)


def test_many_rows_at_once() -> None:
    reader = lz.io.read_sqlite(database([(n, n) for n in range(3000)]), ROWS, key="k")
    found = [row["k"] for batch in reader | lz.shuffle(seed=0) | lz.batch(1700) for row in batch]
    assert sorted(found) == list(range(3000))


def test_a_state_knows_query_and_key() -> None:
    path = database([(1, 4), (2, 3)])
    state = lz.init(lz.source(lz.io.read_sqlite(path, ROWS, key="k")))
    with pytest.raises(lz.StateMismatch, match="digest"):
        lz.run(lz.source(lz.io.read_sqlite(path, ROWS, key="v")), state)


@pytest.mark.parametrize("rows", [[(1, 1), (1, 2)], [(1, 1), (None, 2)]])
def test_a_key_that_is_none_is_refused(rows: Any) -> None:
    with pytest.raises(lz.ArgumentError, match=r"key must be of different values, and (1|None) is"):
        lz.io.read_sqlite(database(rows), ROWS, key="k")


def test_what_is_not_there_is_named() -> None:
    path = database([(1, 1)])
    with pytest.raises(lz.io.RecordError, match=r"a\.db: no such table: other: SELECT"):
        lz.io.read_sqlite(path, "other")
    with pytest.raises((lz.ArgumentError, lz.io.RecordError), match=r"no (such )?column"):
        lz.io.read_sqlite(path, ROWS, key="other")
    path.write_bytes(b"no database at all" * 99)
    with pytest.raises(lz.io.RecordError, match=r"a\.db: file is not a database"):
        lz.io.read_sqlite(path, ROWS, key="k")
    with pytest.raises(FileNotFoundError):
        lz.io.read_sqlite(path.parent / "no.db", ROWS)
    with pytest.raises(lz.ArgumentError, match="query must be a str that isn't empty"):
        lz.io.read_sqlite(path, " ")


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


def test_what_has_no_key_of_its_own_needs_one() -> None:
    path = folder() / "a.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (k TEXT PRIMARY KEY, v) WITHOUT ROWID")
        connection.execute("INSERT INTO t VALUES ('a', 1)")
        connection.execute("CREATE VIEW seen AS SELECT v, k FROM t")
    with pytest.raises(lz.io.RecordError, match=r"a\.db: no such column: rowid: .*key='rowid'"):
        lz.io.read_sqlite(path, "t")
    with pytest.raises(lz.PipelineError, match=r"a\.db.*key='rowid'"):
        lz.io.read_sqlite(path, "seen")
    check_reader(lz.io.read_sqlite(path, "t", key="k"), [{"k": "a", "v": 1}])
    check_reader(lz.io.read_sqlite(path, "seen", key="k"), [{"v": 1, "k": "a"}])
    check_reader(lz.io.read_sqlite(path, "SELECT v FROM t -- all", key="v"), [{"v": 1}])


def test_keys_of_several_types_are_as_they_are() -> None:
    keys = [-(2**63), 1, 1.5, 2.0**53, 2**53 + 1, 2**63 - 1, "1", "A", "a", b"1"]
    rows = [{"k": key, "v": number} for number, key in enumerate(keys)]
    path = database([tuple(row.values()) for row in rows[::-1]])
    check_reader(lz.io.read_sqlite(path, ROWS, key="k"), rows)


def test_equal_keys_are_found_wherever_they_sort() -> None:
    path = database([("a", 1), ("A", 2), ("a", 3)], "k TEXT COLLATE NOCASE, v")
    with pytest.raises(lz.ArgumentError, match="key must be of different values, and 'a' is"):
        lz.io.read_sqlite(path, ROWS, key="k")


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
    with pytest.raises(lz.SourceChanged, match=r"a\.db is gone since it was listed"):
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

"""DuckDB: rows by lists of keys."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from tests.io.cases import check_reader, folder

FEW = settings(max_examples=max(2, settings.default.max_examples // 50))
KEYS = {
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "HUGEINT": st.integers(-(2**100), 2**100),
    "VARCHAR": st.text("abcÄ'\"", max_size=3),
    "DATE": st.dates(),
    "UUID": st.uuids(),
}
ROWS = 'SELECT * FROM "some rows"'


def database(rows: list[tuple[Any, Any]], key: str = "INTEGER", value: str = "VARCHAR") -> Path:
    path = folder() / "it's a.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f'CREATE TABLE "some rows" (k {key}, v {value})')
        if rows:
            connection.executemany('INSERT INTO "some rows" VALUES (?, ?)', rows)
    return path


@FEW
@given(data=st.data(), kind=st.sampled_from(sorted(KEYS)))
def test_rows_keep_all_laws(data: st.DataObject, kind: str) -> None:
    row = st.tuples(KEYS[kind], st.none() | st.text(max_size=3))
    rows = data.draw(st.lists(row, max_size=6, unique_by=lambda row: row[0]))
    reader = lz.io.read_duckdb(database(rows, kind), ROWS, key="k")
    ordered = sorted(rows, key=lambda row: row[0].encode() if isinstance(row[0], str) else row[0])
    check_reader(reader, [{"k": k, "v": v} for k, v in ordered])


def test_a_table_has_a_key_of_its_own() -> None:
    path = database([(9, "a"), (8, "b")])
    with duckdb.connect(str(path)) as connection:
        connection.execute('CREATE TABLE rows AS SELECT * FROM "some rows"')
    reader = lz.io.read_duckdb(path, "rows")
    assert list(reader) == [{"k": 9, "v": "a"}, {"k": 8, "v": "b"}]
    assert lz.trace(lz.source(reader), 1)[0].row[:2] == (str(path), 1)


def test_queries_join_and_choose() -> None:
    path = database([(n, str(n % 3)) for n in range(9)])
    query = 'SELECT v, count(*) AS n, list(k ORDER BY k) AS ks FROM "some rows" GROUP BY v'
    reader = lz.io.read_duckdb(path, query, key="v")
    assert reader[1] == {"v": "1", "n": 3, "ks": [1, 4, 7]}
    assert len(lz.io.read_duckdb(path, f"{ROWS} WHERE k > 4;", key="k")) == 4


def test_many_rows_at_once() -> None:
    path = folder() / "a.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT i AS k FROM range(12000) r(i)")
    reader = lz.io.read_duckdb(path, "t", key="k")
    found = [row["k"] for batch in reader | lz.shuffle(seed=0) | lz.batch(7000) for row in batch]
    assert sorted(found) == list(range(12000))


def test_a_state_knows_query_and_key() -> None:
    path = database([(1, "4"), (2, "3")])
    state = lz.init(lz.source(lz.io.read_duckdb(path, ROWS, key="k")))
    with pytest.raises(lz.StateMismatch, match="digest"):
        lz.run(lz.source(lz.io.read_duckdb(path, ROWS, key="v")), state)


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([(1, "1"), (1, "2")], "INTEGER"),
        ([(1, "1"), (None, "2")], "INTEGER"),
        ([([1], "1")], "INTEGER[]"),
        ([(float("nan"), "1")], "DOUBLE"),
    ],
)
def test_a_key_that_is_none_is_refused(rows: Any, kind: str) -> None:
    with pytest.raises(lz.ArgumentError, match="key must be of different values, and "):
        lz.io.read_duckdb(database(rows, kind), ROWS, key="k")


def test_what_is_not_there_is_named() -> None:
    path = database([(1, "1")])
    with pytest.raises(lz.io.RecordError, match=r"a\.duckdb: .* other does not exist"):
        lz.io.read_duckdb(path, "other")
    with pytest.raises(lz.io.RecordError, match=r"\"other\" not found"):
        lz.io.read_duckdb(path, ROWS, key="other")
    path.write_bytes(b"no database at all" * 999)
    with pytest.raises(lz.io.RecordError, match=r"a\.duckdb: .*not a valid DuckDB database file"):
        lz.io.read_duckdb(path, ROWS, key="k")
    with pytest.raises(lz.ArgumentError, match="query must be a str that isn't empty"):
        lz.io.read_duckdb(path, " ")
    with pytest.raises(lz.ArgumentError, match="database must be one file of this machine"):
        lz.io.read_duckdb([path, __file__], "rows")


def test_a_database_that_changed_is_named() -> None:
    path = database([(n, str(n)) for n in range(9)])
    reader = lz.io.read_duckdb(path, ROWS, key="k")
    os.utime(path, ns=(1, 1))
    lz.io.read_duckdb(database([]), ROWS, key="k")  # which is open now
    with pytest.raises(lz.SourceChanged, match=r"a\.duckdb changed since it was listed"):
        reader[4]


def test_nothing_is_written() -> None:
    path = database([(1, "1")])
    with pytest.raises(lz.io.RecordError, match="DELETE"):
        lz.io.read_duckdb(path, 'DELETE FROM "some rows" RETURNING *', key="k")
    assert lz.io.read_duckdb(path, ROWS, key="k")[0] == {"k": 1, "v": "1"}
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("executor", [lz.threads(3), lz.processes(2)], ids=str)
def test_executors_give_the_rows(executor: Any) -> None:
    reader = lz.io.read_duckdb(database([(n, str(n)) for n in range(99)]), ROWS, key="k")
    pipeline = reader | lz.shuffle(seed=0) | lz.map(dict)
    expected = list(pipeline)
    with lz.run(pipeline, executor=executor) as run:
        assert list(run) == expected


def test_a_fork_has_a_connection_of_its_own() -> None:
    reader = lz.io.read_duckdb(database([(n, str(n)) for n in range(9)]), ROWS, key="k")
    if not (child := os.fork()):
        os._exit(int(reader[7]["v"]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert reader[8]["v"] == "8"

"""Rows seen, as a Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import lazyckpt as lz
from tests.io.cases import written


def test_all_rows_are_in_it(tmp_path: Path) -> None:
    rows = lz.io.read_jsonl(written([b"0\n1\n", b"2\n3\n4\n"], ".jsonl"))
    mixed = lz.mix([lz.source(rows) | lz.repeat(), lz.count() | lz.take(10**6)], [1, 1], seed=0)
    pipeline = mixed | lz.batch(3)
    run = lz.run(pipeline)
    batches = [next(run) for _ in range(3000)]
    found = lz.seen(pipeline, run.state)
    path = tmp_path / "seen.parquet"
    assert found.to_parquet(path, row_group=1000) == 9000
    file = parquet.ParquetFile(path)
    assert 1 < file.num_row_groups <= 9
    table = file.read()
    assert table.column_names == ["item", "stage", "epoch", "index", "file", "record"]
    assert table["item"].to_pylist() == [n for n in range(3000) for _ in range(3)]
    assert table["index"].to_pylist() == [x for batch in batches for x in batch]
    for row in table.to_pylist()[::97]:
        is_row = row["stage"] == "1[0].1"
        assert (row["file"] is not None, row["record"] is not None) == (is_row, is_row)
        assert not is_row or rows.locate(row["index"])[:2] == (row["file"], row["record"])
    counts: Any = table.group_by(["stage", "file"]).aggregate([([], "count_all")]).to_pylist()
    assert {(row["stage"], row["file"]): row["count_all"] for row in counts} == found.counts()


def test_a_file_without_rows_has_columns(tmp_path: Path) -> None:
    pipeline = lz.source(range(3)) | lz.batch(2)
    path = str(tmp_path / "none.parquet")
    assert lz.seen(pipeline, lz.init(pipeline)).to_parquet(path) == 0
    table = parquet.read_table(path)
    assert (table.num_rows, table["index"].type, len(table.column_names)) == (0, pa.int64(), 6)


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    def parsed(text: str) -> bool:
        return int(text) >= 0

    texts = ["1", "2", "3"]
    pipeline = lz.source(texts) | lz.filter(parsed)
    state = lz.state_at(pipeline, 3)
    path = tmp_path / "seen.parquet"
    assert lz.seen(pipeline, state).to_parquet(path) == 3
    before = path.read_bytes()
    texts[2] = "?"
    with pytest.raises(ValueError, match="invalid literal"):
        lz.seen(pipeline, state).to_parquet(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["seen.parquet"]
    with pytest.raises(lz.ArgumentError, match="row_group must be an int >= 1"):
        lz.seen(pipeline, state).to_parquet(path, row_group=0)

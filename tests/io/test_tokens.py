"""Tokens: rows of a length, documents, and what holds them."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.io import tokens
from lazyckpt.io.storage import storage_of
from tests.helpers import traced
from tests.io import formats
from tests.io.cases import folder, written
from tests.io.contents import Contents
from tests.io.formats import saved
from tests.io.laws import put
from tests.io.odd import llm_c


def megatron(files: list[list[list[int]]]) -> lz.io.Files:
    """Documents of one sequence each, with an index next to them."""
    return lz.io.files(f"{put(Contents(formats.megatron(files), []))}/*.bin")


def test_lengths_are_known() -> None:
    documents = [[1, 2, 3], [4], [5, 6]]
    reader = lz.io.read_tokens(megatron([documents]))
    assert reader.lengths.tolist() == [*map(len, documents)]
    plan = lz.plan_packing(reader.lengths, 4, seed=0)
    packed = [row["tokens"][row["segment_ids"] > 0] for row in reader | lz.pack_by_plan(plan)]
    assert sorted(token for row in packed for token in row) == [1, 2, 3, 4, 5, 6]
    windows = lz.io.read_tokens(reader.files, length=3)
    assert windows.lengths.tolist() == [3, 3]


def test_a_row_behind_a_header_says_where_it_is() -> None:
    rows = lz.io.read_tokens(written([llm_c()], ".bin"), length=20, dtype="uint16", offset=1024)
    assert rows.locate(1)[1:] == (1, 1064, 1104)
    assert "dtype='<u2', offset=1024" in repr(rows)


def test_an_npy_without_a_header_is_plain_numbers() -> None:
    files = written([np.arange(10, dtype=np.uint16).tobytes()], ".npy")
    rows = lz.io.read_tokens(files, length=4, dtype="uint16")
    assert [row.tolist() for row in rows] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(lz.io.RecordError, match="pass dtype"):
        lz.io.read_tokens(files, length=4)


def test_a_state_knows_the_index_of_documents() -> None:
    files = megatron([[[1, 2], [3]]])
    state = lz.init(lz.source(lz.io.read_tokens(files)))
    assert lz.init(lz.source(lz.io.read_tokens(files))) == state
    Path(files[0].path).with_suffix(".idx").write_bytes(formats.megatron_index([1, 2]))
    again = lz.source(lz.io.read_tokens(files))
    assert [row.tolist() for row in again] == [[1], [2, 3]]
    with pytest.raises(lz.StateMismatch, match="digest"):
        lz.run(again, state)


def test_rows_are_not_written_to() -> None:
    row = lz.io.read_tokens(
        written([saved(lambda out: np.save(out, np.arange(4)))], ".npy"), length=4
    )[0]
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 1


def test_a_disk_that_fails_is_no_damaged_file(monkeypatch: pytest.MonkeyPatch) -> None:
    files = written([saved(lambda out: np.savez(out, np.arange(4)))], ".npz")

    def fails(*_: object) -> bytes:
        raise lz.errors.StorageError("no answer")

    monkeypatch.setattr(type(storage_of(files[0].path)), "read", fails)
    with pytest.raises(lz.errors.StorageError, match="no answer"):
        lz.io.read_tokens(files, length=2)


@pytest.mark.parametrize("given", [{"length": 10, "stride": 10**6, "dtype": "u1"}, {}], ids=str)
def test_rows_that_are_far_apart_or_large_are_not_read_together(given: dict[str, Any]) -> None:
    """After windows of a few tokens, and a document of one."""
    place, size = folder(), 50_000_000
    with open(f"{place}/large.bin", "wb") as file:
        file.truncate(size)  # of holes, which take no place on disk
    if not given:
        lengths = [1, *[size // 10] * 9, size // 10 - 1]
        index = tokens.megatron_index(np.dtype("u1"), lengths)
        Path(f"{place}/large.idx").write_bytes(index)
    rows = lz.io.read_tokens(f"{place}/large.bin", **given)
    with traced():
        for _ in zip(rows, range(8), strict=False):
            pass
        assert len(rows[5:3:-1]) == 2
        _, peak = tracemalloc.get_traced_memory()
    assert peak < size


def test_a_file_of_20_gb_takes_no_memory() -> None:
    path = f"{folder()}/large.bin"
    size = 20 * 10**9
    with open(path, "wb") as file:
        file.truncate(size)  # of holes, which take no place on disk
    with traced():
        rows = lz.io.read_tokens(path, length=1_000, dtype="uint16")
        pipeline = rows | lz.shuffle(seed=0) | lz.batch(4, collate=lz.stack)
        run = lz.run(pipeline, lz.state_at(pipeline, len(pipeline) // 2))
        assert all(next(run).shape == (4, 1_000) for _ in range(50))
        assert rows[len(rows) - 1].sum() == 0
        _, peak = tracemalloc.get_traced_memory()
    os.remove(path)
    assert len(rows) == size // 2_000
    assert peak < 2_000_000

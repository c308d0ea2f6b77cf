"""Files of tables: how much of them is read, when, and by how many workers."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest

import lazyckpt as lz
from lazyckpt.io.remote import FsspecStorage
from tests.io.tables import FORMS, files_of, read, write


def elsewhere(form: str, count: int = 3, size: int = 1 << 18) -> lz.io.Files:
    """A file of so many groups of so many numbers, which fsspec has in memory."""
    out = io.BytesIO()
    table = pa.table({"n": range(count * size), "f": np.zeros(count * size)})
    write(table, out, form, size)
    fsspec.filesystem("memory").pipe_file(f"/tables/a.{form}", out.getvalue())
    return lz.io.files(f"memory://tables/a.{form}")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of bytes read from remote files; a negative one fails the next read."""
    found: list[int] = []
    read = FsspecStorage.read

    def counted(self: Any, file: Any, start: int, stop: int) -> bytes:
        if found[-1:] == [-1]:
            raise lz.errors.StorageError(f"{file.path} can't be read")
        found.append(stop - start)
        return read(self, file, start, stop)

    monkeypatch.setattr(FsspecStorage, "read", counted)
    return found


@pytest.mark.parametrize("form", FORMS)
def test_a_file_elsewhere_is_indexed_without_its_rows(form: str, reads: list[int]) -> None:
    files = elsewhere(form)
    rows = read(files)
    assert sum(reads) < files[0].size / 10
    assert rows[(1 << 18) + 5]["n"] == (1 << 18) + 5
    assert [*rows.block_starts] == [0, 1 << 18, 2 << 18]
    assert len({rows.locate(start)[2:] for start in rows.block_starts.tolist()}) == 3


@pytest.mark.parametrize("form", ["arrow", "stream"])
def test_of_a_file_elsewhere_only_columns_are_read_that_are_asked_for(
    form: str, reads: list[int]
) -> None:
    files = elsewhere(form)
    rows = lz.io.read_arrow(files, columns=["n"])
    reads.clear()
    assert rows[5] == {"n": 5}
    assert form == "stream" or sum(reads) < files[0].size / 5


@pytest.mark.parametrize("form", FORMS)
def test_a_failure_of_storage_is_not_kept(form: str, reads: list[int]) -> None:
    files = elsewhere(form, 3, 10)
    rows = read(files)
    assert rows[5]["n"] == 5
    reads.append(-1)
    for _ in range(2):
        with pytest.raises(lz.errors.StorageError, match="can't be read"):
            rows[15]
    with pytest.raises(lz.errors.StorageError, match="can't be read"):
        list(lz.run(lz.source(rows), on_error="skip"))
    reads.clear()
    assert [row["n"] for row in rows] == [*range(30)]


@pytest.mark.parametrize("form", FORMS)
def test_a_group_that_is_kept_has_no_rows_of_a_file_that_was_overwritten(form: str) -> None:
    """Mapped bytes are the file's own, also after it has changed."""
    files, others = (files_of(range(start, start + 9), form=form, size=9) for start in (0, 100))
    rows = read(files)
    assert rows[0] == {"x": 0}
    with open(files[0].path, "r+b") as file:
        file.write(Path(others[0].path).read_bytes())
    os.utime(files[0].path, ns=(1, 1))
    for get in (lambda: rows[1], lambda: rows[1:2][0], lambda: next(lz.run(rows | lz.skip(1)))):
        with suppress(lz.SourceChanged):
            assert get() == {"x": 1}


@pytest.mark.parametrize("form", FORMS)
def test_many_workers_share_what_is_kept(form: str) -> None:
    tables = [pa.table({"n": range(100 * n, 100 * n + 100)}) for n in range(6)]
    files = files_of(*tables, form=form, size=10)
    for cache in (0, 500, 1 << 20):
        rows = read(files, cache_bytes=cache)
        for stages in (lz.skip(0), lz.shuffle(seed=1), lz.local_shuffle(3, seed=1)):
            pipeline = rows | stages | lz.map(lambda row: int(row["n"]))
            with lz.run(pipeline, executor=lz.threads(6)) as run:
                assert [*run] == [*pipeline]

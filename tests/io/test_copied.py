"""The same data elsewhere, or written at a different time: states resume, and edits are named."""

from __future__ import annotations

import gzip
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import lazyckpt as lz
from tests.io.cases import folder, written
from tests.io.contents import named
from tests.io.formats import record, saved
from tests.io.laws import opened, put
from tests.io.table import FORMATS


def touched(files: lz.io.Files) -> lz.io.Files:
    for file in files:
        os.utime(file.path, ns=(1, 1))
    return lz.io.files(files.paths)


def stored(content: bytes) -> bytes:
    return gzip.compress(content, 0, mtime=0)


def table(values: Sequence[int]) -> bytes:
    return saved(lambda out: parquet.write_table(pa.table({"n": values}), out, compression="none"))


EDITS: dict[str, tuple[bytes, bytes]] = {  # of formats of which a scan reads what decides
    "text": (b"a\nb\n", b"a\nc\n"),
    "jsonl": (b"[1]\n[2]\n", b"[1]\n[3]\n"),
    "jsonl, gzip": (stored(b"[1]\n[2]\n"), stored(b"[1]\n[3]\n")),
    "csv": (b"a\n1\n2\n", b"a\n1\n3\n"),
    "tfrecord": (record(b"1") + record(b"2"), record(b"1") + record(b"3")),
    "parquet": (table([1, 2, 3]), table([1, 2, 4])),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_of_equal_size_is_refused_and_its_file_is_named(name: str) -> None:
    (content, edited), form = EDITS[name], FORMATS[name]
    place = put(named([content] * 3, form.pattern.removeprefix("*"), []))
    state = lz.state_at(lz.source(opened(form, place)), 1)
    assert (len(edited), edited == content) == (len(content), False)
    path = sorted(Path(place).iterdir())[1]
    path.write_bytes(edited)
    os.utime(path, ns=(1, 1))  # whatever the clock's resolution
    with pytest.raises(lz.StateMismatch, match=f"{path} isn't the file recorded in the state: "):
        lz.run(lz.source(opened(form, place)), state)


def test_an_update_of_a_database_is_refused() -> None:
    form = FORMATS["sqlite"]
    place = put(form.example)
    state, path = lz.state_at(lz.source(opened(form, place)), 1), f"{place}/a.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE \"some rows\" SET v = 'new' WHERE k = 3")
    now = lz.source(opened(form, place))
    assert len(now) == state.stages[0].known["length"]
    with pytest.raises(lz.StateMismatch, match=f"{path} isn't the file recorded in the state: "):
        lz.run(now, state)


def test_files_alone_are_known_by_name_and_size_unless_they_are_read() -> None:
    paths = written([b"a\n", b"b\n"], ".txt").paths
    plain, read = (lz.io.files(paths, digest=each) for each in (False, True))
    assert [len(file.digest) for file in (*plain, *read)] == [0, 0, 16, 16]
    assert plain != read
    states = [lz.state_at(lz.source(each), 1) for each in (plain, read)]
    assert lz.io.Files.from_json(read.to_json()) == read
    Path(paths[1]).write_bytes(b"c\n")
    os.utime(paths[1], ns=(1, 1))
    assert len(list(lz.run(lz.source(lz.io.files(paths)), states[0]))) == 1
    with pytest.raises(lz.StateMismatch, match=f"{paths[1]} isn't the file recorded in the state"):
        lz.run(lz.source(lz.io.files(paths, digest=True)), states[1])
    with pytest.raises(lz.StateMismatch, match=rf"file 1, {paths[1]}: its version was"):
        lz.io.files(paths, like=plain)
    with pytest.raises(lz.StateMismatch, match=rf"file 1, {paths[1]}: its digest was"):
        lz.io.files(paths, like=read, digest=True)


def test_where_only_the_time_differs_the_digest_decides() -> None:
    files = written([b"a\n", b"b\n"], ".txt")
    saved = lz.io.files(files.paths, digest=True)
    now = lz.io.files(touched(files).paths, like=saved, digest=True)
    assert now != saved
    with pytest.raises(lz.StateMismatch, match="its version was"):
        lz.io.files(files.paths, like=saved)
    with pytest.raises(lz.SourceChanged, match=r"000\.txt changed since it was listed"):
        lz.io.read_text(saved, index_dir=folder())


def test_a_digest_must_be_a_bool() -> None:
    with pytest.raises(lz.ArgumentError, match="files: digest must be True or False"):
        lz.io.files("/a", digest="sha256")  # type: ignore[arg-type]

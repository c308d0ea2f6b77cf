"""The same data elsewhere, or written at another time: states go on, and edits are named."""

from __future__ import annotations

import gzip
import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest
from pyarrow import parquet

import lazyckpt as lz
from lazyckpt.testing import equal
from tests.io.cases import folder, written
from tests.io.formats import EXAMPLES, saved


def with_new_times(files: lz.io.Files) -> lz.io.Files:
    place = folder()
    for file in files:
        os.utime(shutil.copy(file.path, place), ns=(1, 1))
    return lz.io.files(sorted(map(str, place.iterdir())))


def in_memory(files: lz.io.Files) -> lz.io.Files:
    place = f"/copied/{Path(files.root).name}"
    for file in files:
        fsspec.filesystem("memory").pipe_file(
            f"{place}/{Path(file.path).name}", Path(file.path).read_bytes()
        )
    return lz.io.files([f"memory:/{place}/{Path(file.path).name}" for file in files])


def touched(files: lz.io.Files) -> lz.io.Files:
    for file in files:
        os.utime(file.path, ns=(1, 1))
    return lz.io.files(files.paths)


@pytest.mark.parametrize("copied", [with_new_times, touched, in_memory])
@pytest.mark.parametrize("suffix", EXAMPLES)
def test_a_state_resumes_on_a_copy(suffix: str, copied: Callable[..., lz.io.Files]) -> None:
    if suffix == ".db" and copied is in_memory:
        pytest.skip("databases are read on this machine alone")
    content, read = EXAMPLES[suffix]
    files = written([content] * (1 if suffix == ".db" else 2), suffix)
    first = lz.source(read(files, index_dir=folder())) | lz.shuffle(seed=0)
    expected, state = list(first), lz.state_at(first, 1)
    copy = lz.source(read(copied(files), index_dir=folder())) | lz.shuffle(seed=0)
    assert lz.init(first) == lz.init(copy)
    assert equal(list(lz.run(copy, state)), expected[1:])


def stored(content: bytes) -> bytes:
    return gzip.compress(content, 0, mtime=0)


def table(values: Sequence[int]) -> bytes:
    return saved(lambda out: parquet.write_table(pa.table({"n": values}), out, compression="none"))


EDITS: dict[str, tuple[bytes, bytes]] = {  # of formats of which a scan reads what decides
    ".txt": (b"a\nb\n", b"a\nc\n"),
    ".jsonl": (b"[1]\n[2]\n", b"[1]\n[3]\n"),
    ".jsonl.gz": (stored(b"[1]\n[2]\n"), stored(b"[1]\n[3]\n")),
    ".csv": (b"a\n1\n2\n", b"a\n1\n3\n"),
    ".tfrecord": (
        EXAMPLES[".tfrecord"][0],
        EXAMPLES[".tfrecord"][0].replace(b"00003", b"00004"),
    ),
    ".parquet": (table([1, 2, 3]), table([1, 2, 4])),
}


@pytest.mark.parametrize("suffix", EDITS)
def test_an_edit_of_equal_size_is_refused_and_its_file_is_named(suffix: str) -> None:
    (content, edited), read, place = EDITS[suffix], EXAMPLES[suffix][1], folder()
    files = written([content] * 3, suffix)
    state = lz.state_at(lz.source(read(files, index_dir=place)), 1)
    assert (len(edited), edited == content) == (len(content), False)
    path = Path(files[1].path)
    path.write_bytes(edited)
    os.utime(path, ns=(1, 1))  # whatever the clock's resolution
    now = lz.source(read(lz.io.files(files.paths), index_dir=place))
    with pytest.raises(lz.StateMismatch, match=f"{path} isn't what the state knows it as: "):
        lz.run(now, state)


def test_an_update_of_a_database_is_refused() -> None:
    (path,) = written([EXAMPLES[".db"][0]], ".db").paths
    read = EXAMPLES[".db"][1]
    state = lz.state_at(lz.source(read(lz.io.files(path))), 1)
    with closing(sqlite3.connect(path)) as connection, connection:
        ((name,),) = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        column = connection.execute(f"SELECT * FROM {name}").description[-1][0]
        connection.execute(f"UPDATE {name} SET {column} = 'new' WHERE rowid = 3")
    now = lz.source(read(lz.io.files(path)))
    assert len(now) == state.stages[0].known["length"]
    with pytest.raises(lz.StateMismatch, match=f"{path} isn't what the state knows it as: "):
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
    with pytest.raises(lz.StateMismatch, match=f"{paths[1]} isn't what the state knows it as"):
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

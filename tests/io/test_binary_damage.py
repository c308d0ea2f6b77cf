"""Files of binary formats with any byte gone or changed: rows as they were, or errors that name
the file, record and offset; whatever a damaged length says.
"""

from __future__ import annotations

import json
import random
import sqlite3
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import deepcopy
from functools import partial
from gzip import compress as gzip
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.testing import equal
from tests.io.cases import folder, zstd
from tests.io.formats import record, saved
from tests.io.test_mds import listed
from tests.io.test_tokens import megatron


class Case(NamedTuple):
    """Files, the reader of the first one, and its rows.

    `is_checked` says that checksums hold each row; others may be read as what they are not.
    """

    files: dict[str, bytes]
    read: Callable[[Path], lz.io.Rows[Any]]
    rows: list[Any]
    is_checked: bool = False


def contents(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(place.iterdir())}


def mds(compress: Callable[[bytes], bytes] | None = None, suffix: str = "") -> Case:
    rows = [{"text": "ab" * n, "number": np.int32(n)} for n in range(3)]
    place = listed([rows]).parent
    files = contents(place)
    if compress is not None:
        said = json.loads(files["index.json"])
        content = compress(files.pop("shard.00000.mds"))
        files[f"shard.00000.mds.{suffix}"] = content
        zipped = {"basename": f"shard.00000.mds.{suffix}", "bytes": len(content), "hashes": {}}
        said["shards"][0]["zip_data"] = zipped
        files["index.json"] = json.dumps(said).encode()
    return Case(files, lambda path: lz.io.read_mds(path, index_dir=folder()), rows)


def tfrecord() -> Case:
    rows = [b"first", b"", b"third"]
    files = {"a.tfrecord": b"".join(map(record, rows))}
    return Case(files, lambda path: lz.io.read_tfrecord(path, index_dir=folder()), rows, True)


def documents() -> Case:
    rows = [[1, 2, 3], [4], [5, 6]]
    files = contents(Path(megatron([rows])[0].path).parent)
    return Case(files, lz.io.read_tokens, [np.array(row, "<u2") for row in rows])


def array(suffix: str, save: Callable[..., None]) -> Case:
    values = np.arange(6, dtype="<u2")
    files = {f"a.{suffix}": saved(lambda out: save(out, values))}
    return Case(files, lambda path: lz.io.read_tokens(path, length=2), [*values.reshape(3, 2)])


def database() -> Case:
    path = folder() / "a.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA page_size=512")
        connection.execute("CREATE TABLE t (a, b)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, f"{n}") for n in range(5)])
    rows = [{"a": n, "b": f"{n}"} for n in range(5)]
    return Case(contents(path.parent), lambda path: lz.io.read_sqlite(path, "t"), rows)


CASES: dict[str, Callable[[], Case]] = {
    "mds": mds,
    "mds.gz": partial(mds, gzip, "gz"),
    "mds.zstd": partial(mds, zstd.compress, "zstd"),
    "tfrecord": tfrecord,
    "megatron": documents,
    "npy": partial(array, "npy", np.save),
    "npz": partial(array, "npz", np.savez),
    "sqlite": database,
}
MOST = 500  # contents of one case


def damaged(content: bytes, chance: random.Random) -> Iterator[bytes]:
    """Content cut at each byte, with each byte as another one, and of something else."""
    yield from (b"", content + b"\0", bytes(len(content)), gzip(content), b'{"shards": []}')
    for at in range(len(content)):
        yield content[:at]
        yield content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]
        yield content[:at] + b"\xff" + content[at + 1 :]


def attempt(act: Callable[[], Any]) -> tuple[Any, str | None]:
    """What is made, or an error that the library has raised."""
    try:
        return act(), None
    except (lz.PipelineError, FileNotFoundError) as error:
        return None, str(error)


def check(case: Case, files: dict[str, bytes | None]) -> None:
    """Read files; of one that is None there is a folder."""
    place = folder()
    for name, content in files.items():
        if content is None:
            (place / name).mkdir()
        else:
            (place / name).write_bytes(content)
    reader, error = attempt(lambda: case.read(place / next(iter(case.files))))
    if error is not None:
        assert str(place) in error, files
        return
    good: list[Any] = []
    for number in range(len(reader)):
        row, error = attempt(partial(reader.__getitem__, number))
        if error is not None:
            assert f"record {number} at byte " in error, files
            assert str(place) in error, files
            continue
        good.append(row)
        assert not case.is_checked or equal(row, case.rows[number]), files
    with lz.run(lz.source(reader), on_error="skip") as run:
        assert equal([*run], good), files
        assert len(good) + run.skipped == len(reader)
        assert lz.State.from_json(run.state.to_json()) == run.state


@pytest.mark.parametrize("name", CASES)
def test_damage_is_an_error_that_names_record_and_file(name: str) -> None:
    case, chance = CASES[name](), random.Random(name)
    check(case, dict(case.files))
    bad = [
        {**case.files, each: found}
        for each, content in case.files.items()
        for found in damaged(content, chance)
    ]
    for files in chance.sample(bad, min(len(bad), MOST)):
        check(case, files)


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_there_is_named(name: str) -> None:
    case = CASES[name]()
    for each in case.files:
        check(case, {**case.files, each: None})
        check(case, {other: found for other, found in case.files.items() if other != each})


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where in JSON there is a value."""
    yield at
    keys = [*value] if isinstance(value, dict) else range(len(value) if type(value) is list else 0)
    for key in keys:
        yield from places(value[key], (*at, key))


ODD = [
    None, True, 0, 5, -4, 0.5, 1e9, 2**70, "", "x", "int", "pil", "../x", "a\0b", [], [None], ["a"],
    {}, {"a": 1}, "ndarray:object", "ndarray:int8:x", "ndarray:int8:-1", "jpegarray", "pkl",
]  # fmt: skip


@pytest.mark.parametrize("name", ["mds", "mds.gz"])
def test_whatever_a_list_of_shards_says_is_an_error_that_names_a_file(name: str) -> None:
    case = CASES[name]()
    said = json.loads(case.files["index.json"])
    for *before, last in [at for at in places(said) if at]:
        for value in [*ODD, ...]:
            other = deepcopy(said)
            inner = other
            for key in before:
                inner = inner[key]
            if value is ...:
                del inner[last]
            else:
                inner[last] = value
            check(case, {**case.files, "index.json": json.dumps(other).encode()})


FAR = b"\xff\xff\xff\x7f"
LENGTHS = [
    ("mds", "shard.00000.mds", 0, FAR),  # how many samples
    ("mds", "shard.00000.mds", 16, FAR),  # where the last one ends
    ("tfrecord", "a.tfrecord", 0, FAR * 2),
    ("megatron", "000.idx", 18, FAR * 2),  # how many sequences
    ("megatron", "000.idx", 34, FAR),  # tokens of the first one
    ("npy", "a.npy", 6, b"\2\0" + FAR),  # bytes of a header
]


@pytest.mark.parametrize(("name", "file", "at", "length"), LENGTHS)
def test_a_length_that_is_damaged_takes_no_memory(
    name: str, file: str, at: int, length: bytes
) -> None:
    case = CASES[name]()
    content = case.files[file]
    content = content[:at] + length + content[at + len(length) :]
    check(case, dict(case.files))  # what is imported for it is no part of this
    tracemalloc.start()
    try:
        check(case, {**case.files, file: content})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000

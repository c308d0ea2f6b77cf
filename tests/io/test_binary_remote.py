"""Binary formats on a storage that isn't this machine's."""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from google_crc32c import value as crc32c
from pyarrow import feather, parquet

import lazyckpt as lz
from lazyckpt.testing import equal
from tests.io.cases import check_reader
from tests.io.shard_rows import DATA, litdata, mds

TABLE = pa.table({"n": range(10), "text": [f"{n}" for n in range(10)]})
ROWS = [{"n": np.int64(n), "text": f"{n}"} for n in range(10)]


def as_parquet(out: Any) -> None:
    parquet.write_table(TABLE, out, 3)


def as_feather(out: Any) -> None:
    feather.write_feather(TABLE, out, chunksize=3)


def as_tar(out: Any) -> None:
    with tarfile.open(fileobj=out, mode="w") as archive:
        for n in range(10):
            info = tarfile.TarInfo(f"{n}.txt")
            info.size = 1
            archive.addfile(info, io.BytesIO(b"%d" % n))


def as_records(out: Any) -> None:
    for n in range(10):
        length, data = struct.pack("<Q", 1), b"%d" % n
        sums = [(each >> 15 | each << 17) + 0xA282EAD8 for each in map(crc32c, (length, data))]
        first, second = (struct.pack("<I", each & 0xFFFFFFFF) for each in sums)
        out.write(length + first + data + second)


def as_megatron(out: Any) -> None:
    out.write(np.arange(10, dtype="<u2").tobytes())
    index = struct.pack("<9sQBQQ", b"MMIDIDX", 1, 8, 2, 3)
    index += np.array([4, 6], "<i4").tobytes() + np.array([0, 8, 0, 1, 2], "<i8").tobytes()
    fsspec.filesystem("memory").pipe_file("/binary/a.idx", index)


CASES: dict[str, tuple[Callable[[Any], None], Callable[[Any], Any], list[Any]]] = {
    "a.parquet": (as_parquet, lz.io.read_parquet, ROWS),
    "a.feather": (as_feather, lz.io.read_arrow, ROWS),
    "a.tar": (as_tar, lz.io.read_tar, [{"__key__": f"{n}", "txt": b"%d" % n} for n in range(10)]),
    "a.tfrecord": (as_records, lz.io.read_tfrecord, [b"%d" % n for n in range(10)]),
    "a.bin": (
        as_megatron,
        lz.io.read_tokens,
        [np.arange(4, dtype="<u2"), np.arange(4, 10, dtype="<u2")],
    ),
    "a.npy": (
        lambda out: np.save(out, np.arange(6)),
        lambda files: lz.io.read_tokens(files, length=3),
        [np.arange(3), np.arange(3, 6)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_are_read_from_fsspec(name: str) -> None:
    write, read, rows = CASES[name]
    with fsspec.open(f"memory://binary/{name}", "wb") as out:
        write(out)
    reader = read(lz.io.files(f"memory://binary/{name}"))
    check_reader(reader, rows)
    if hasattr(reader, "block_starts"):
        mixed = reader | lz.local_shuffle(2, seed=0)
        assert equal(sorted(mixed, key=repr), rows)


def remote(folder: Path) -> str:
    """A folder's files, where fsspec has them in memory."""
    place = f"/shards/{folder.parent.name}/{folder.name}"
    memory = fsspec.filesystem("memory")
    for path in folder.rglob("*"):
        if path.is_file():
            memory.pipe_file(f"{place}/{path.relative_to(folder)}", path.read_bytes())
    return f"memory:/{place}"


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_shards_are_read_from_fsspec(compression: str) -> None:
    index = f"{remote(DATA / 'mds' / compression)}/index.json"
    rows = [{name: mds(n)[name] for name in ("array", "int", "str")} for n in range(7)]
    check_reader(lz.io.read_mds(index, columns=["array", "int", "str"]), rows)


@pytest.mark.parametrize("name", ["plain", "zstd"])
def test_chunks_are_read_from_fsspec(name: str) -> None:
    index = f"{remote(DATA / 'litdata' / name)}/index.json"
    check_reader(lz.io.read_litdata(index), [litdata(n) for n in range(5)])

"""Binary formats on a storage that isn't this machine's."""

from __future__ import annotations

import struct
from pathlib import Path

import fsspec
import numpy as np
import pytest

import lazyckpt as lz
from tests.io.cases import check_reader
from tests.io.shard_rows import DATA, mds


def test_documents_are_read_from_fsspec() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/binary/a.bin", np.arange(10, dtype="<u2").tobytes())
    index = struct.pack("<9sQBQQ", b"MMIDIDX", 1, 8, 2, 3)
    index += np.array([4, 6], "<i4").tobytes() + np.array([0, 8, 0, 1, 2], "<i8").tobytes()
    memory.pipe_file("/binary/a.idx", index)
    rows = [np.arange(4, dtype="<u2"), np.arange(4, 10, dtype="<u2")]
    check_reader(lz.io.read_tokens(lz.io.files("memory://binary/a.bin")), rows)


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

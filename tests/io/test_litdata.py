"""litData: chunks as it wrote them, and random ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing import equal
from tests.io.cases import check_reader, folder
from tests.io.shard_rows import DATA, litdata

FEW = settings(max_examples=max(4, settings.default.max_examples // 15))
LEAF = {"type": None, "context": None, "children_spec": []}
PAIR = {"type": "builtins.tuple", "context": "null", "children_spec": [LEAF, LEAF]}
TOKENS = np.concatenate([np.arange(7 * n, 7 * n + 5, dtype=np.uint16) for n in range(4)])


def written(name: str) -> Path:
    """The list of chunks that litData wrote."""
    return DATA / "litdata" / name / "index.json"


def listed(chunks: Sequence[Sequence[tuple[str, int]]], tree: Any = PAIR, **change: Any) -> Path:
    """The list of chunks of texts and numbers."""
    place = folder()
    found = []
    for number, items in enumerate(chunks):
        parts = []
        for text, value in items:
            sizes = np.array([len(text.encode()), 8], "<u4").tobytes()
            parts.append(sizes + text.encode() + np.int64(value).tobytes())
        bounds = np.cumsum([4 * (len(parts) + 2), *map(len, parts)]).astype("<u4")
        name = f"chunk-0-{number}.bin"
        content = np.uint32(len(parts)).tobytes() + bounds.tobytes() + b"".join(parts)
        (place / name).write_bytes(content)
        found.append({"filename": name, "chunk_size": len(parts)})
    config = {
        "compression": None,
        "data_format": ["str", "int"],
        "data_spec": json.dumps([1, tree]),
    }
    said = {"chunks": found, "config": config | change}
    (place / "index.json").write_text(json.dumps(said))
    return place / "index.json"


ITEM = st.tuples(st.text(max_size=4), st.integers(-(2**63), 2**63 - 1))
ITEMS = [(str(n), n) for n in range(5)]


@FEW
@given(st.lists(st.lists(ITEM, max_size=5), min_size=1, max_size=3))
def test_items_keep_all_laws(chunks: list[list[tuple[str, int]]]) -> None:
    check_reader(lz.io.read_litdata(listed(chunks)), [item for items in chunks for item in items])


@pytest.mark.parametrize("name", ["plain", "zstd", "sample", "batch"])
def test_items_are_what_the_owner_wrote(name: str) -> None:
    check_reader(lz.io.read_litdata(written(name)), [litdata(n) for n in range(5)])


def test_tensors_are_arrays() -> None:
    rows = list(lz.io.read_litdata(written("tensors")))
    assert equal(rows, [(np.arange(n), np.full((2, n), n, np.float32)) for n in range(5)])


@pytest.mark.parametrize(("length", "stride"), [(4, None), (3, 4), (9, 9)])
def test_tokens_are_rows_of_a_length(length: int, stride: int | None) -> None:
    rows = lz.io.read_litdata(written("tokens"), length=length, stride=stride)
    starts = range(0, 10 - length + 1, stride or length)  # a chunk has 10 tokens
    expected = [TOKENS[begin + i : begin + i + length] for begin in (0, 10) for i in starts]
    check_reader(rows, expected)


def test_tokens_need_a_length() -> None:
    with pytest.raises(lz.ArgumentError, match="nothing but tokens, and need length, got length=N"):
        lz.io.read_litdata(written("tokens"))
    with pytest.raises(lz.ArgumentError, match="are no tokens, without length, got length=4"):
        lz.io.read_litdata(written("plain"), length=4)


def test_an_item_says_where_it_is() -> None:
    path = listed([ITEMS[:3], ITEMS[3:]])
    (found,) = lz.trace(lz.source(lz.io.read_litdata(path)), 4)
    assert found.row == (str(path.parent / "chunk-0-1.bin"), 1, 33, 50)


def test_tables_are_rows_of_arrow() -> None:
    reader = lz.io.read_litdata(written("table"))
    check_reader(reader, [{"n": np.int64(n)} for n in range(5)])
    (batch,) = reader | lz.local_shuffle(2, seed=0) | lz.batch(5, collate=lz.stack)
    assert sorted(batch["n"]) == list(range(5))


def test_a_table_that_is_damaged_is_named(tmp_path: Path) -> None:
    shutil.copytree(written("table").parent, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "chunk-0-1.bin"
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(lz.io.RecordError, match=r"chunk-0-1\.bin: it has no table, which other"):
        lz.io.read_litdata(tmp_path / "index.json")
    file.write_bytes(content[:100] + bytes(300) + content[400:])
    with pytest.raises(lz.io.RecordError, match=r"chunk-0-1\.bin: "):
        lz.io.read_litdata(tmp_path / "index.json")


@pytest.mark.parametrize(
    ("start", "content", "message"),
    [
        (0, b"other", "no chunk of compressed batches, or it is cut"),
        (8, b"\2", "it is of version 2, or cut"),
        (12, b"\xff\xff", "it is of version 1, or cut"),
        (28, b"\xff", "its frames are not those of 292 bytes"),
        (40, bytes(4), "its frames are not those of 292 bytes"),
    ],
)
def test_batches_that_are_damaged_are_named(
    tmp_path: Path, start: int, content: bytes, message: str
) -> None:
    shutil.copytree(written("batch").parent, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "chunk-0-0.bin"
    whole = file.read_bytes()
    file.write_bytes(whole[:start] + content + whole[start + len(content) :])
    with pytest.raises(lz.io.RecordError, match=rf"chunk-0-0\.bin: {message}"):
        lz.io.read_litdata(tmp_path / "index.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encryption": {"algorithm": "fernet"}}, "chunks must not be encrypted"),
        ({"compression": "lz4"}, "nor compressed by anything but zstd, got compression='lz4'"),
        ({"data_format": ["str", "pickle"]}, "values of 'pickle' are not read here"),
        ({"data_format": ["str", "no_header_tensor:10"]}, "'no_header_tensor:10' are not read"),
        ({"tree": {**PAIR, "type": "my.Class"}}, "containers of 'my.Class' are not read here"),
    ],
)
def test_what_is_unknown_is_refused(change: Any, message: str) -> None:
    with pytest.raises(lz.ArgumentError, match=message):
        lz.io.read_litdata(listed([ITEMS], **change))


def test_an_item_that_is_damaged_is_left_out_where_asked() -> None:
    path = listed([ITEMS])
    file = path.parent / "chunk-0-0.bin"
    damaged = bytearray(file.read_bytes())
    damaged[28] = 200  # the size of the first text
    file.write_bytes(bytes(damaged))
    rows = lz.io.read_litdata(path)
    with pytest.raises(lz.io.RecordError, match=r"record 0 at byte 28 of .*chunk-0-0\.bin: it has"):
        rows[0]
    with lz.run(lz.source(rows), on_error="skip") as run:
        assert list(run) == ITEMS[1:]


@pytest.mark.parametrize("content", ["[", "[]", '{"chunks": [], "config": {}}'])
def test_what_is_no_list_is_named(content: str) -> None:
    path = folder() / "index.json"
    path.write_text(content)
    with pytest.raises(lz.io.RecordError, match=r"index\.json: no list of shards: "):
        lz.io.read_litdata(path)

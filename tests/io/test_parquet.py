"""Parquet: rows by number, row groups decoded once, columns and filters."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyarrow.parquet import encryption

import lazyckpt as lz
from lazyckpt.io import row_groups
from lazyckpt.io.cache import LRUCache
from tests.io.cases import check_reader, folder, in_fork
from tests.io.formats import saved
from tests.io.tables import files_of

T = TypeVar("T")


def written(found: list[Any], size: int = 9) -> lz.io.Files:
    return files_of(*found, form="parquet", size=size)


def numbers(*sizes: int, size: int = 10) -> lz.io.Files:
    begins = np.cumsum([0, *sizes]).tolist()
    found = [
        pa.table({"n": range(begin, begin + count), "text": [f"{n}" for n in range(count)]})
        for begin, count in zip(begins, sizes, strict=False)
    ]
    return written(found, size)


def decodes(reader: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    done: list[Any] = []
    decode = type(reader).decode

    def counted(self: Any, number: int, group: Any) -> Any:
        done.append((number, group.number))
        return decode(self, number, group)

    monkeypatch.setattr(type(reader), "decode", counted)
    return done


@pytest.mark.parametrize("collate", [None, lz.stack])
def test_a_local_shuffle_decodes_each_group_once(
    collate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = lz.io.read_parquet(numbers(95, 0, 33, 40), cache_bytes=1000)
    assert reader.block_starts.tolist() == [*range(0, 95, 10), *range(95, 128, 10), *range(128, 168, 10)]  # fmt: skip  # noqa: E501
    done = decodes(reader, monkeypatch)
    batches = list(reader | lz.local_shuffle(3, seed=1) | lz.batch(7, collate=collate))
    assert len(done) == len({*done}) == 10 + 4 + 4
    found = [n for b in batches for n in ([r["n"] for r in b] if collate is None else b["n"])]
    assert sorted(found) == list(range(168))
    assert found != sorted(found)
    done.clear()
    assert len(list(reader | lz.shuffle(seed=1))) == 168
    assert len(done) > 30


def test_in_order_each_group_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = lz.io.read_parquet(numbers(95, 33), cache_bytes=0)
    done = decodes(reader, monkeypatch)
    assert [row["n"] for row in reader] == list(range(128))
    assert len(done) == 14


@pytest.mark.parametrize(
    "stages",
    [
        lz.take(10**6),
        lz.batch(7, collate=lz.stack),
        lz.batch(7) | lz.unbatch(),
        lz.shard(num_shards=3, index=1) | lz.batch(4, collate=lz.stack),
    ],
    ids=repr,
)
def test_in_order_two_groups_are_kept_where_not_all_fit(
    stages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches: list[Any] = []

    class Cache(LRUCache[T]):
        def __init__(self, most: int) -> None:
            super().__init__(most)
            caches.append(self)

    def kept(cache_bytes: int) -> tuple[list[int], int]:
        reader = lz.io.read_parquet(numbers(95, 0, 33), cache_bytes=cache_bytes)
        done, found = decodes(reader, monkeypatch), []
        for _ in range(2):
            found += [len(caches[-1].values()) for _ in lz.source(reader) | stages]
        return found, len(done)

    monkeypatch.setattr(row_groups, "LRUCache", Cache)

    sizes, count = kept(1500)
    assert max(sizes) <= 3  # and the one that is being read
    assert count == 2 * 14
    sizes, count = kept(1 << 20)
    assert (max(sizes), count) == (14, 14)


def test_a_damaged_group_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    files = numbers(300, size=100)
    path = Path(files[0].path)
    start, stop = lz.io.read_parquet(files).locate(150)[2:]
    content = bytearray(path.read_bytes())
    content[start + 4 : stop] = bytes(stop - start - 4)
    path.write_bytes(content)
    reader = lz.io.read_parquet(lz.io.files(path))
    done = decodes(reader, monkeypatch)
    with lz.run(lz.source(reader), on_error="skip") as run:
        assert [row["n"] for row in run] == [*range(100), *range(200, 300)]
    assert run.skipped == 100
    assert len(done) == 3
    for _ in range(2):
        with pytest.raises(lz.io.RecordError, match=r"record 100 at byte .*000\.parquet"):
            reader[150]


class Kms(encryption.KmsClient):  # type: ignore[misc]
    """Keys that are kept as they are."""

    def __init__(self, _: Any) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, _: str) -> bytes:
        return base64.b64decode(wrapped_key)


def encrypted(**given: Any) -> Path:
    """A file of which some is encrypted."""
    table = pa.table({"a": [1, 2], "secret": [3, 4], "s": [{"x": 1, "y": 2}] * 2})
    configuration = encryption.EncryptionConfiguration(footer_key="f", **given)
    factory = encryption.CryptoFactory(Kms)
    how = factory.file_encryption_properties(encryption.KmsConnectionConfig(), configuration)
    path = folder() / "a.parquet"
    with parquet.ParquetWriter(path, table.schema, encryption_properties=how) as out:
        out.write_table(table)
    return path


def test_columns_that_are_encrypted_are_an_error_where_the_file_is_opened() -> None:
    path = encrypted(column_keys={"k": ["secret", "s.y"]}, plaintext_footer=True)
    message = r"'{}' of .*a\.parquet can't be read, .*: it is encrypted: Cannot decrypt"
    for columns, name in [(None, "secret"), (["a", "secret"], "secret"), (["s"], "s")]:
        with pytest.raises(lz.ArgumentError, match=message.format(name)):
            lz.io.read_parquet(path, columns=columns)
    with pytest.raises(lz.ArgumentError, match=message.format("s.y")):
        lz.io.read_parquet(path, columns=["a", "s.y"])
    expected = [{"a": np.int64(n)} for n in (1, 2)]
    check_reader(lz.io.read_parquet(path, columns=["a"]), expected)
    assert [*lz.io.read_parquet(path, columns=["s.x"])] == [{"s": {"x": 1}}] * 2
    some = lz.io.read_parquet(path, columns=["a"], filters=[("secret", ">", 9)])
    assert [*some] == expected  # as encrypted files skip no row group
    other = encrypted(column_keys={"k": ["a"]}, plaintext_footer=True)
    with pytest.raises(lz.ArgumentError, match=message.format("a")):
        lz.io.read_parquet([path, other], columns=["a"])


def test_a_footer_that_is_encrypted_is_an_error() -> None:
    with pytest.raises(lz.io.RecordError, match=r"a\.parquet: Could not read encrypted metadata"):
        lz.io.read_parquet(encrypted(column_keys={"k": ["secret"]}), columns=["a"])


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_group_without_fields_is_an_error_where_the_file_is_opened(is_nested: bool) -> None:
    group = pa.struct([pa.field("g", pa.struct([("x", pa.int64())]), nullable=False)])
    rows = [{"a": n, "s": {"g": {"x": n}}} for n in range(3)]
    schema = pa.schema([("a", pa.int64()), pa.field("s", group, nullable=False)])
    content = saved(
        lambda out: parquet.write_table(pa.Table.from_pylist(rows, schema), out, store_schema=False)
    )
    above, more = (b"\x01s\x15", b"\x02\x04") if is_nested else (b"schema\x15", b"\x04\x06")
    for name, count in ((b"\x01g\x15", b"\x02\x00"), (above, more)):  # how many fields it has
        before, after = name + count[:1], name + count[1:]
        assert content.count(before) == 1
        content = content.replace(before, after)
    path = folder() / "a.parquet"
    path.write_bytes(content)
    for columns in (None, ["s"], ["a", "s"]):
        with pytest.raises(lz.ArgumentError, match=r"'s' of .*a\.parquet .* without fields"):
            lz.io.read_parquet(path, columns=columns)
    assert [*lz.io.read_parquet(path, columns=["a"])] == [{"a": n} for n in range(3)]


def test_filters_leave_out_row_groups() -> None:
    reader = lz.io.read_parquet(numbers(50, 30), filters=[("n", ">=", 27), ("n", "<", 61)])
    assert [row["n"] for row in reader] == list(range(20, 70))
    assert reader.locate(30)[:2] == (reader.files[1].path, 0)
    none = lz.io.read_parquet(numbers(50, 30), filters=[[("n", ">", 100)], [("n", "in", [200])]])
    assert len(none) == 0
    assert list(none | lz.local_shuffle(2, seed=0)) == []


def test_a_state_knows_the_filters() -> None:
    files = numbers(30)
    first, last, again = (
        lz.source(lz.io.read_parquet(files, filters=[("n", "in", some)]))
        for some in ({3, 5}, {23, 25}, {5, 3})
    )
    assert len(first) == len(last) == 10
    with pytest.raises(lz.StateMismatch, match="filters"):
        lz.run(last, lz.state_at(first, 3))
    assert next(lz.run(again, lz.state_at(first, 3)))["n"] == 3
    assert lz.init(first) == lz.init(again)


def test_a_fork_has_a_cache_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = lz.io.read_parquet(numbers(50))
    decode, found = type(reader).decode, list[int]()

    def forking(self: Any, *args: Any) -> Any:
        """Decode a group, for which the fork doesn't wait."""
        monkeypatch.undo()
        found.append(in_fork(lambda: reader[30]["n"]))
        return decode(self, *args)

    monkeypatch.setattr(type(reader), "decode", forking)
    assert [reader[30]["n"], *found] == [30, 30]


def test_footers_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    files = numbers(10, 10, 10)
    lz.io.read_parquet(files)
    monkeypatch.setattr(lz.io.parquet.RowGroupScan, "__call__", None)
    assert len(lz.io.read_parquet(files)) == 30

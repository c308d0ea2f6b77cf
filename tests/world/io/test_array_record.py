"""ArrayRecord: records by their owner's reader."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from array_record.python.array_record_module import ArrayRecordWriter
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from tests.io.cases import check_reader, folder

FEW = settings(max_examples=max(4, settings.default.max_examples // 15))


def written(files: list[list[bytes]], group: int = 1) -> lz.io.Files:
    place = folder()
    for number, rows in enumerate(files):
        writer = ArrayRecordWriter(f"{place}/{number:03}.array_record", f"group_size:{group}")
        for row in rows:
            writer.write(row)
        writer.close()
    return lz.io.files(f"{place}/*.array_record")


@FEW
@given(
    st.lists(st.lists(st.binary(max_size=9), max_size=6), min_size=1, max_size=3),
    st.integers(1, 4),
)
def test_records_keep_all_laws(files: list[list[bytes]], group: int) -> None:
    rows = [row for found in files for row in found]
    check_reader(lz.io.read_array_record(written(files, group)), rows)


def test_a_record_says_where_it_is() -> None:
    files = written([[b"a"], [b"b", b"c"]])
    (found,) = lz.trace(lz.source(lz.io.read_array_record(files)), 2)
    assert found.row == (files[1].path, 1, 0, files[1].size)


@pytest.mark.parametrize("content", [b"", b"no records at all" * 99])
def test_a_file_that_is_none(content: bytes) -> None:
    path = folder() / "a.array_record"
    path.write_bytes(content)
    with pytest.raises(lz.io.RecordError, match=r"a\.array_record: "):
        lz.io.read_array_record(path)


def test_a_file_that_is_cut() -> None:
    files = written([[b"x" * 99] * 999])
    whole = Path(files[0].path).read_bytes()
    Path(files[0].path).write_bytes(whole[: len(whole) // 2 + 7])
    with pytest.raises(lz.io.RecordError, match=r"000\.array_record: "):
        lz.io.read_array_record(files[0].path)


@pytest.mark.parametrize("options", ["group_size:1", "group_size:2,uncompressed"])
def test_damage_is_an_error_and_no_other_record(options: str) -> None:
    rows = [b"to" * 20, b"be", b"or not"]
    path = folder() / "a.array_record"
    writer = ArrayRecordWriter(str(path), options)
    for row in rows:
        writer.write(row)
    writer.close()
    content = path.read_bytes()
    places = [at for at, value in enumerate(content) if value]
    for at in random.Random(options).sample(places, 60):
        other = folder() / "a.array_record"
        other.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        try:
            with lz.run(lz.source(lz.io.read_array_record(other)), on_error="skip") as run:
                found = list(run)
        except lz.io.RecordError:
            continue
        assert found == [row for row in rows if row in found]


def test_a_file_that_changed_is_named() -> None:
    files = written([[b"a"], [b"b"]])
    reader = lz.io.read_array_record(files)
    os.utime(files[1].path, ns=(1, 1))
    with pytest.raises(lz.SourceChanged, match=r"001\.array_record changed since it was listed"):
        reader[1]
    assert reader[0] == b"a"


def test_many_files_are_open_in_turn() -> None:
    reader = lz.io.read_array_record(written([[b"%d" % n] for n in range(70)]))
    expected = [b"%d" % n for n in range(70)]
    assert [*reader] == expected
    assert reader.__getitems__(range(70)) == expected


def test_files_elsewhere_are_refused() -> None:
    files = lz.io.Files([lz.io.File("s3://bucket/a.array_record", 1, "1")])
    with pytest.raises(lz.ArgumentError, match="must be those of this machine, got s3://bucket"):
        lz.io.read_array_record(files)


@pytest.mark.parametrize(
    "executor", [lz.threads(3), lz.processes(2, start_method="forkserver")], ids=str
)
def test_executors_give_the_records(executor: Any) -> None:
    reader = lz.io.read_array_record(written([[b"%d" % n for n in range(30)]] * 3))
    pipeline = reader | lz.shuffle(seed=0) | lz.map(bytes.decode)
    expected = list(pipeline)
    with lz.run(pipeline, executor=executor) as run:
        assert list(run) == expected


def test_a_fork_has_readers_of_its_own() -> None:
    reader = lz.io.read_array_record(written([[b"%d" % n for n in range(9)]]))
    if not (child := os.fork()):
        os._exit(int(reader[7]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert reader[8] == b"8"

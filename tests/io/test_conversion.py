"""`convert`: files are read back unchanged, and a conversion survives kills."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import lazyckpt as lz
from lazyckpt.testing import equal
from tests.helpers import in_fork
from tests.io.cases import check_reader, folder, is_killed, written

FEW = settings(max_examples=max(3, settings.default.max_examples // 20))
FORMATS = ["parquet", "jsonl.zst", "tar", "tokens"]
READ: dict[str, Callable[[Any], Any]] = {
    "parquet": lambda files: lz.io.read_parquet(files, index_dir=folder()),
    "jsonl.zst": lambda files: lz.io.read_jsonl(files, index_dir=folder()),
    "tar": lambda files: lz.io.read_tar(files, index_dir=folder()),
    "tokens": lz.io.read_tokens,
}
TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
ROWS: dict[str, st.SearchStrategy[Any]] = {
    "parquet": st.builds(dict, n=st.integers(-9, 9), text=TEXTS),
    "jsonl.zst": st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | TEXTS
        | st.floats(allow_nan=False, width=16),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
        max_leaves=3,
    ),
    "tar": st.fixed_dictionaries({"txt": st.binary(max_size=9)}, optional={"a.b": st.binary()}),
    "tokens": st.lists(st.integers(0, 65535), min_size=1, max_size=5),
}


def expected(form: str, rows: list[Any]) -> list[Any]:
    """The values read back of rows that were written."""
    if form == "tokens":
        return [np.array(row, np.uint16) for row in rows]
    if form == "tar":
        return [{"__key__": f"{n:09}", **row} for n, row in enumerate(rows)]
    if form == "parquet":
        return [{**row, "n": np.int64(row["n"])} for row in rows]
    return rows


def some(form: str, count: int = 10) -> list[Any]:
    rows = [{"n": n, "text": "x" * n} for n in range(count)]
    made = {
        "parquet": rows,
        "jsonl.zst": rows,
        "tar": [{"txt": row["text"].encode()} for row in rows],
        "tokens": [[*range(n)] for n in range(count)],
    }
    return made[form]


def content(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.iterdir()}


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_written_is_read_again(form: str) -> None:
    @FEW
    @given(st.lists(ROWS[form], min_size=1, max_size=6), st.integers(1, 7))
    def holds(rows: list[Any], size: int) -> None:
        place = folder() / "new"
        files = lz.io.convert(rows, place, format=form, rows_per_file=size)
        assert files == lz.io.files(f"{place}/0*{Path(files[0].path).suffixes[0]}*")
        assert len(files) == -(-len(rows) // size)
        check_reader(READ[form](files), expected(form, rows))

    holds()


@pytest.mark.parametrize("form", FORMATS)
def test_a_listing_has_counts_and_digests(form: str) -> None:
    place = folder()
    files = lz.io.convert(some(form), place, format=form, rows_per_file=4)
    listing = json.loads((place / "listing.json").read_text())
    assert (listing["format"], listing["rows"], listing["rows_per_file"]) == (form, 10, 4)
    assert [chunk["rows"] for chunk in listing["chunks"]] == [4, 4, 2]
    found = [file for chunk in listing["chunks"] for file in chunk["files"]]
    assert {file["name"] for file in found} | {"listing.json"} == {*content(place)}
    for file in found:
        data = (place / file["name"]).read_bytes()
        assert (file["bytes"], file["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert [Path(file.path).name for file in files] == [
        chunk["files"][0]["name"] for chunk in listing["chunks"]
    ]


@pytest.mark.parametrize("form", ["jsonl.zst", "tar", "tokens"])
def test_a_conversion_that_is_killed_ends_as_if_it_had_not_been(form: str) -> None:
    rows = some(form)
    undisturbed = folder()
    convert = partial(lz.io.convert, format=form, rows_per_file=5)  # type: ignore[arg-type]
    convert(rows, undisturbed)
    for when in ("before", "after"):
        number, place = 1, folder()
        while is_killed(partial(convert, rows, place), number, when):
            files = convert(rows, place)
            assert content(place) == content(undisturbed), (when, number)
            assert equal(READ[form](files)[:], expected(form, rows))
            number, place = number + 1, folder()
        assert number > 4  # its first file, two files, and the listing
        assert content(place) == content(undisturbed)


_PARQUET = """
import os, signal, sys
import lazyckpt as lz

def row(n):
    if n == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"n": n, "text": None if n < 2 else "x" * n}

rows = lz.source(range(9)) | lz.map(row)
lz.io.convert(rows, sys.argv[1], format="parquet", rows_per_file=3)
"""


def test_types_are_those_of_all_files_before_after_a_kill_too() -> None:
    rows = [{"a": None}, {"a": 1}, {"a": 2}, {"a": 2.5}]
    undisturbed, killed = folder(), folder()
    lz.io.convert(rows[:3], undisturbed, format="parquet", rows_per_file=1)
    broken = lz.source(rows[:3]) | lz.map(lambda row: row if row["a"] != 2 else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        lz.io.convert(broken, killed, format="parquet", rows_per_file=1)
    lz.io.convert(lz.source(rows[:3]) | lz.map(dict), killed, format="parquet", rows_per_file=1)
    for name in ("000000.parquet", "000001.parquet", "000002.parquet"):
        assert (killed / name).read_bytes() == (undisturbed / name).read_bytes()
    assert str(parquet.read_schema(killed / "000002.parquet").field("a").type) == "int64"


def test_parquet_too_and_in_the_midst_of_a_file() -> None:
    rows = lz.source(range(9)) | lz.map(lambda n: {"n": n, "text": "x" * n if n > 1 else None})
    killed, undisturbed = folder(), folder()
    done = subprocess.run([sys.executable, "-c", _PARQUET, str(killed)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert {"progress.jsonl", "000001.parquet"} < {*content(killed)}
    for place in (killed, undisturbed):
        lz.io.convert(rows, place, format="parquet", rows_per_file=3)
    assert content(killed) == content(undisturbed)


def test_an_error_loses_nothing_and_the_same_rows_are_not_made_again() -> None:
    place, made = folder(), []
    bad = True

    def row(n: int) -> int:
        made.append(n)
        return n if n != 7 or not bad else 1 // 0

    pipeline = lz.source(range(10)) | lz.map(row)
    with pytest.raises(ZeroDivisionError):
        lz.io.convert(pipeline, place, format="jsonl.zst", rows_per_file=3)
    bad = False
    made.clear()
    files = lz.io.convert(pipeline, place, format="jsonl.zst", rows_per_file=3)
    assert made == [6, 7, 8, 9]
    assert READ["jsonl.zst"](files)[:] == [*range(10)]
    made.clear()
    assert lz.io.convert(pipeline, place, format="jsonl.zst", rows_per_file=3) == files
    assert made == []


def test_streams_and_workers_are_written_alike() -> None:
    source = written([b"".join(b"%d\n" % n for n in range(20))] * 2, ".jsonl")
    stream = lz.source(source) | lz.flat_map(lz.io.iter_jsonl) | lz.map(str)
    places = [folder(), folder(), folder()]
    for place, executor in zip(places, (None, lz.threads(2), lz.processes(2)), strict=True):
        lz.io.convert(stream, place, format="jsonl.zst", rows_per_file=7, executor=executor)
    assert content(places[0]) == content(places[1]) == content(places[2])


def test_nothing_is_no_file() -> None:
    place = folder()
    for _ in range(2):
        assert len(lz.io.convert([], place, format="parquet", rows_per_file=2)) == 0
    assert [*content(place)] == ["listing.json"]


def test_a_folder_of_something_else_is_left_alone() -> None:
    place = folder()
    (place / "mine.txt").write_text("mine")
    with pytest.raises(lz.ArgumentError, match=r"must be empty, or hold .* it has 'mine\.txt'"):
        lz.io.convert([1], place, format="jsonl.zst", rows_per_file=2)
    assert content(place) == {"mine.txt": b"mine"}


def test_another_conversion_is_refused() -> None:
    place = folder()
    lz.io.convert([[1], [2]], place, format="jsonl.zst", rows_per_file=2)
    for form, size in (("jsonl.zst", 3), ("tokens", 2)):
        with pytest.raises(lz.ArgumentError, match=r"holds a conversion with .*remove it"):
            lz.io.convert([[1], [2]], place, format=form, rows_per_file=size)  # type: ignore[arg-type]
    with pytest.raises(lz.StateMismatch, match="length=2"):
        lz.io.convert([[1], [2], [3]], place, format="jsonl.zst", rows_per_file=2)


def test_a_file_that_changed_since_is_named() -> None:
    place = folder()
    files = lz.io.convert([1], place, format="jsonl.zst", rows_per_file=2)
    os.truncate(files[0].path, 5)
    with pytest.raises(lz.PipelineError, match=r"000000\.jsonl\.zst has changed since"):
        lz.io.convert([1], place, format="jsonl.zst", rows_per_file=2)


def test_a_schema_is_an_argument_of_a_conversion() -> None:
    place, schema = folder(), pyarrow.schema([("a", pyarrow.int64())])
    lz.io.convert([{"a": 1}], place, format="parquet", rows_per_file=2, schema=schema)
    with pytest.raises(lz.ArgumentError, match=r"holds a conversion with .*'a: int64'"):
        lz.io.convert([{"a": 1}], place, format="parquet", rows_per_file=2)


@pytest.mark.parametrize("name", ["progress.jsonl", "listing.json"])
def test_whatever_a_folder_says_is_damaged_or_as_it_was(name: str) -> None:
    rows = [{"txt": b"x" * n} for n in range(5)]
    place = folder()
    broken = lz.source(rows) | lz.map(_fails_at_4)
    if name == "listing.json":
        lz.io.convert(rows, place, format="tar", rows_per_file=2)
    else:
        with pytest.raises(ZeroDivisionError):
            lz.io.convert(broken, place, format="tar", rows_per_file=2)
    known, undisturbed = content(place), folder()
    lz.io.convert(rows, undisturbed, format="tar", rows_per_file=2)
    size = len(known[name])
    for at in (*range(0, size, 7), size - 1):
        for bad in (known[name][:at], known[name][:at] + b"\xff" + known[name][at + 1 :]):
            other = folder()
            for each, found in {**known, name: bad}.items():
                (other / each).write_bytes(found)
            try:
                pipeline: Any = rows if name == "listing.json" else lz.source(rows) | lz.map(dict)
                files = lz.io.convert(pipeline, other, format="tar", rows_per_file=2)
            except lz.PipelineError:
                continue
            for file in files:
                path = Path(file.path)
                assert path.read_bytes() == (undisturbed / path.name).read_bytes()


def _fails_at_4(row: Any) -> Any:
    return row if row["txt"] != b"x" * 4 else 1 / 0


@pytest.mark.parametrize("form", FORMATS)
def test_a_full_disk_is_named(form: str) -> None:
    """By a limit on the size of files, which fails as a full disk does."""
    place, rows = folder(), some(form, 300)

    def full() -> int:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
        try:
            lz.io.convert(rows, place, format=form, rows_per_file=200)  # type: ignore[arg-type]
        except lz.errors.StorageError as error:
            return int(f"{place} can't hold more" in str(error))
        return 2

    assert in_fork(full) == 1
    files = lz.io.convert(rows, place, format=form, rows_per_file=200)  # type: ignore[arg-type]
    assert len(READ[form](files)) == 300


def test_one_process_converts_into_a_folder() -> None:
    place = folder()

    def again(n: int) -> int:
        lz.io.convert([1], place, format="jsonl.zst", rows_per_file=2)
        return n

    with pytest.raises(lz.PipelineError, match=f"is converting into {place}"):
        lz.io.convert([1] | lz.map(again), place, format="jsonl.zst", rows_per_file=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "csv"}, "format must be"),
        ({"rows_per_file": 0}, "rows_per_file must be"),
        ({"dtype": "float32"}, "an integer type that Megatron supports"),
        ({"dtype": "uint32"}, "an integer type that Megatron supports"),
        ({"pipeline": lz.source([1]) | lz.repeat()}, "is endless; take"),
        ({"pipeline": 3}, "data must be a sequence"),
    ],
)
def test_what_will_not_do_is_told(change: dict[str, Any], message: str) -> None:
    given = {"pipeline": [1], "folder": folder(), "format": "tokens", "rows_per_file": 2}
    with pytest.raises(lz.ArgumentError, match=message):
        lz.io.convert(**(given | change))


def test_a_bar_shows_rows(capsys: pytest.CaptureFixture[str]) -> None:
    lz.io.convert([1, 2], folder(), format="jsonl.zst", rows_per_file=2, progress=True)
    assert "convert: 100%" in capsys.readouterr().err

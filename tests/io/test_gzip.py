"""gzip: large members of any blocks by seek points, small ones by themselves."""

from __future__ import annotations

import gzip
import os
import random
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.io import content as content_module
from lazyckpt.io import decompress
from tests.helpers import HANGS, in_fork
from tests.io import laws
from tests.io.cases import folder, written
from tests.io.formats import COMPRESSIONS, compressed
from tests.io.table import FORMATS
from tests.io.test_compressed import TEXT, check_damaged_rows

_RANDOM = random.Random(0)
LINES = [f"{n} {_RANDOM.randbytes(8 * (n % 9)).hex()}" for n in range(20_000)]
CONTENT = "".join(f"{line}\n" for line in LINES).encode()
KINDS = [kind for kind in COMPRESSIONS if kind.startswith("gzip")]


def large(kind: str = "gzip, synced") -> bytes:
    return COMPRESSIONS[kind][1](CONTENT)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members are large from 1,000 bytes on."""
    monkeypatch.setattr(content_module, "LARGE", 1000)
    monkeypatch.setattr(content_module, "SPACING", 1 << 16)
    monkeypatch.setattr(content_module, "UNSURE", 1 << 12)
    content_module.compressed_content.cache_clear()


@pytest.mark.parametrize("kind", KINDS)
def test_laws_hold_by_zlib_and_with_seek_points(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form = FORMATS[f"text, {kind}"]
    monkeypatch.setattr(content_module, "LARGE", 0)
    for law in (laws.rows_are_what_was_written, laws.damage_is_an_error_that_names_the_file):
        law(form)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "isal.igzip_lib", None)
    assert "isal" not in type(decompress.decompressor("gzip")).__module__
    laws.rows_are_what_was_written(form)
    laws.rows_are_the_same_whatever_is_read_at_once(form)
    laws.damage_is_an_error_that_names_the_file(form)


@pytest.mark.usefixtures("spans")
@pytest.mark.parametrize("kind", KINDS)
def test_a_large_member_of_any_blocks_is_read_in_any_order(kind: str) -> None:
    contents = [large(kind), compressed(CONTENT, kind, 400_000)]
    rows = lz.io.read_text(written(contents, ".txt.gz"), index_dir=folder())
    lines = LINES * 2
    assert list(rows) == lines
    assert len(np.asarray(rows.block_starts)) > 9
    assert [rows[n] for n in range(0, len(rows), 97)] == lines[::97]
    some = lz.shuffle(seed=0) | lz.take(99)
    assert list(rows | some) == list(lines | some)
    with lz.run(lz.source(rows), lz.state_at(lz.source(rows), 12_345)) as run:
        assert list(run) == lines[12_345:]


@pytest.mark.usefixtures("spans")
@pytest.mark.parametrize("library", ["isal.igzip_lib", "no library"])
def test_seek_points_are_found_again_where_they_are_lost_or_damaged(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # zlib inflates, or isal
    files, place = written([large()], ".txt.gz"), folder()
    assert lz.io.read_text(files, index_dir=place)[3777] == LINES[3777]
    (points,) = place.glob("*.points")
    content = points.read_bytes()
    for spoil in (
        points.unlink,
        lambda: points.write_bytes(b"none"),
        lambda: points.write_bytes(bytes(len(content))),
        lambda: points.write_bytes(content[:-1]),
        lambda: os.truncate(points, 3000),
    ):
        spoil()
        content_module.compressed_content.cache_clear()
        assert lz.io.read_text(files, index_dir=place)[3888] == LINES[3888]
        assert points.read_bytes() == content
    rows = lz.io.read_text(files, index_dir=place)
    some = lz.shuffle(seed=0) | lz.take(60) | lz.map(str)
    with lz.run(rows | some, executor=lz.processes(2)) as run:
        assert list(run) == list(LINES | some)


def test_seek_points_take_little_room() -> None:
    content = gzip.compress("".join(f"{n} {'word' * (n % 9)}\n" for n in range(400_000)).encode())
    files, place = written([content], ".txt.gz"), folder()
    lz.io.read_text(files, index_dir=place)
    (points,) = place.glob("*.points")
    assert points.stat().st_size < 0.02 * len(content)


@pytest.mark.usefixtures("spans")
def test_a_large_member_that_changes_is_named() -> None:
    files = written([large()], ".txt.gz")
    rows = lz.io.read_text(files)
    assert rows[3] == LINES[3]
    Path(files[0].path).write_bytes(large("gzip, stored"))
    with pytest.raises(lz.SourceChanged, match=r"000\.txt\.gz changed since it was listed"):
        rows[19_000]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.usefixtures("spans")
def test_a_fork_reads_what_a_thread_is_reading() -> None:
    rows = lz.io.read_text(written([large()], ".txt.gz"))
    assert rows[3] == LINES[3]
    content = content_module.content_of("gzip", rows.row_index.folder)
    assert isinstance(content, content_module.Gzip)
    (reader,) = content.readers.values()
    is_reading, may_end = threading.Event(), threading.Event()
    read = reader.source.read

    def waiting(size: int) -> bytes:
        is_reading.set()
        may_end.wait(HANGS)
        return read(size)

    reader.source.read = waiting  # type: ignore[method-assign]
    thread = threading.Thread(target=rows.__getitem__, args=(19_000,))
    thread.start()
    assert is_reading.wait(HANGS)
    try:
        assert in_fork(lambda: rows[12_345] != LINES[12_345]) == 0
    finally:
        may_end.set()
        thread.join()


@pytest.mark.usefixtures("spans")
@pytest.mark.parametrize("damage", ["cut", "flipped"])
@pytest.mark.parametrize("first", [b"", gzip.compress(TEXT.encode())], ids=["alone", "after one"])
def test_what_is_before_the_damage_of_a_large_member_is_read(first: bytes, damage: str) -> None:
    member = large()
    if damage == "cut":
        content = first + member[: len(member) // 2]
    else:
        content = first + member[:-8] + bytes(8)
    rows = lz.io.read_text(written([content], ".txt.gz"), index_dir=folder())
    text = (TEXT if first else "") + CONTENT.decode() * (damage == "cut")
    check_damaged_rows(rows, text)
    if damage == "cut":
        assert len(rows) > len(LINES) // 3

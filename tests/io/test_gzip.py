"""gzip: large members of any blocks by seek points, small ones by themselves."""

from __future__ import annotations

import gzip
import os
import random
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.io import content as content_module
from lazyckpt.io import decompress
from tests.helpers import HANGS
from tests.io.cases import folder, in_fork, written
from tests.io.formats import COMPRESSIONS
from tests.io.test_compressed import TEXT, check_damaged_rows


@pytest.fixture(params=["isal", "zlib"])
def inflating(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever undoes DEFLATE."""
    if request.param == "zlib":
        monkeypatch.setitem(sys.modules, "isal.igzip_lib", None)
    owner = type(decompress.decompressor("gzip")).__name__
    assert owner == {"isal": "IgzipDecompressor", "zlib": "_Inflate"}[request.param]


def deflated(*parts: bytes, flush: int = zlib.Z_NO_FLUSH, **how: int) -> bytes:
    """A gzip member, flushed after each part: pigz does so after 128 KiB, a stored block each."""
    made = zlib.compressobj(wbits=31, **how)
    return b"".join([*(made.compress(part) + made.flush(flush) for part in parts), made.flush()])


_RANDOM = random.Random(0)
LINES = [f"{n} {_RANDOM.randbytes(8 * (n % 9)).hex()}" for n in range(20_000)]
PARTS = [
    "".join(f"{line}\n" for line in LINES[n : n + 999]).encode() for n in range(0, 20_000, 999)
]
BLOCKS: dict[str, Callable[[], bytes]] = {
    "dynamic": lambda: deflated(*PARTS),
    "fixed": lambda: deflated(*PARTS, strategy=zlib.Z_FIXED),
    "stored": lambda: deflated(*PARTS, level=0),
    "synced": lambda: deflated(*PARTS, flush=zlib.Z_SYNC_FLUSH),
    "partly flushed": lambda: deflated(*PARTS, flush=zlib.Z_PARTIAL_FLUSH),
    "fully flushed": lambda: deflated(*PARTS, flush=zlib.Z_FULL_FLUSH),
    "of several members": lambda: (
        deflated(PARTS[0])
        + deflated(*PARTS[1:9], flush=zlib.Z_SYNC_FLUSH)
        + deflated(*PARTS[9:], level=0)
        + bytes(9)
    ),
}


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members are large from 1,000 bytes on."""
    monkeypatch.setattr(content_module, "LARGE", 1000)
    monkeypatch.setattr(content_module, "SPACING", 1 << 16)
    monkeypatch.setattr(content_module, "_UNSURE", 1 << 12)
    content_module._compressed.cache_clear()


@pytest.mark.usefixtures("spans")
@pytest.mark.parametrize("kind", BLOCKS)
def test_a_large_member_of_any_blocks_is_read_in_any_order(kind: str) -> None:
    rows = lz.io.read_text(written([BLOCKS[kind]()], ".txt.gz"), index_dir=folder())
    assert list(rows) == LINES
    assert len(np.asarray(rows.block_starts)) > 9
    assert [rows[n] for n in range(0, len(rows), 97)] == LINES[::97]
    assert list(rows | lz.shuffle(seed=0) | lz.take(99)) == list(
        LINES | lz.shuffle(seed=0) | lz.take(99)
    )
    with lz.run(lz.source(rows), lz.state_at(lz.source(rows), 12_345)) as run:
        assert list(run) == LINES[12_345:]


@pytest.mark.usefixtures("spans", "inflating")
def test_seek_points_are_found_again_where_they_are_lost_or_damaged() -> None:
    files, place = written([BLOCKS["synced"]()], ".txt.gz"), folder()
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
        content_module._compressed.cache_clear()
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
    files = written([BLOCKS["synced"]()], ".txt.gz")
    rows = lz.io.read_text(files)
    assert rows[3] == LINES[3]
    Path(files[0].path).write_bytes(BLOCKS["stored"]())
    with pytest.raises(lz.SourceChanged, match=r"000\.txt\.gz changed since it was listed"):
        rows[19_000]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.usefixtures("spans")
def test_a_fork_reads_what_a_thread_is_reading() -> None:
    rows = lz.io.read_text(written([BLOCKS["synced"]()], ".txt.gz"))
    assert rows[3] == LINES[3]
    content = rows._content(rows.files[0])
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


@pytest.mark.usefixtures("inflating")
@pytest.mark.parametrize("kind", ["gzip", "bgzf", "gzip, padded"])
def test_members_that_follow_one_another_are_one_content(kind: str) -> None:
    suffix, compress = COMPRESSIONS[kind]
    parts = [TEXT[:1000], "", TEXT[1000:]]
    files = written([b"".join(compress(part.encode()) for part in parts)], f".txt{suffix}")
    assert list(lz.io.iter_text(files[0])) == TEXT.splitlines()
    assert list(lz.io.read_text(files, index_dir=folder())) == TEXT.splitlines()
    content = Path(files[0].path).read_bytes().rstrip(b"\0")
    for damaged in (content[:-3], content[:60] + b"\xff\x00" + content[62:]):
        file = written([damaged], f".txt{suffix}")[0]
        with pytest.raises(lz.PipelineError, match="is damaged, or no gzip, from byte"):
            list(lz.io.iter_text(file))


@pytest.mark.usefixtures("spans")
@pytest.mark.parametrize("damage", ["cut", "flipped"])
@pytest.mark.parametrize("first", [b"", deflated(TEXT.encode())])
def test_what_is_before_the_damage_of_a_large_member_is_read(first: bytes, damage: str) -> None:
    member = deflated(*PARTS, flush=zlib.Z_SYNC_FLUSH)
    if damage == "cut":
        content = first + member[: len(member) // 2]
    else:
        content = first + member[:-8] + bytes(8)
    rows = lz.io.read_text(written([content], ".txt.gz"), index_dir=folder())
    text = (TEXT if first else "") + b"".join(PARTS).decode() * (damage == "cut")
    check_damaged_rows(rows, text)
    if damage == "cut":
        assert len(rows) > len(LINES) // 3

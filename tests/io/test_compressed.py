"""Compressed files: every reader by number, streams from the front, what is damaged."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
import struct
import sys
import threading
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.io import decompress, framed
from lazyckpt.io import gzip as gzip_content
from lazyckpt.io import zstd as zstd_content
from tests.helpers import HANGS, printed
from tests.io.cases import folder, in_fork, written, zstd
from tests.io.formats import archive, bgzf


def skippable(data: bytes) -> bytes:
    return struct.pack("<2I", 0x184D2A50, len(data)) + data


PIECES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": (".gz", gzip.compress),
    "bgzf": (".bgz", bgzf),
    "gzip, padded": (".gz", lambda data: gzip.compress(data) + bytes(3)),
    "zstd": (".zst", zstd.compress),
    "zstd, skippable": (
        ".zst",
        lambda data: skippable(b"x") + zstd.compress(data) + skippable(b""),
    ),
}
STREAMED = {"xz": (".xz", lzma.compress), "bz2": (".bz2", bz2.compress), **PIECES}


TEXT = "".join(f"{n} {'word' * (n % 9)}\n" for n in range(1000))


@pytest.mark.parametrize("kind", STREAMED)
def test_streams_are_the_same_whatever_is_read_at_once(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    suffix, compress = STREAMED[kind]
    files = written([compress(TEXT.encode()) + compress(b"end")], suffix)
    for raw, made in ((1, 70), (100, 9), (1 << 18, 1 << 20)):
        monkeypatch.setattr(decompress, "_RAW", raw)
        monkeypatch.setattr(decompress, "_MADE", made)
        for file in (files[0], files[0].path, Path(files[0].path)):
            assert list(lz.io.iter_text(file)) == [*TEXT.splitlines(), "end"]


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
    monkeypatch.setattr(gzip_content, "MOST", 1000)
    monkeypatch.setattr(gzip_content, "SPACING", 1 << 16)
    gzip_content.content.cache_clear()


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
    for spoil in (
        points.unlink,
        lambda: points.write_bytes(b"none"),
        lambda: os.truncate(points, 3000),
    ):
        spoil()
        gzip_content.content.cache_clear()
        assert lz.io.read_text(files, index_dir=place)[3888] == LINES[3888]
    rows = lz.io.read_text(files, index_dir=place)
    some = lz.shuffle(seed=0) | lz.take(60) | lz.map(str)
    with lz.run(rows | some, executor=lz.processes(2)) as run:
        assert list(run) == list(LINES | some)


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
    (reader,) = gzip_content.content(rows.row_index.folder).readers.values()
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
    suffix, compress = PIECES[kind]
    parts = [TEXT[:1000], "", TEXT[1000:]]
    files = written([b"".join(compress(part.encode()) for part in parts)], f".txt{suffix}")
    assert list(lz.io.iter_text(files[0])) == TEXT.splitlines()
    assert list(lz.io.read_text(files, index_dir=folder())) == TEXT.splitlines()
    content = Path(files[0].path).read_bytes().rstrip(b"\0")
    for damaged in (content[:-3], content[:60] + b"\xff\x00" + content[62:]):
        file = written([damaged], f".txt{suffix}")[0]
        with pytest.raises(lz.PipelineError, match="is damaged, or no gzip, from byte"):
            list(lz.io.iter_text(file))


def test_a_large_frame_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zstd_content, "MOST", 1000)
    files = written([zstd.compress(TEXT.encode())], ".txt.zst")
    with pytest.raises(
        lz.ArgumentError, match=r"000\.txt\.zst: its frame from byte 0 on.*iter_text"
    ):
        lz.io.read_text(files)
    assert list(lz.io.iter_text(files[0])) == TEXT.splitlines()


def test_pieces_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framed, "_KEPT", 100)
    zstd_content.content.cache_clear()
    contents = b"".join(zstd.compress(b"%09d\n" % n) for n in range(50))
    rows = lz.io.read_text(written([contents], ".zst"), index_dir=folder())
    assert [rows[i] for i in range(50)] == [f"{n:09}" for n in range(50)]
    content = zstd_content.content(rows.row_index.folder)
    assert sum(piece.size for piece in content.pieces.values()) <= 100


@pytest.mark.parametrize("kind", [k for k in STREAMED if "," not in k])
@pytest.mark.parametrize("damage", ["cut", "junk", "flipped"])
def test_what_is_damaged_is_named(kind: str, damage: str) -> None:
    suffix, compress = STREAMED[kind]
    whole = compress(TEXT.encode())
    content = {
        "cut": whole + whole[:-9],
        "junk": whole + b"this is no such file",
        "flipped": whole + whole[:-7] + bytes([whole[-7] ^ 64]) + whole[-6:],
    }[damage]
    if damage == "flipped" and kind == "zstd":
        pytest.skip("its frames have no checksum by default")
    files = written([content], suffix)
    message = rf"000\{suffix} is damaged, or no \w+, from byte {len(whole):,} on: "
    with pytest.raises(lz.PipelineError, match=message):
        list(lz.io.iter_text(files[0]))
    if kind in PIECES:
        with pytest.raises(lz.PipelineError, match=message):
            lz.io.read_text(files)


def test_streams_name_records_offset_and_file() -> None:
    files = written([lzma.compress(b"1\n\n\n2\n{\n3\n")], ".jsonl.xz")
    stream = lz.io.iter_jsonl(files[0], loads=json.loads)
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(lz.io.RecordError, match=f"record 2 at byte 6 of {files[0].path}: "):
        next(stream)
    assert next(stream) == 3
    assert list(stream) == []
    for expand in (lz.io.iter_jsonl, lambda file: lz.io.iter_jsonl(file, loads=json.loads)):
        with lz.run(lz.source(files) | lz.flat_map(expand), on_error="skip") as run:
            assert list(run) == [1, 2, 3]
        assert run.skipped == 1


@pytest.mark.parametrize("raw", [1, 3, 1 << 18])
def test_a_long_line_of_a_stream_is_left_out(raw: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompress, "_RAW", raw)
    monkeypatch.setattr(decompress, "_MADE", raw)
    files = written([bz2.compress(b"1\n" + b"2" * 20 + b"\n3\n" + b"4" * 9)], ".bz2")
    expand = partial(lz.io.iter_text, max_record_bytes=8)
    stream = expand(files[0])
    assert next(stream) == "1"
    message = f"record 1 at byte 2 of {files[0].path}: it has 21 bytes, and max_record_bytes is 8"
    with pytest.raises(lz.io.RecordError, match=message):
        next(stream)
    with lz.run(lz.source(files) | lz.flat_map(expand), on_error="skip") as run:
        assert [next(run), next(run)] == ["1", "3"]
        state = run.state
        assert list(run) == []
    assert run.skipped == 2
    with lz.run(lz.source(files) | lz.flat_map(expand), state, on_error="skip") as again:
        assert list(again) == []
    assert again.skipped == 2


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [(".GZ", gzip.compress), (".Zst", zstd.compress), (".XZ", lzma.compress)],
)
def test_names_may_be_in_capitals(suffix: str, compress: Callable[[bytes], bytes]) -> None:
    files = written([compress(b"1\n2\n")], suffix)
    assert list(lz.io.iter_text(files[0])) == ["1", "2"]
    if suffix != ".XZ":
        assert lz.io.read_text(files)[:] == ["1", "2"]


def test_a_tgz_is_a_tar_in_gzip() -> None:
    files = written([gzip.compress(archive([("a.txt", b"1"), ("b.txt", b"2")]))], ".tgz")
    assert [sample["txt"] for sample in lz.io.read_tar(files)] == [b"1", b"2"]


@pytest.mark.parametrize("suffix", [".lz4", ".br", ".Z", ".zip", ".7z"])
def test_what_is_not_decompressed_is_refused_with_what_to_do(suffix: str) -> None:
    files = written([b"1\n"], suffix)
    for read in (lz.io.read_text, lz.io.read_tar, lambda found: list(lz.io.iter_text(found[0]))):
        with pytest.raises(lz.ArgumentError, match=r"isn't read; compress it as \.gz or "):
            read(files)
    with pytest.raises(lz.ArgumentError, match=r"\.bz2 has no random access; read it as a stream"):
        lz.io.read_text(written([bz2.compress(b"1\n")], ".bz2"))


@pytest.mark.parametrize("kind", [k for k in STREAMED if "," not in k and k != "bgzf"])
def test_compressed_text_whose_name_does_not_say_so_is_named(kind: str) -> None:
    compress = STREAMED[kind][1]
    for suffix, read in (
        (".txt", lz.io.read_text),
        (".jsonl", lz.io.read_jsonl),
        (".csv", lz.io.read_csv),
    ):
        files = written([compress(TEXT.encode())], suffix)
        message = f"{files[0].path}: by its first bytes it is compressed by {kind}"
        with pytest.raises(lz.PipelineError, match=message):
            read(files)
        with pytest.raises(lz.PipelineError, match=message):
            list(lz.io.iter_text(files[0]))
        if kind in ("gzip", "zstd"):
            assert len(read(files, compression=kind)) in (999, 1000)  # a header, or none


def test_what_is_no_argument_of_a_stream_is_refused() -> None:
    files = written([b"a\n"], ".txt")
    for arguments, message in (
        ({"encoding": "utf-16"}, "encoding must be an encoding in which"),
        ({"errors": "loose"}, "errors must be one of Python's ways"),
        ({"max_record_bytes": 0}, "max_record_bytes must be an int >= 1"),
    ):
        with pytest.raises(lz.ArgumentError, match=message):
            lz.io.iter_text(files[0], **arguments)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_an_expansion_with_random_access_is_entered_where_it_was(
    suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compress = PIECES["gzip" if suffix == ".gz" else "zstd"][1]
    parts = [TEXT[start : start + 2000] for start in range(0, len(TEXT), 2000)]
    files = written([b"".join(compress(part.encode()) for part in parts)] * 2, suffix)
    pipeline = lz.source(files) | lz.flat_map(lz.io.read_text)
    lines = TEXT.splitlines() * 2
    assert list(pipeline) == lines
    state = lz.state_at(pipeline, 1990)
    made: list[int] = []
    read = framed.Framed._piece
    monkeypatch.setattr(framed, "_KEPT", 0)
    for content in (gzip_content.content, zstd_content.content):
        content.cache_clear()

    def noted(self: framed.Framed, file: lz.io.File, number: int) -> bytes:
        made.append(number)
        return read(self, file, number)

    monkeypatch.setattr(framed.Framed, "_piece", noted)
    with lz.run(pipeline, state) as run:
        assert list(run) == lines[1990:]
    assert {*made} == {len(parts) - 1}


def test_rows_of_an_expansion_are_left_out_one_by_one() -> None:
    files = written([b"1\n{\n3\n", b"4\n"], ".jsonl")
    pipeline = lz.source(files) | lz.flat_map(lz.io.read_jsonl)
    with lz.run(pipeline, on_error="skip") as run:
        assert list(run) == [1, 3, 4]
    assert run.skipped == 1


def test_a_stream_resumes_by_file_and_record() -> None:
    files = written([lzma.compress(TEXT.encode())] * 2, ".xz")
    pipeline = lz.source(files) | lz.flat_map(lz.io.iter_text)
    lines = TEXT.splitlines() * 2
    state = lz.state_at(pipeline, 1100)
    Path(files[0].path).unlink()  # which isn't read again
    assert list(lz.run(pipeline, state)) == lines[1100:]


@pytest.mark.parametrize(
    ("module", "suffix", "compress", "extra"),
    [
        ("backports.zstd", ".zst", zstd.compress, "zstd"),
        ("indexed_gzip", ".gz", gzip.compress, "gzip"),
    ],
)
def test_a_missing_package_names_the_extra(
    module: str,
    suffix: str,
    compress: Callable[[bytes], bytes],
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if module == "backports.zstd" and sys.version_info >= (3, 14):
        pytest.skip("the standard library has it")
    monkeypatch.setattr(gzip_content, "MOST", 1000)
    monkeypatch.setitem(sys.modules, module, None)
    files = written([compress(TEXT.encode())], suffix)
    with pytest.raises(lz.PipelineError, match=rf'{module}: pip install "lazyckpt\[{extra}\]"'):
        lz.io.read_text(files)


def test_a_zip_bomb_fills_no_memory() -> None:
    line = bytes(1 << 16)
    compressor = zlib.compressobj(9, wbits=31)
    bomb = b"".join([*(compressor.compress(line) for _ in range(1 << 10)), compressor.flush()])
    files = written([bomb], ".gz")
    code = f"""
from pathlib import Path
import lazyckpt as lz

def peak():  # that of `getrusage` is no less than its parent's was
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])

lz.io.read_text
before = peak()
rows = lz.io.read_text({files[0].path!r}, max_record_bytes=1000, index_dir={str(folder())!r})
try:
    rows[0]
except lz.io.RecordError as error:
    print(error)
print(peak() - before)
"""
    message, grown = printed(code).splitlines()
    assert "it has 67,108,864 bytes, and max_record_bytes is 1,000" in message
    assert int(grown) < 40_000  # KiB

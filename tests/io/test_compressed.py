"""Compressed files: every reader by number, streams from the front, damaged files."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import sys
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import lazyckpt as lz
from lazyckpt.io import content as content_module
from lazyckpt.io import decompress
from tests.helpers import printed
from tests.io.cases import check_good_rows, check_reader, folder, written, zstd
from tests.io.formats import COMPRESSIONS, archive, record

STREAMED = {
    "xz": (".xz", lzma.compress),
    "bz2": (".bz2", bz2.compress),
    "xz, in capitals": (".XZ", lzma.compress),
    **COMPRESSIONS,
}


TEXT = "".join(f"{n} {'word' * (n % 9)}\n" for n in range(1000))


@pytest.mark.parametrize("kind", STREAMED)
def test_streams_are_the_same_whatever_is_read_at_once(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    suffix, compress = STREAMED[kind]
    files = written([compress(TEXT.encode()) + compress(b"end")], suffix)
    for raw, made in ((1, 70), (100, 9), (1 << 18, 1 << 20)):
        monkeypatch.setattr(decompress, "RAW", raw)
        monkeypatch.setattr(decompress, "MADE", made)
        for file in (files[0], files[0].path, Path(files[0].path)):
            assert list(lz.io.iter_text(file)) == [*TEXT.splitlines(), "end"]


@pytest.mark.parametrize("made", [7, 1 << 20])
def test_gzip_without_isal(made: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal.igzip_lib", None)
    monkeypatch.setattr(decompress, "MADE", made)
    lines = ["a" * 1000, *TEXT.splitlines(), ""]
    files = written([gzip.compress("\n".join(lines[:9]).encode()), gzip.compress(b"")], ".gz")
    assert list(lz.io.iter_text(files[0])) == lines[:9]
    for cut in (1, 8, 9):
        cut_off = written([gzip.compress("\n".join(lines).encode())[:-cut]], ".gz")
        with pytest.raises(decompress.Damaged, match="it ends too early"):
            list(lz.io.iter_text(cut_off[0]))


def test_a_frame_that_was_edited_since_it_was_indexed() -> None:
    (file,) = written([zstd.compress(b"a\n" * 1000)], ".zst")
    rows = lz.io.read_text([file.path], index_dir=folder())
    edited = zstd.compress(b"a\n" * 900)
    assert len(edited) == file.size
    times = os.stat(file.path)
    Path(file.path).write_bytes(edited)
    os.utime(file.path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(lz.PipelineError, match=r"is damaged.*: it ends too early"):
        rows[0]


def test_a_large_frame_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_module, "MOST", 1000)
    files = written([zstd.compress(TEXT.encode())], ".txt.zst")
    with pytest.raises(
        lz.ArgumentError, match=r"000\.txt\.zst: its frame from byte 0 on.*iter_text"
    ):
        lz.io.read_text(files)
    assert list(lz.io.iter_text(files[0])) == TEXT.splitlines()


def test_pieces_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_module, "KEPT", 100)
    content_module.compressed_content.cache_clear()
    contents = b"".join(zstd.compress(b"%09d\n" % n) for n in range(50))
    rows = lz.io.read_text(written([contents], ".zst"), index_dir=folder())
    assert [rows[i] for i in range(50)] == [f"{n:09}" for n in range(50)]
    content = content_module.content_of("zstd", rows.row_index.folder)
    assert isinstance(content, content_module.BlockCompressedFile)
    assert 0 < sum(piece.size for piece in content.pieces.values()) <= 100


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
    message = rf"000\{suffix} is damaged, or not \w+, from byte {len(whole):,} on: "
    with pytest.raises(lz.PipelineError, match=message):
        list(lz.io.iter_text(files[0]))
    if kind in COMPRESSIONS:
        check_damaged_rows(lz.io.read_text(files), (TEXT + TEXT if damage == "cut" else TEXT))


def check_damaged_rows(rows: lz.io.Rows[str], text: str) -> None:
    """Check that rows are lines of a text, and the last one an error that names the file."""
    with lz.run(lz.source(rows), on_error="skip") as run:
        found = list(run)
    assert found == text.splitlines()[: len(found)]
    assert len(found) >= len(TEXT.splitlines()) or text == ""
    assert (run.skipped, len(rows)) == (1, len(found) + 1)
    for read in (lambda: rows[len(found)], lambda: rows[-1], lambda: rows[::-1]):
        with pytest.raises(lz.PipelineError, match=f"{rows.paths[0]} is damaged, or not .*, from "):
            read()


def test_files_beside_a_damaged_one_are_read() -> None:
    whole = gzip.compress(b"a,b\n1,2\n")
    spoilt = whole[:-8] + bytes(8)
    for read, names in ((lz.io.read_csv, ["a"]), (lz.io.read_text, ["a", "b"])):
        files = written([whole, gzip.compress(b"a,b\n3,4\n") + spoilt, whole], ".csv.gz")
        rows = read(files, index_dir=folder())
        with lz.run(lz.source(rows), on_error="skip") as run:
            assert len(list(run)) == 3 * len(names)
        assert run.skipped == 1
    files = written([whole, b"no gzip", whole, b"no gzip"], ".csv.gz")
    place = folder()
    with pytest.raises(lz.ArgumentError, match=r"001\.csv\.gz.*it is not gzip") as raised:
        lz.io.read_csv(files, index_dir=place)
    assert raised.value.__notes__ == ["1 more files can't be indexed"]
    assert len([*place.glob("*.index")]) == 2


SMALL: list[tuple[Callable[..., Any], bytes, dict[str, Any]]] = [
    (lz.io.read_text, b"a\n", {}),
    (lz.io.read_jsonl, b"1\n", {}),
    (lz.io.read_csv, b"a,b\n1,2\n", {}),
    (lz.io.read_csv, b"# a comment\na,b\n1,2\n", {"skip_lines": 1}),
    (lz.io.read_csv, b"a,b\n1,2\n", {"skip_lines": 1, "columns": ["a", "b"]}),
    (lz.io.read_tfrecord, record(b"a"), {}),
    (lz.io.read_tar, archive([("1.txt", b"a")]), {}),
]


@pytest.mark.parametrize(("read", "content", "given"), SMALL)
@pytest.mark.parametrize("kind", ["gzip", "bgzf", "zstd"])
def test_a_small_file_that_is_cut_is_one_bad_row(
    kind: str, read: Callable[..., Any], content: bytes, given: dict[str, Any]
) -> None:
    suffix, compress = COMPRESSIONS[kind]
    whole = compress(content)
    (row,) = read(written([whole], suffix), **given)
    for contents in ([whole, whole[:-1]], [whole[:-1], whole], [whole, whole[:8], whole]):
        files = written(contents, suffix)
        rows = read(files, index_dir=folder(), **given)
        check_good_rows(rows, [row if each == whole else None for each in contents])


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
    monkeypatch.setattr(decompress, "RAW", raw)
    monkeypatch.setattr(decompress, "MADE", raw)
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


@pytest.mark.parametrize("suffix", [".xz", ".bz2"])
def test_a_stream_whose_name_says_another_compression_is_named(suffix: str) -> None:
    (file,) = written([gzip.compress(TEXT.encode())], suffix)
    with pytest.raises(lz.ArgumentError, match="by its first bytes it is compressed by gzip; re"):
        list(lz.io.iter_text(file))
    (file,) = written([TEXT.encode()], suffix)
    with pytest.raises(lz.PipelineError, match=rf"{file.path}.* not \w+"):
        list(lz.io.iter_text(file))
    assert [*lz.io.iter_text(file, compression="none")] == TEXT.splitlines()


@pytest.mark.parametrize("read", [lz.io.read_text, lz.io.iter_text])
def test_zstd_of_long_windows_and_with_dictionaries_is_read(read: Callable[..., Any]) -> None:
    options = {zstd.CompressionParameter.window_log: 28}
    long = zstd.ZstdCompressor(options=options)
    trained = zstd.train_dict([f"{line}\n".encode() for line in TEXT.splitlines()], 1000)
    raw = zstd.ZstdDict(b"0 \n1 word\n" * 9, is_raw=True)
    for content, name, value in (
        (long.compress(TEXT.encode()) + long.flush(), "max_window_log", 28),
        (zstd.compress(TEXT.encode(), zstd_dict=trained), "dictionary", trained.dict_content),
        (zstd.compress(TEXT.encode(), zstd_dict=raw), "dictionary", raw.dict_content),
    ):
        (file,) = written([content], ".zst")
        option = lz.io.Zstd(**{name: value})
        assert list(read(file.path, compression=option)) == TEXT.splitlines()
        if value != raw.dict_content:  # by which nothing tells that there is one
            message = rf"{file.path}: .*; pass compression=lz\.io\.Zstd\({name}="
            with pytest.raises(lz.ArgumentError, match=message):
                list(read(file.path))


def test_options_of_zstd_are_values() -> None:
    option = lz.io.Zstd(max_window_log=31, dictionary=b"12345678")
    assert repr(option) == "Zstd(max_window_log=31, dictionary=b'12345678')"
    rows = lz.io.read_text(written([zstd.compress(b"a\n")], ".zst"), compression=option)
    check_reader(rows, ["a"])
    assert "compression=<Zstd>" in repr(rows)
    for name, value, message in (
        ("max_window_log", 32, "max_window_log must be an int <= 31"),
        ("dictionary", "a.dict", "dictionary must be the bytes of a dictionary"),
        ("dictionary", b"1234567", "dictionary must be the bytes of a dictionary, at least 8"),
    ):
        with pytest.raises(lz.ArgumentError, match=message):
            lz.io.Zstd(**{name: value})


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_an_expansion_with_random_access_is_entered_where_it_was(
    suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compress = COMPRESSIONS["gzip" if suffix == ".gz" else "zstd"][1]
    parts = [TEXT[start : start + 2000] for start in range(0, len(TEXT), 2000)]
    files = written([b"".join(compress(part.encode()) for part in parts)] * 2, suffix)
    pipeline = lz.source(files) | lz.flat_map(lz.io.read_text)
    lines = TEXT.splitlines() * 2
    assert list(pipeline) == lines
    state = lz.state_at(pipeline, 1990)
    made: list[int] = []
    read = content_module.BlockCompressedFile.read_piece
    monkeypatch.setattr(content_module, "KEPT", 0)
    content_module.compressed_content.cache_clear()

    def noted(
        self: content_module.BlockCompressedFile, file: lz.io.File, number: int
    ) -> NDArray[np.uint8]:
        made.append(number)
        return read(self, file, number)

    monkeypatch.setattr(content_module.BlockCompressedFile, "read_piece", noted)
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


def test_a_record_may_begin_as_gzip_does() -> None:
    row = bytes(int.from_bytes(b"\x1f\x8b\x08", "little"))
    assert lz.io.read_tfrecord(written([record(row)], ".tfrecord"))[0] == row

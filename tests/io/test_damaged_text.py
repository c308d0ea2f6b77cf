"""Damaged, mislabelled and missing files of text, JSON lines, CSV and tar, plain and compressed.

Any damage gives rows that are right, or an error that names the file.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from tests.io.cases import folder, zstd
from tests.io.formats import archive, bgzf

LINES = b"".join(b'{"n": %d, "text": "%s"}\n' % (n, b"ab" * (n % 5)) for n in range(9))
CSV = b"n,text\n" + b"".join(b'%d,"%s\n"\n' % (n, b"ab" * (n % 5)) for n in range(9))
TAR = archive([(f"{n}.{ext}", b"%d" % n * 20) for n in range(3) for ext in ("txt", "cls")])

FORMATS: dict[str, tuple[bytes, Callable[..., Any]]] = {
    ".txt": (LINES, lz.io.read_text),
    ".jsonl": (LINES, lz.io.read_jsonl),
    ".csv": (CSV, lz.io.read_csv),
    ".tar": (TAR, lz.io.read_tar),
}
_CHECKED = {zstd.CompressionParameter.checksum_flag: 1}


def in_pieces(compress: Callable[[bytes], bytes], content: bytes) -> bytes:
    half = len(content) // 2
    return compress(content[:half]) + compress(content[half:])


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": partial(gzip.compress, mtime=0),
    ".bgz": partial(in_pieces, bgzf),
    ".zst": partial(in_pieces, partial(zstd.compress, options=_CHECKED)),
}
CASES = [(form, packing) for form in FORMATS for packing in COMPRESSIONS]


def check(read: Callable[..., Any], path: Path, expected: list[Any] | None) -> None:
    """Check that rows are the first of these, then an error; None if nothing tells damage."""
    names_it = pytest.raises(lz.PipelineError, match=str(path))
    rows = None
    with suppress(lz.PipelineError):
        rows = read(path, index_dir=folder())
    if rows is None:
        with names_it:
            read(path, index_dir=folder())
        return
    with lz.run(lz.source(rows), on_error="skip") as run:
        found = list(run)
    assert len(found) + run.skipped == len(rows)
    if run.skipped:
        with names_it:
            list(rows)
    if expected is not None:
        assert found == expected[: len(found)]
        assert found == expected or run.skipped == 1
    alone = []
    for number in range(len(rows)):
        with suppress(lz.PipelineError):
            alone.append(rows[number])
    assert alone == found


@pytest.mark.parametrize(("form", "packing"), CASES)
def test_a_file_that_is_cut_at_any_byte(form: str, packing: str) -> None:
    content, read = FORMATS[form]
    packed = COMPRESSIONS[packing](content)
    path = folder() / f"a{form}{packing}"
    path.write_bytes(packed)
    expected = list(read(path, index_dir=folder()))
    step = 1 if len(packed) < 400 else len(packed) // 200
    for size in range(0, len(packed), step):
        path.write_bytes(packed[:size])
        check(read, path, expected if packing == ".gz" and size else None)


@pytest.mark.parametrize(("form", "packing"), CASES)
def test_a_file_of_which_bytes_are_others(form: str, packing: str) -> None:
    content, read = FORMATS[form]
    packed = COMPRESSIONS[packing](content)
    path = folder() / f"a{form}{packing}"
    path.write_bytes(packed)
    expected = list(read(path, index_dir=folder()))

    @settings(max_examples=max(20, settings.default.max_examples))
    @given(st.integers(0, len(packed) - 1), st.integers(1, 255))
    def holds(at: int, flipped: int) -> None:
        spoilt = bytearray(packed)
        spoilt[at] ^= flipped
        path.write_bytes(spoilt)
        check(read, path, expected if packing else None)

    holds()


def others() -> Iterator[bytes]:
    for content, _ in FORMATS.values():
        for compress in (*COMPRESSIONS.values(), bz2.compress, lzma.compress):
            yield compress(content)
    yield from (
        b"",
        b"\0",
        bytes(600),
        b"\x80" * 600,
        b"PK\3\4" + bytes(99),
        b"\n" * 9,
        b"\xff\xfe",
    )


@pytest.mark.parametrize(("form", "packing"), CASES)
def test_content_of_another_format(form: str, packing: str) -> None:
    read = FORMATS[form][1]
    for content in others():
        path = folder() / f"a{form}{packing}"
        path.write_bytes(content)
        check(read, path, None)


STREAMS: dict[str, Callable[[bytes], bytes]] = {
    **COMPRESSIONS,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}


@pytest.mark.parametrize("packing", STREAMS)
def test_streams_of_damaged_files(packing: str) -> None:
    packed = STREAMS[packing](LINES)
    path = folder() / f"a.jsonl{packing}"
    expected = [json.loads(line) for line in LINES.splitlines()]

    @settings(max_examples=max(40, settings.default.max_examples))
    @given(st.integers(1, len(packed) - 1), st.integers(0, 255))
    def holds(at: int, flipped: int) -> None:
        end = len(packed) if flipped else at
        spoilt = bytearray(packed)
        spoilt[at] ^= flipped
        path.write_bytes(spoilt[:end])
        found, error = [], None
        try:
            for row in lz.io.iter_jsonl(path):
                found.append(row)
        except lz.PipelineError as raised:
            error = raised
        assert error is None or str(path) in str(error)
        if packing and error is None and packing not in (".bgz", ".zst"):
            assert found == expected

    holds()


@pytest.mark.parametrize(("form", "packing"), CASES)
def test_files_that_are_not_there_or_can_not_be_read(form: str, packing: str) -> None:
    content, read = FORMATS[form]
    place = folder()
    path = place / f"a{form}{packing}"
    with pytest.raises(FileNotFoundError, match=str(path)):
        read(path)
    path.mkdir()
    with pytest.raises(lz.ArgumentError, match=f"{path} is a directory"):
        read(path)
    path.rmdir()
    path.write_bytes(COMPRESSIONS[packing](content))
    if os.geteuid():  # root reads everything
        path.chmod(0)
        with pytest.raises(lz.StorageError, match=f"{path} can't be read: Permission denied"):
            read(path, index_dir=folder())
        path.chmod(0o600)
    rows = read(path, index_dir=folder())
    path.unlink()
    with pytest.raises(lz.SourceChanged, match=f"{path} is gone since it was listed"):
        read(rows.files, index_dir=folder())


@pytest.mark.parametrize(("form", "packing"), CASES)
def test_records_beyond_max_record_bytes(form: str, packing: str) -> None:
    content, read = FORMATS[form]
    path = folder() / f"a{form}{packing}"
    path.write_bytes(COMPRESSIONS[packing](content))
    limit = 25 if form != ".csv" else 12
    rows = read(path, max_record_bytes=limit, index_dir=folder())
    whole = list(read(path, index_dir=folder()))
    for number, row in enumerate(whole):
        origin = rows.locate(number)
        if origin.stop - origin.start > limit:
            message = (
                rf"record {number} at byte {origin.start:,} of {path}: it has .* bytes, and max"
            )
            with pytest.raises(lz.io.RecordError, match=message):
                rows[number]
        else:
            assert rows[number] == row

"""zstd's seekable format, as pyzstd reads and writes it."""

from __future__ import annotations

import io

import pytest
import pyzstd

import lazyckpt as lz
from lazyckpt.io import writers
from tests.io.cases import folder, written
from tests.io.test_compressed import TEXT
from tests.io.test_writers import convert


def test_the_seekable_format_is_read() -> None:
    out = io.BytesIO()
    with pyzstd.SeekableZstdFile(out, "w", max_frame_content_size=500) as file:
        file.write(TEXT.encode())
    files = written([out.getvalue()], ".txt.zst")
    rows = lz.io.read_text(files)
    assert rows[:] == TEXT.splitlines()
    with pyzstd.SeekableZstdFile(files[0].path) as file:
        for index in (0, 1, 500, 999):
            at = rows.locate(index)
            file.seek(at.start)
            assert file.read(at.stop - at.start).decode() == rows[index] + "\n"


@pytest.mark.parametrize("longest", [40, 1 << 22])
def test_frames_are_seekable_by_others(longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "FRAME", 200)
    monkeypatch.setattr(writers, "LONGEST", longest)
    values = ["ä" * (n % 40) for n in range(50)] + ["x" * 500, "end"]
    (file,) = convert(values, "jsonl.zst", size=100)
    rows = lz.io.read_jsonl(file, index_dir=folder())
    assert rows[:] == values
    assert pyzstd.SeekableZstdFile(file.path).seekable()
    with pyzstd.SeekableZstdFile(file.path) as other:
        for number in (51, 7, 50, 0):
            at = rows.locate(number)
            other.seek(at.start)
            assert other.read(at.stop - at.start).decode() == f'"{values[number]}"\n'
        assert other.seek(0, 2) == rows.locate(51).stop

"""Blocks of compressed files: local_shuffle decompresses each once."""

from __future__ import annotations

import gzip
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.io import content as content_module
from tests.io.cases import folder, written
from tests.io.formats import COMPRESSIONS, compressed

FEW = settings(max_examples=max(3, settings.default.max_examples // 20))
BLOCK = 1 << 16


def lines(count: int) -> list[str]:
    numbers = random.Random(0)
    return [f"{n} {numbers.random()} {'word' * (n % 7)}" for n in range(count)]


KINDS = {"gzip": 1 << 30, "gzip, members": BLOCK, "bgzf": 999, "zstd": BLOCK}  # bytes of a piece


def files_of(kind: str, *contents: bytes) -> lz.io.Files:
    name = kind.partition(",")[0]
    found = [compressed(each, name, KINDS[kind]) if each else b"" for each in contents]
    return written(found, COMPRESSIONS[name][0])


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of bytes made of each piece, of which few are kept."""
    monkeypatch.setattr(content_module, "LARGE", 1000)
    monkeypatch.setattr(content_module, "SPACING", BLOCK)
    found: list[int] = []
    read = content_module.BlockCompressedFile.read_piece

    def noted(self: Any, file: lz.io.File, number: int) -> Any:
        piece = read(self, file, number)
        found.append(len(piece))
        return piece

    monkeypatch.setattr(content_module.BlockCompressedFile, "read_piece", noted)
    return found


@pytest.mark.parametrize("kind", ["gzip", "gzip, members", "zstd"])
def test_a_local_shuffle_decompresses_each_block_once(
    kind: str, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = lines(25_000)
    content = "".join(f"{line}\n" for line in found).encode()
    rows = lz.io.read_text(files_of(kind, content), index_dir=folder())
    read = content_module.content_of(kind.partition(",")[0], rows.row_index.folder)
    blocks = len(np.asarray(rows.block_starts))
    assert blocks > 10
    size = max(len(content) // blocks, BLOCK) * 2
    for stage in (lz.map(str), lz.batch(64)):
        monkeypatch.setattr(read.pieces, "most", size * 4 * 2)
        made.clear()
        mixed = list(rows | lz.local_shuffle(4, seed=1) | stage)
        flat = mixed if isinstance(mixed[0], str) else [row for some in mixed for row in some]
        assert flat != found
        assert sorted(flat) == sorted(found)
        assert sum(made) < 1.2 * len(content)


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_begin_where_what_is_decompressed_together_does(kind: str) -> None:
    texts = [lines(100), [], lines(30)]
    contents = ["".join(f"{line}\n" for line in each)[:5000].encode() for each in texts]
    rows = lz.io.read_text(files_of(kind, *contents), index_dir=folder())
    starts = np.asarray(rows.block_starts).tolist()
    assert starts[0] == 0
    assert len(rows) - len(contents[2].splitlines()) in starts
    if kind == "bgzf":
        at = [rows.locate(start) for start in starts if start < len(rows)]
        begins = {(place.path, place.start // 999) for place in at}
        assert len(begins) == len(
            {(p.path, p.start // 999) for p in map(rows.locate, range(len(rows)))}
        )
    testing.check_pipeline(rows | lz.take(9) | lz.local_shuffle(2, seed=1), limit=6)


def test_blocks_of_files_without_compression_are_the_files() -> None:
    rows = lz.io.read_text(written([b"a\nb\n", b"", b"c\nd\n"], ".txt"), index_dir=folder())
    assert np.asarray(rows.block_starts).tolist() == [0, 2, 2]
    found = {tuple(rows | lz.local_shuffle(1, seed=seed)) for seed in range(30)}
    assert len(found) == 8
    assert all({*each[:2]} in ({"a", "b"}, {"c", "d"}) for each in found)


@FEW
@given(st.integers(1, 30_000), st.data())
def test_any_range_of_a_member_with_seek_points_is_read(count: int, data: st.DataObject) -> None:
    text = "".join(f"{line}\n" for line in lines(count)).encode()
    most, spacing = content_module.LARGE, content_module.SPACING
    content_module.LARGE, content_module.SPACING = 1 << 14, BLOCK  # type: ignore[misc]
    try:
        content = content_module.Gzip(str(folder()))
        level = data.draw(st.integers(0, 9))
        (file,) = written([gzip.compress(text, level) + gzip.compress(b"end")], ".gz")
        for _ in range(5):
            start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(text) + 3)] * 2)))
            assert content.read_ranges(file, [(start, stop)]) == [(text + b"end")[start:stop]]
    finally:
        content_module.LARGE, content_module.SPACING = most, spacing  # type: ignore[misc]

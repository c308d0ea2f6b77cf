"""Files and records of rows seen: as `locate` tells them, one by one."""

from __future__ import annotations

import gzip
import lzma
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lazyckpt as lz
from tests.io.cases import written

CONTENTS = [b"[0]\n[1]\n[2]\n", b"", b"[3]\n", b"[4]\n[5]\n"]
COUNTS = [content.count(b"\n") for content in CONTENTS]


def listed() -> lz.io.Files:
    return written(CONTENTS, ".jsonl")


def located(found: lz.types.Seen) -> list[tuple[str | None, int]]:
    """The file and the record of each row."""
    return [
        (block.files[file] if file >= 0 else None, int(record))
        for block in found
        for file, record in zip(block.file, block.record, strict=True)
    ]


def told(pipeline: lz.Pipeline[Any], state: lz.State) -> list[tuple[str | None, int]]:
    each = lz.trace(pipeline, lz.init(pipeline), state)
    rows = [origin.row for origins in each for origin in origins]
    return [(getattr(row, "path", None), getattr(row, "record", -1)) for row in rows]


def test_rows_of_readers_are_told_by_file_and_record() -> None:
    rows = lz.source(lz.io.read_jsonl(listed()))
    text = lz.source(lz.io.read_text(listed()))
    for pipeline in (
        rows | lz.shuffle(seed=0) | lz.repeat() | lz.batch(4),
        lz.mix([rows | lz.repeat(), text | lz.shuffle(2, seed=1)], [1, 1], seed=0),
        rows | lz.filter(lambda row: row[0] > 1),
        lz.concat(rows, lz.source(range(3))),
    ):
        run = lz.run(pipeline)
        for _, _ in zip(range(6), run, strict=False):
            pass
        found = lz.seen(pipeline, run.state)
        assert located(found) == told(pipeline, run.state)
        assert found.counts().total() == len(located(found))


def test_files_are_told_that_are_read_in_the_pipeline() -> None:
    files = listed()
    pipeline = lz.source(files) | lz.shuffle(seed=0) | lz.flat_map(lz.io.iter_jsonl)
    run = lz.run(pipeline)
    items = [next(run)[0] for _ in range(5)]
    found = lz.seen(pipeline, run.state)
    assert located(found) == told(pipeline, run.state)
    origins = [
        (file.path, n) for file, count in zip(files, COUNTS, strict=True) for n in range(count)
    ]
    assert located(found) == [origins[item] for item in items]
    whole = lz.source(files) | lz.batch(3)
    assert located(lz.seen(whole, lz.state_at(whole, 1))) == [(file.path, -1) for file in files[:3]]


class Own:
    """A reader of one's own, which locates rows by texts."""

    source_identity = {"kind": "own"}  # noqa: RUF012  # as readers have it

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> int:
        return index

    def iter_blocks(self, start: int) -> Any:
        yield list(range(start, 9))

    def locate(self, index: int) -> str | None:
        return f"file {index // 4}" if index < 8 else None


def test_blocks_are_seen_through_what_looks_at_items() -> None:
    rows = lz.source(lz.io.read_jsonl(listed()))
    for stage in (lz.split_batch(1), lz.starmap(lambda number: [[number]])):
        pipeline = rows | stage | lz.local_shuffle(2, seed=0) | lz.filter(lambda row: row[0][0] > 1)
        found = [lz.trace(pipeline, n)[0].index for n in range(4)]
        assert found == [row[0][0] for row in pipeline]


def test_a_reader_of_ones_own_is_asked_row_by_row() -> None:
    pipeline = lz.source(Own()) | lz.batch(4)  # type: ignore[arg-type]
    found = lz.seen(pipeline, lz.state_at(pipeline, 3))
    assert found.counts() == {("1", "file 0"): 4, ("1", "file 1"): 4, ("1", None): 1}


def test_a_file_and_a_row_of_it_are_found() -> None:
    files = listed()
    pipeline = lz.io.read_jsonl(files) | lz.shuffle(seed=0) | lz.repeat() | lz.batch(2)
    items = [next(run) for run in [lz.run(pipeline)] for _ in range(40)]
    found = lz.seen(pipeline, lz.state_at(pipeline, 40))
    assert found.times(4) == [n for n, batch in enumerate(items) if [4] in batch]
    assert found.times(file=files[3].path, record=0) == found.times(4)
    assert found.times(4, file=Path(files[3].path), stage="1") == found.times(4)
    assert found.times(file=files[3].path) == [
        n for n, batch in enumerate(items) if [4] in batch or [5] in batch
    ]
    assert found.times(4, file=files[0].path) == []
    assert found.times(file="elsewhere.jsonl") == found.times(6) == []
    for options, message in (
        ({}, "pass index= or file="),
        ({"index": 1, "record": 3}, "record=3 is a row of a file; pass file= too"),
        ({"index": -1}, "index must be an int >= 0"),
        ({"file": "a", "record": 1.5}, "record must be an int >= 0"),
        ({"index": 4, "stage": "2"}, "stage '2' is not a source; sources: 1"),
    ):
        with pytest.raises(lz.ArgumentError, match=message):
            found.times(**options)


def test_counts_of_ranks_add_up() -> None:
    files = listed()
    rows = lz.source(lz.io.read_jsonl(files)) | lz.shuffle(seed=0)
    ranks = [rows | lz.shard(num_shards=2, index=rank) for rank in (0, 1)]
    counts = [lz.seen(rank, lz.state_at(rank, 3)).counts() for rank in ranks]
    assert sum(counts, Counter()) == {
        ("1", files[0].path): 3, ("1", files[2].path): 1, ("1", files[3].path): 2,
    }  # fmt: skip


def expanded(file: lz.io.File) -> Iterator[Any]:
    """A reader of one's own."""
    yield from Path(file.path).read_text().splitlines()


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_records_of_streams_are_told_with_their_bytes(
    ending: str, ends: str, tmp_path: Path
) -> None:
    opens: Any = {"": open, ".gz": gzip.open, ".xz": lzma.open}[ending]
    texts = {"a": ["0", "", "é", "3"], "b": [], "c": ["7", "8"]}
    for name, lines in texts.items():
        with opens(tmp_path / f"{name}.txt{ending}", "wb") as file:
            file.write("".join(line + ends for line in lines).encode())
    files = lz.io.files(f"{tmp_path}/*.txt{ending}")
    for data in (files, files.paths):
        pipeline = lz.source(data) | lz.flat_map(lz.io.iter_text) | lz.shuffle(3, seed=0)
        told = {}
        for number, text in enumerate(lz.run(pipeline)):
            (origin,) = lz.trace(pipeline, number)
            path, record, start, stop = origin.row
            with opens(path, "rb") as file:
                assert file.read()[start:stop] == (text + ends).encode()
            told[Path(path).name[0], record] = text
        assert told == {(name, n): line for name in texts for n, line in enumerate(texts[name])}
        run = lz.run(pipeline)
        assert len([*run]) == 6
        assert {record for _, record in located(lz.seen(pipeline, run.state))} == {0, 1, 2, 3}


def test_records_of_a_reader_of_ones_own_are_numbered(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("".join(f"{name}{n}\n" for n in range(5)))
    files = lz.io.files(f"{tmp_path}/*.txt")
    for expand in (expanded, lambda file: [*expanded(file)]):
        pipeline = lz.source(files) | lz.flat_map(expand) | lz.filter(lambda text: "2" not in text)
        for number, text in enumerate(lz.run(pipeline)):
            (origin,) = lz.trace(pipeline, number)
            assert origin.row == (f"{tmp_path}/{text[0]}.txt", int(text[1]), 0, 15)
        twice = pipeline | lz.flat_map(lambda text: [text, text])
        assert lz.trace(twice, 3)[0].row.record == 1

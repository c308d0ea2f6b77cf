"""Lines, and what their JSON says."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.io import text
from lazyckpt.io.storage import LocalStorage
from tests.io.cases import folder, written

FEW = settings(max_examples=max(4, settings.default.max_examples // 12))


def test_an_index_takes_8_bytes_a_line() -> None:
    files = written([b"x\n" * 10_000], ".txt")
    rows = lz.io.read_text(files, index_dir=folder())
    assert rows.row_index.nbytes <= 8 * len(rows) + 64


def test_an_error_of_a_record_is_pickled() -> None:
    with pytest.raises(lz.io.RecordError) as caught:
        lz.io.read_text(written([b"\xff\n"], ".txt"))[0]
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (lz.io.RecordError, str(caught.value))


PARTS = [
    "1",
    "[2",
    "3]",
    "4,5",
    "6],[7",
    '{"a":',
    "8}",
    '"9',
    '"',
    "[]",
    "{}",
    "\ufeff1",
    "\0",
    " ",
]


@FEW
@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=7), st.booleans(), st.booleans())
@example(["[2", "3]", "4,5"], True, False)
def test_lines_are_json_each_for_itself(lines: list[str], is_ended: bool, is_plain: bool) -> None:
    content = "\n".join(lines) + "\n" * is_ended
    with pytest.MonkeyPatch.context() as patch:
        if is_plain:  # as if msgspec weren't installed
            patch.setattr(text, "json_loads", lambda: text.plain_loads)
        rows = lz.io.read_jsonl(written([content.encode()], ".jsonl"))
    alone = good(rows[n] for n in range(len(rows)))
    assert good(iter(lz.run(lz.source(rows)))) == alone
    assert good(iter(rows)) == alone
    assert rows[: len(alone)] == alone


def good(rows: Iterator[Any]) -> list[Any]:
    """The rows before the first that can't be read."""
    found = []
    with suppress(lz.io.RecordError):
        for row in rows:
            found.append(row)
    return found


VALUES = [
    "27368747340080916343", "-9223372036854775809", "18446744073709551615", "-9223372036854775808",
    "[1, 99999999999999999999]", "123456789012345678901234567890.5", "1e999", r'"\ud800"', "1e-400",
    '"12345678901234567890123"', "[" * 1100 + "]" * 1100, "0.1", "-0.0", "1E5", '{"a": 1, "a": 2}',
    "NaN", "-Infinity", "01", "1.", '"\t"', "\x001", "[1,]", "", "tru", "\u0661", '"\ufffd"',
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_msgspec_changes_no_value(value: str) -> None:
    found = text.json_loads()
    assert found is not text.plain_loads
    for record in (value, value.encode()):
        try:
            expected = text.plain_loads(record)
        except (ValueError, RecursionError) as error:
            with pytest.raises(type(error), match=re.escape(str(error))):
                found(record)
        else:
            assert repr(found(record)) == repr(expected)
    for rows in ([value], [value, "1"]):
        read = lz.io.read_jsonl(written(["\n".join(rows).encode()], ".jsonl"))
        plain = lz.io.read_jsonl(read.files, loads=text.plain_loads)
        assert repr(good(iter(read))) == repr(good(iter(plain)))


def test_many_lines_are_read_a_mebibyte_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{n:01000}" for n in range(4_000)]
    rows = lz.io.read_text(written([("\n".join(lines) + "\n").encode()], ".txt"))
    sizes = []
    decode_all = type(rows).decode_all

    def noted(self: Any, content: bytes, bounds: Any) -> list[str]:
        sizes.append(len(content))
        return decode_all(self, content, bounds)

    monkeypatch.setattr(type(rows), "decode_all", noted)
    assert rows[5:] == lines[5:]
    assert len(sizes) == 4
    assert max(sizes) <= 1 << 20


def test_what_storage_does_not_give_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = lz.io.read_text(written([b"a\nb\nc\n"], ".txt"))
    asked = []

    def refused(self: Any, file: Any, ranges: Any) -> Any:
        asked.append([*ranges])
        raise lz.errors.StorageError("no answer")

    monkeypatch.setattr(LocalStorage, "read_ranges", refused)
    with pytest.raises(lz.errors.StorageError, match="no answer"):
        rows[:]
    assert asked == [[(0, 6)]]


@FEW
@given(st.data())
def test_rows_come_in_any_order_from_any_file(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 90), min_size=1, max_size=5))
    lines = [[f"{n} of {size}" for n in range(size)] for size in sizes]
    rows = lz.io.read_text(written(["\n".join(some).encode() for some in lines], ".txt"))
    expected = [*chain.from_iterable(lines)]
    count = len(expected)
    if not count:
        return
    wanted = data.draw(st.lists(st.integers(-count, count - 1), min_size=1, max_size=200))
    assert rows.__getitems__(wanted) == [expected[n] for n in wanted]
    start, step = data.draw(st.integers(0, count - 1)), data.draw(st.integers(1, 7))
    assert rows.__getitems__(range(start, count, step)) == expected[start:count:step]
    for beyond in (count, -count - 1):
        for some in ([*wanted, beyond], [beyond], wanted * 64 + [beyond]):
            with pytest.raises(IndexError, match=f"row {beyond:,}|row {beyond}"):
                rows.__getitems__(some)
    with pytest.raises(IndexError):
        rows.__getitems__(range(start, count + 8, 7))


def test_numbers_of_rows_are_ints() -> None:
    rows = lz.io.read_text(written([b"a\nb\n"], ".txt"))
    assert rows.__getitems__(np.array([1, 0], np.uint8)) == ["b", "a"]
    for wrong in ([1.5], ["a"]):
        with pytest.raises(TypeError, match="read_text: row numbers must be ints"):
            rows.__getitems__(wrong)  # type: ignore[arg-type]
    assert repr(rows.row_index).startswith("<Index of 1 files, 2 rows, in /")


def test_a_source_says_files_rows_and_a_digest() -> None:
    contents = [b"a\nb\n", b"c\n"]
    files = written(contents, ".txt")
    state = lz.init(lz.source(lz.io.read_text(files)))
    known = {"files": 2, "length": 3, "digest": files.digest_with([*map(crc32, contents)])}
    assert state.stages[0].known == known

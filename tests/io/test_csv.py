"""CSV: records with quoted newlines, headers, ragged records."""

from __future__ import annotations

import csv
import re
from io import StringIO
from itertools import compress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.io import csv as csv_module
from tests.io.cases import folder, written


def parsed(text: str, skip_lines: int = 0) -> list[list[str] | None]:
    """The records of a text as the csv module reads it; None for a text that it refuses."""
    lines = StringIO(text, newline="")
    for _ in range(skip_lines):
        lines.readline()
    reader, found = csv.reader(lines, strict=True), list[Any]()
    while True:
        try:
            found.append(next(reader))
        except StopIteration:
            return [fields for fields in found if fields != []]
        except csv.Error:
            found.append(None)


@pytest.mark.parametrize("chunk", [3, 1 << 20])
@pytest.mark.parametrize("code", ["utf-8", "utf-8-sig", "latin-1"])
def test_records_are_those_of_the_csv_module_in_any_order(
    code: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With quotes and byte order marks wherever they are."""
    monkeypatch.setattr(csv_module, "CHUNK", chunk)
    alphabet = ["a", ",", '"', "\n", "\r", "\r\n", "#", "é", "\0", "b,c\n" * 3]
    alphabet += ["\ufeff"] * (code != "latin-1")

    @settings(max_examples=max(30, settings.default.max_examples))
    @given(st.lists(st.sampled_from(alphabet), max_size=30).map("".join), st.integers(0, 2))
    @example('5",b\n1,"two\nlines"\n', 0)
    @example('a,"b\n1,2\n3,"4"\n', 0)
    @example("1,2\n\xff3,4\n", 0)
    def holds(text: str, skip_lines: int) -> None:
        content = text.encode(code)
        text = text.removeprefix("\ufeff") if code == "utf-8" else text
        files = written([content], ".csv")
        records = parsed(text, skip_lines)
        for fields in records:
            names = [f"{n}" for n in range(len(fields or [0]))]
            rows = lz.io.read_csv(
                files, columns=names, encoding=code, skip_lines=skip_lines, index_dir=folder()
            )
            is_row = [each is not None and len(each) == len(names) for each in records]
            expected = [dict(zip(names, e or (), strict=False)) for e in records]
            source = lz.source(rows)
            assert len(rows) == len(records)
            with lz.run(lz.source(rows), on_error="skip") as run:
                assert list(run) == [*compress(expected, is_row)]
            for number in range(len(rows)):
                if is_row[number]:
                    assert rows[number] == expected[number]
                    with lz.run(source, lz.state_at(source, number)) as run:
                        assert next(run) == expected[number]
                else:
                    with pytest.raises(lz.io.RecordError, match=f"record {number} at byte "):
                        rows[number]

    holds()


def test_one_stray_quote_is_one_record() -> None:
    lines = ["x,y", *(f'{n},"{n}"' for n in range(1000))]
    lines[500] = '499,"499'
    rows = lz.io.read_csv(written(["\n".join(lines).encode()], ".csv"), index_dir=folder())
    with lz.run(lz.source(rows), on_error="skip") as run:
        assert [row["x"] for row in run] == [f"{n}" for n in range(1000) if n not in (499, 500)]
    assert run.skipped == 1


def test_a_line_that_is_too_large_is_an_error_and_the_next_one_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(csv_module, "MAX_RECORD", 20)
    files = written([b"x,y\n1,2\n" + b"a" * 30 + b",b\n" + b"c,d\n"], ".csv")
    rows = lz.io.read_csv(files, max_record_bytes=20)
    assert (rows[0], rows[2]) == ({"x": "1", "y": "2"}, {"x": "c", "y": "d"})
    with pytest.raises(lz.io.RecordError, match="it has 33 bytes, and max_record_bytes is 20"):
        rows[1]


def test_a_file_of_other_columns_is_named() -> None:
    rows = lz.io.read_csv(written([b"x,y\n1,2\n", b"y,x\n1,2\n"], ".csv"))
    assert rows[0] == {"x": "1", "y": "2"}
    for read in (lambda: rows[1], lambda: list(rows)):
        with pytest.raises(lz.ArgumentError, match=r"001\.csv has the columns \['y', 'x'\]"):
            read()


@pytest.mark.parametrize(
    ("code", "delimiter"),
    [("gb18030", "|"), ("shift_jis", "|"), ("iso2022_jp", ","), ("latin-1", '"')],
)
def test_bytes_that_could_be_of_another_character_are_refused(code: str, delimiter: str) -> None:
    """In ISO-2022-JP, the second byte of U+570B is that of a quote."""
    text = "x,y\n\u570b,1\n\u570b,2\n" if code != "latin-1" else "x,y\n"
    files = written([text.encode(code)], ".csv")
    with pytest.raises(lz.ArgumentError, match=f"read_csv: .*{re.escape(repr(delimiter))}"):
        lz.io.read_csv(files, delimiter=delimiter, encoding=code, index_dir=folder())
    if delimiter == "|":
        rows = lz.io.read_csv(files, encoding=code, index_dir=folder())
        assert list(rows) == [{"x": "\u570b", "y": "1"}, {"x": "\u570b", "y": "2"}]


def test_a_repr_has_the_options() -> None:
    files = written([b"1\t2\n"], ".tsv")
    given = {"columns": ["a", "b"], "delimiter": "\t", "quotechar": None, "skip_lines": 0}
    assert repr(lz.io.read_csv(files, **given, encoding="latin-1")).endswith(
        "columns=['a', 'b'], delimiter='\\t', quotechar=None, encoding='latin-1')"
    )

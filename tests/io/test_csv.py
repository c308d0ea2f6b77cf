"""CSV: records with quoted newlines, headers, what is ragged."""

from __future__ import annotations

import gzip

import pytest

import lazyckpt as lz
from lazyckpt.io import content
from tests.io.cases import written


@pytest.mark.parametrize("chunk", [1, 2, 3, 1 << 20])
def test_records_are_the_same_whatever_is_read_at_once(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "CHUNK", chunk)
    text = b'\r\nx,y\n\n1,"a\n""b""\r\n"\r\n\n"",2'
    rows = lz.io.read_csv(written([text], f".{chunk}.csv"))
    assert rows[:] == list(rows) == [{"x": "1", "y": 'a\n"b"\r\n'}, {"x": "", "y": "2"}]


def test_other_forms_are_read() -> None:
    files = written([gzip.compress(b'1\t2"\n\n\xe9\t"4\n')], ".tsv.gz")
    rows = lz.io.read_csv(
        files, columns=["a", "b"], delimiter="\t", quotechar=None, encoding="latin-1"
    )
    assert rows[:] == [{"a": "1", "b": '2"'}, {"a": "é", "b": '"4'}]
    assert repr(rows).endswith(
        "columns=['a', 'b'], delimiter='\\t', quotechar=None, encoding='latin-1')"
    )


def test_an_empty_file_has_no_rows_and_no_header() -> None:
    files = written([b"", b"x,y\n", b"x,y", b"x,y\n1,2"], ".csv")
    assert lz.io.read_csv(files)[:] == [{"x": "1", "y": "2"}]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"1", "1 fields, and there are 2 columns"),
        (b"1,2,3", "3 fields, and there are 2 columns"),
        (b"1,\xff", "can't decode byte 0xff"),
        (b'1,"2', "unexpected end of data"),
        (b'1,"2"3', "',' expected after '\"'"),
        (b'1,2"\n3,4"', "a quote stands in a field that isn't quoted"),
    ],
)
def test_what_is_no_record_is_named(record: bytes, reason: str) -> None:
    files = written([b"x,y\n0,0\n" + record], ".csv")
    rows = lz.io.read_csv(files)
    with pytest.raises(
        lz.io.RecordError, match=f"record 1 at byte 8 of {files[0].path}: .*{reason}"
    ):
        list(rows)
    with lz.run(lz.source(rows), on_error="skip") as run:
        assert list(run) == [{"x": "0", "y": "0"}]
    assert run.skipped == 1


def test_a_file_of_other_columns_is_named() -> None:
    rows = lz.io.read_csv(written([b"x,y\n1,2\n", b"y,x\n1,2\n"], ".csv"))
    assert rows[0] == {"x": "1", "y": "2"}
    for read in (lambda: rows[1], lambda: list(rows)):
        with pytest.raises(lz.ArgumentError, match=r"001\.csv has the columns \['y', 'x'\]"):
            read()


def test_columns_of_one_name_are_refused() -> None:
    with pytest.raises(lz.ArgumentError, match="need names of their own"):
        lz.io.read_csv(written([b"a,a\n"], ".csv"))

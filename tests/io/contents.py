"""Random files of every format, and the rows that they have."""

from __future__ import annotations

import csv
import io
import json
import tarfile
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from tests.io import formats
from tests.io.tables import tables, write


class Contents(NamedTuple):
    """Files by name, in order, the rows of all, and the arguments of the reader."""

    files: dict[str, bytes]
    rows: list[Any]
    given: dict[str, Any] = {}  # noqa: RUF012


Given = bytes | list[bytes] | dict[str, bytes]  # a file, files, or files by name


def named(
    found: Given, suffix: str, rows: list[Any], given: dict[str, Any] | None = None
) -> Contents:
    contents = found if isinstance(found, list) else [found]
    files = {f"{n:03}{suffix}": content for n, content in enumerate(contents)}
    return Contents(found if isinstance(found, dict) else files, rows, given or {})  # type: ignore[arg-type]


_ENDS = st.sampled_from(["\n", "\r\n"])
_LINE = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=9)
_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
_FIELD = st.text(st.sampled_from('ab,"\n\r\té'), max_size=5)


def in_files(row: st.SearchStrategy[Any], most: int = 6) -> st.SearchStrategy[list[list[Any]]]:
    """Rows, file by file."""
    return st.lists(st.lists(row, max_size=most), min_size=1, max_size=4)


def all_of(files: list[list[Any]]) -> list[Any]:
    return [row for rows in files for row in rows]


@st.composite
def lines(draw: st.DrawFn) -> Contents:
    """Some files end without a newline."""
    files, contents = draw(in_files(_LINE)), []
    for found in files:
        end = draw(_ENDS)
        text = "".join(line + end for line in found)
        if found and found[-1] and draw(st.booleans()):
            text = text.removesuffix(end)
        contents.append(text.encode())
    return named(contents, ".txt", all_of(files))


@st.composite
def json_lines(draw: st.DrawFn) -> Contents:
    """Some lines are blank, and some files end without a newline."""
    files, end, is_ended = draw(in_files(_VALUE)), draw(_ENDS), draw(st.booleans())
    texts = [
        "".join(f"{json.dumps(value)}{end}{end * (n % 3 == 2)}" for n, value in enumerate(found))
        for found in files
    ]
    contents = [(text if is_ended else text.rstrip()).encode() for text in texts]
    return named(contents, ".jsonl", all_of(files))


@st.composite
def csv_records(draw: st.DrawFn) -> Contents:
    """As the standard library writes them."""
    names = draw(st.lists(_FIELD.filter(bool), min_size=1, max_size=3, unique=True))
    row = st.lists(_FIELD, min_size=len(names), max_size=len(names))
    files, contents = draw(in_files(row, 4)), []
    for rows in files:
        out, end = io.StringIO(newline=""), draw(_ENDS)
        csv.writer(out, lineterminator=end, quoting=csv.QUOTE_ALL).writerows([names, *rows])
        text = out.getvalue()
        contents.append((text if draw(st.booleans()) else text.removesuffix(end)).encode())
    return named(contents, ".csv", [dict(zip(names, row, strict=True)) for row in all_of(files)])


@st.composite
def samples(draw: st.DrawFn) -> Contents:
    """Also with long names, and with members between that are none of a sample."""
    form = draw(st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
    is_long, has_others = form != tarfile.USTAR_FORMAT and draw(st.booleans()), draw(st.booleans())
    prefix = "ü/" + "long/" * 30 * is_long
    extensions = st.sampled_from(["jpg", "txt", "seg.png", "cls"])
    parts = st.dictionaries(extensions, st.binary(max_size=600), min_size=1, max_size=3)
    contents, rows = [], []
    for found in draw(in_files(parts, 5)):
        members = formats.members_of(found, prefix)
        for place in range(0, len(members) + 1, 2) if has_others else ():
            members.insert(place, ("folder/", b"") if place % 4 else ("README", b"no sample"))
        contents.append(formats.archive(members, form))
        rows += [{"__key__": f"{prefix}{n}", **each} for n, each in enumerate(found)]
    return named(contents, ".tar", rows)


@st.composite
def tf_records(draw: st.DrawFn) -> Contents:
    files = draw(in_files(st.binary(max_size=40)))
    contents = [b"".join(map(formats.record, rows)) for rows in files]
    return named(contents, ".tfrecord", all_of(files))


@st.composite
def in_tables(draw: st.DrawFn, form: str) -> Contents:
    """In Arrow some record batches have no rows."""
    found, rows = draw(tables())
    codec, size = draw(st.sampled_from([None, "lz4", "zstd"])), draw(st.integers(1, 5))
    if form == "parquet":
        how = {"use_dictionary": draw(st.booleans()), "store_schema": draw(st.booleans())}
    else:
        how = {"empty": draw(st.integers(0, 2))}
    contents = [
        formats.saved(lambda out, t=table: write(t, out, form, size, codec, **how))  # type: ignore[misc]
        for table in found
    ]
    return named(contents, f".{form}", rows)


_TYPES = st.sampled_from(["u2", "u4", "i4", "u1"])


@st.composite
def arrays(draw: st.DrawFn, suffix: str, write: Any) -> Contents:
    """Windows of a length, some of which overlap or leave out tokens."""
    sizes, kind = draw(st.lists(st.integers(0, 20), min_size=1, max_size=4)), draw(_TYPES)
    length, stride = draw(st.integers(1, 5)), draw(st.integers(1, 8))
    found = [np.arange(size).astype(kind) + n for n, size in enumerate(sizes)]
    rows = [
        values[start : start + length]
        for values in found
        for start in range(0, len(values) - length + 1, stride)
    ]
    contents = [formats.saved(lambda out, each=each: write(out, each)) for each in found]  # type: ignore[misc]
    given = {"length": length, "stride": stride} | ({"dtype": kind} if suffix == ".bin" else {})
    return named(contents, suffix, rows, given)


@st.composite
def documents(draw: st.DrawFn) -> Contents:
    """Tokens, with an index next to them."""
    files = draw(in_files(st.lists(st.integers(0, 99), min_size=1, max_size=4)))
    rows = [np.array(document, "<u2") for document in all_of(files)]
    return Contents(formats.megatron(files), rows)


@st.composite
def blobs(draw: st.DrawFn) -> Contents:
    """Whole files, each of which is a row."""
    found = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=9))
    rows = [{"name": f"{n:03}.raw", "data": data} for n, data in enumerate(found)]
    return named(found, ".raw", rows)


_NUMBERS = st.integers(-(2**31), 2**31 - 1).map(np.int32)
_SAMPLE = st.builds(lambda text, n: {"text": text, "number": n}, st.text(max_size=4), _NUMBERS)


@st.composite
def shards(draw: st.DrawFn) -> Contents:
    files = draw(in_files(_SAMPLE, 5))
    return Contents(formats.mds(files), all_of(files))


_CELL = st.none() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=3) | st.binary(max_size=3)
_KEYS = [st.integers(-99, 99), st.text("abcÄ'\"", min_size=1, max_size=3)]


@st.composite
def databases(draw: st.DrawFn) -> Contents:
    keys = draw(st.sampled_from(_KEYS))
    pair = st.tuples(keys, _CELL)
    rows = draw(st.lists(pair, max_size=9, unique_by=lambda row: row[0]))
    ordered = sorted(rows, key=lambda row: row[0].encode() if isinstance(row[0], str) else row[0])
    return Contents(
        {"a.db": formats.database(rows)}, [{"k": key, "v": value} for key, value in ordered]
    )

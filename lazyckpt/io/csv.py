"""`read_csv`: records of CSV files by number."""

from __future__ import annotations

import codecs
import csv
import io
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import Unfit, checked, natural, optional
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.executor import Executor
from lazyckpt.io.cache import Uint64Array
from lazyckpt.io.content import CHUNK, ChecksummedChunks, Compression, ContentScan
from lazyckpt.io.decompress import Damaged
from lazyckpt.io.files import Files, as_files
from lazyckpt.io.records import MAX_RECORD, Options, Records
from lazyckpt.io.rows import RecordError, Rows, decoding
from lazyckpt.io.storage import ChunkStream, File
from lazyckpt.io.text import encoding_check, is_utf8

_BOM = codecs.BOM_UTF8
_FLUSH = 1 << 16  # records whose offsets are yielded together


@dataclass(frozen=True)
class CsvScan(ContentScan):
    """The ends of records, found by the csv module, which reads bytes as characters.

    Text that the csv module rejects is a record too, up to the end of the line of the error.
    """

    delimiter: str = ","
    quotechar: str | None = '"'
    skip_lines: int = 0
    has_header: bool = True
    has_bom: bool = True  # True if a byte order mark at the front of a file is skipped
    field_limit: int = 0  # of the csv module

    @property
    def name(self) -> str:
        form = self.delimiter, self.quotechar, self.skip_lines, self.has_header, self.has_bom
        return f"csv {self.compression} {form} {self.field_limit}"

    def reader(self, lines: Iterator[str]) -> Iterator[list[str]]:
        """Return a reader of the records in lines, after the lines to skip."""
        return csv.reader(
            islice(lines, self.skip_lines, None),
            delimiter=self.delimiter,
            quotechar=self.quotechar,
            quoting=csv.QUOTE_MINIMAL if self.quotechar else csv.QUOTE_NONE,
            strict=True,
        )

    def __call__(self, file: File) -> Generator[NDArray[Any], None, int]:
        chunks = ChecksummedChunks(self.chunks(file))
        count = 0
        for ends in self._ends(chunks):
            count += len(ends)
            if len(ends):
                yield ends
        size = self.content(file).size(file)
        if count < 2 and self._is_damaged(file, size):  # no row would report it
            yield np.full(2 - count, size)
        return chunks.sum

    def _is_damaged(self, file: File, size: int) -> bool:
        try:
            self.content(file).read_ranges(file, [(max(0, size - 1), size)])
        except Damaged:
            return True
        return False

    def _ends(self, content: Iterator[bytes]) -> Iterator[NDArray[Any]]:
        source = io.BufferedReader(ChunkStream(content), CHUNK)
        chunks = iter(partial(source.read, CHUNK), b"")
        text = source.read(len(_BOM))
        passed = len(_BOM) if self.has_bom and text == _BOM else 0
        text = text[passed:]
        if not self.has_header:
            yield np.array([] if self.skip_lines else [passed], np.uint64)
        for chunk in () if self.skip_lines else chunks:
            text += chunk
            found = self._plain_ends(text)
            if found is None:
                break
            yield found[0] + passed
            passed, text = passed + found[1], text[found[1] :]
        ends = self._parsed_ends(chain([text], chunks), passed)
        while some := [*islice(ends, _FLUSH)]:
            yield np.array(some, np.uint64)

    def _plain_ends(self, text: bytes) -> tuple[NDArray[np.int64], int] | None:
        """Return the ends of records that are plain lines, and the end of all lines.

        None if the csv module has to parse the text, because it has quotes, other line ends or
        lines longer than a field may be.
        """
        size = text.rfind(b"\n") + 1
        lines = text[:size]
        is_quoted = self.quotechar is not None and self.quotechar.encode() in lines
        if is_quoted or lines.count(b"\r") != lines.count(b"\r\n"):
            return None
        values = np.frombuffer(lines, np.uint8)
        ends = np.flatnonzero(values == ord("\n")) + 1
        lengths = np.diff(ends, prepend=0)
        if max(len(text) - size, lengths.max(initial=0)) > self.field_limit:
            return None
        is_blank = (lengths == 1) | ((lengths == 2) & (values[ends - 2] == ord("\r")))
        return ends[~is_blank], size

    def _parsed_ends(self, chunks: Iterator[bytes], passed: int) -> Iterator[int]:
        """Yield the ends found by the csv module, after the end of the skipped lines."""
        source = io.BufferedReader(ChunkStream(chunks), _FLUSH)
        text = io.TextIOWrapper(source, "latin-1", newline="")
        skipped = passed

        def lines() -> Iterator[str]:
            nonlocal passed, skipped
            for number, line in enumerate(iter(partial(text.readline, MAX_RECORD), "")):
                passed += len(line)
                rest = line  # the rest of a longer line is skipped
                while len(rest) == MAX_RECORD and rest[-1] not in "\r\n":
                    rest = text.readline(MAX_RECORD)
                    passed += len(rest)
                skipped = passed if number < self.skip_lines else skipped
                yield line

        records = self.reader(lines())
        is_first = self.skip_lines > 0 and not self.has_header
        while True:
            try:
                fields = next(records, None)
            except csv.Error:
                fields = [""]
            if is_first:
                yield 0 if fields is None else skipped
                is_first = False
            if fields is None:
                return
            if fields:
                yield passed


class CsvRows(Records[dict[str, str]]):
    """Records as dicts of strings."""

    reader = "read_csv"
    scan: CsvScan

    def __init__(
        self,
        files: Files,
        scan: CsvScan,
        options: Options,
        columns: Sequence[str] | None,
        encoding: str,
        given: Mapping[str, Any],
    ) -> None:
        self._encoding = "utf-8" if scan.has_bom else encoding
        self._checked: set[int] = set()  # files whose headers equal the first file's
        super().__init__(files, scan, options, given)
        self.columns = self._header() if columns is None else list(columns)

    def decode(self, record: bytes) -> dict[str, str]:
        (fields,) = self._parsed(record)
        return self._row(fields)

    def decode_all(self, content: bytes, bounds: Uint64Array) -> list[dict[str, str]]:
        return list(map(self._row, self._parsed(content)))

    def read_rows(self, number: int, records: Sequence[int]) -> list[dict[str, str]]:
        self._check_header(number)
        return super().read_rows(number, records)

    def read_row(self, number: int, record: int) -> dict[str, str]:
        self._check_header(number)
        return super().read_row(number, record)

    def read_block(self, number: int, record: int, budget: int) -> list[dict[str, str]]:
        self._check_header(number)
        return super().read_block(number, record, budget)

    def _parsed(self, content: bytes) -> Iterator[list[str]]:
        lines = io.StringIO(content.decode(self._encoding), newline="")
        return filter(None, replace(self.scan, skip_lines=0).reader(lines))

    def _row(self, fields: list[str]) -> dict[str, str]:
        if len(fields) != len(self.columns):
            raise ValueError(f"{len(fields)} fields, but there are {len(self.columns)} columns")
        return dict(zip(self.columns, fields, strict=True))

    def _header(self) -> list[str]:
        number = next(filter(self._has_header, range(len(self.files))), 0)
        names = self._header_of(number)
        if len({*names}) < len(names):
            raise ArgumentError(
                f"read_csv: columns must have different names, got {names} in "
                f"{self.files[number].path}; columns=[...], skip_lines={self.scan.skip_lines + 1} "
                "renames them"
            )
        return names

    def _has_header(self, number: int) -> bool:
        try:
            return bool(self._header_of(number))
        except Damaged:  # reading its rows raises it again
            return False

    def _header_of(self, number: int) -> list[str]:
        """Return the names of columns in a file; [] if it is empty."""
        entries, file = self.row_index.entries(number), self.files[number]
        if not len(entries):
            return []
        if (end := int(entries[0])) > self.options.max_record_bytes:
            raise RecordError(f"{file.path}: its header has {end:,} bytes")
        content = self._content(number).read_ranges(file, [(0, end)])[0]
        content = content.removeprefix(_BOM) if self.scan.has_bom else content
        with decoding(file):
            lines = io.StringIO(content.decode(self._encoding), newline="")
            return next(filter(None, self.scan.reader(lines)))

    def _check_header(self, number: int) -> None:
        if self.scan.has_header and number not in self._checked:
            names = self._header_of(number)
            if names != self.columns:
                raise ArgumentError(
                    f"read_csv: {self.files[number].path} has the columns {names}, "
                    f"but the first file has {self.columns}"
                )
            self._checked.add(number)


def _names(value: Any) -> list[str]:
    names: list[Any] = list(value) if isinstance(value, (list, tuple)) else [None]
    if not names or not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        raise Unfit("a list of different names")
    return names


def _check_marks(delimiter: str, quotechar: str | None, encoding: str) -> None:
    """Raise an error if bytes that delimit fields could be anything else."""
    if delimiter == quotechar:
        raise ArgumentError(
            f"read_csv: delimiter and quotechar must differ, got {delimiter!r} twice"
        )
    marks = (delimiter + (quotechar or "")).encode()
    others = "".join(map(chr, range(128, 1 << 16)))
    if not is_utf8(encoding) and {*marks} & {*others.encode(encoding, "ignore")}:
        raise ArgumentError(
            f"read_csv: with encoding={encoding!r}, other characters may have bytes of delimiter="
            f"{delimiter!r} or quotechar={quotechar!r}; convert the files to UTF-8"
        )


def _character(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in "\r\n":
        raise Unfit("one ASCII character")
    return value


def read_csv(
    files: Any,
    *,
    columns: Sequence[str] | None = None,
    delimiter: str = ",",
    quotechar: str | None = '"',
    skip_lines: int = 0,
    encoding: str = "utf-8",
    compression: Compression = "infer",
    max_record_bytes: int = MAX_RECORD,
    index_dir: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> Rows[dict[str, str]]:
    """Read the records of CSV files, by number, as dicts of strings.

    Files are read as the `csv` module reads them with `strict=True`. A quoted field may hold
    newlines, and a quote inside it is doubled. Lines end with `\\n`, `\\r\\n` or `\\r`. Blank lines
    and a byte order mark at the front of UTF-8 are skipped.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Args:
        columns: Names of the columns, if files have no header or `skip_lines` skips it. By default
            they are the first record of each file, which must be the same in all files.
        delimiter: Character between fields, such as a tab.
        quotechar: Character around quoted fields; None if quotes have no special meaning.
        skip_lines: Number of lines to skip at the front of each file, such as comments.
        encoding: Encoding in which a newline is one byte, and no other character has bytes that
            equal `delimiter` or `quotechar`.

    Raises:
        ArgumentError: If a file has other columns than the first, or if `encoding` doesn't fit.
        RecordError: If a record has more or fewer fields than there are columns, can't be decoded,
            is invalid for the `csv` module, for example because a quote is left open, or has a
            field above `csv.field_size_limit()` bytes.

    >>> import lazyckpt as lz
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text('x,y\\n1,"two\\nlines"\\n3,4\\n')
    ...     rows = lz.io.read_csv(f"{folder}/a.csv", index_dir=folder)
    ...     len(rows), rows[0]
    (2, {'x': '1', 'y': 'two\\nlines'})
    """
    options = Options.of("read_csv", compression, max_record_bytes, index_dir, executor, progress)
    usual = {
        "columns": None, "delimiter": ",", "quotechar": '"', "skip_lines": 0, "encoding": "utf-8"
    }  # fmt: skip
    given = {
        "columns": checked("read_csv", "columns", columns, optional(_names)),
        "delimiter": checked("read_csv", "delimiter", delimiter, _character),
        "quotechar": checked("read_csv", "quotechar", quotechar, optional(_character)),
        "skip_lines": checked("read_csv", "skip_lines", skip_lines, natural),
        "encoding": checked("read_csv", "encoding", encoding, encoding_check),
    }
    _check_marks(delimiter, quotechar, encoding)
    scan = CsvScan(
        options.compression,
        options.index_dir,
        delimiter=delimiter,
        quotechar=quotechar,
        skip_lines=given["skip_lines"],
        has_header=columns is None,
        has_bom=is_utf8(encoding),
        field_limit=csv.field_size_limit(),
    )
    shown = {name: value for name, value in given.items() if value != usual[name]}
    return CsvRows(as_files(files, "read_csv"), scan, options, given["columns"], encoding, shown)

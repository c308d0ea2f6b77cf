"""`read_csv`: records of CSV files by number."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from io import StringIO
from typing import Any

from lazyckpt.core.checks import Unfit, checked, optional
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.executor import Executor
from lazyckpt.io.content import Compression
from lazyckpt.io.files import Files, as_files
from lazyckpt.io.lines import LineScan, encoding_check, without_end
from lazyckpt.io.numbers import Numbers
from lazyckpt.io.ranges import MAX_RECORD, Options, Records
from lazyckpt.io.rows import Rows


class CsvRows(Records[dict[str, str]]):
    """Records as dicts of texts."""

    reader = "read_csv"

    def __init__(
        self,
        files: Files,
        options: Options,
        columns: Sequence[str] | None,
        encoding: str,
        given: dict[str, Any],
        form: dict[str, Any],
    ) -> None:
        self.encoding, self.form = encoding, {**form, "strict": True}
        scan = LineScan(
            options.compression,
            options.index_dir,
            skips_blank=True,
            quote=form["quotechar"] or "",
            has_header=columns is None,
        )
        self._checked: set[int] = set()  # files whose headers are the first's
        super().__init__(files, scan, options, given)
        self.columns = self._header() if columns is None else list(columns)
        self.has_header = columns is None

    def decode(self, record: bytes) -> dict[str, str]:
        rows = self._parsed(without_end(record.lstrip(b"\r\n")))
        if len(rows) != 1:
            raise ValueError("a quote stands in a field that isn't quoted")
        return dict(zip(self.columns, self._fitting(rows[0]), strict=True))

    def decode_all(self, content: bytes, bounds: Numbers) -> list[dict[str, str]]:
        rows = [fields for fields in self._parsed(content) if fields]
        if len(rows) != len(bounds) - 1:
            return super().decode_all(content, bounds)
        columns = self.columns
        return [dict(zip(columns, self._fitting(row), strict=True)) for row in rows]

    def read_rows(self, number: int, records: Sequence[int]) -> list[dict[str, str]]:
        self._check_header(number)
        return super().read_rows(number, records)

    def read_row(self, number: int, record: int) -> dict[str, str]:
        self._check_header(number)
        return super().read_row(number, record)

    def read_block(self, number: int, record: int, budget: int) -> list[dict[str, str]]:
        self._check_header(number)
        return super().read_block(number, record, budget)

    def _parsed(self, content: bytes) -> list[list[str]]:
        return list(csv.reader(StringIO(content.decode(self.encoding), newline=""), **self.form))

    def _fitting(self, fields: list[str]) -> list[str]:
        if len(fields) != len(self.columns):
            raise ValueError(f"{len(fields)} fields, and there are {len(self.columns)} columns")
        return fields

    def _header(self) -> list[str]:
        number = next((n for n in range(len(self.files)) if self._header_of(n)), 0)
        names = self._header_of(number)
        if len({*names}) < len(names):
            raise ArgumentError(
                f"read_csv: columns need names of their own, got {names} in "
                f"{self.files[number].path}"
            )
        return names

    def _header_of(self, number: int) -> list[str]:
        """The names of columns in a file; none of an empty one."""
        entries = self.row_index.entries(number)
        if not len(entries):
            return []
        content = self._content(number).read_ranges(self.files[number], [(0, int(entries[0]))])[0]
        (names,) = self._parsed(without_end(content.lstrip(b"\r\n")))
        return names

    def _check_header(self, number: int) -> None:
        if self.has_header and number not in self._checked:
            names = self._header_of(number)
            if names != self.columns:
                raise ArgumentError(
                    f"read_csv: {self.files[number].path} has the columns {names}, "
                    f"where the first file has {self.columns}"
                )
            self._checked.add(number)


def _names(value: Any) -> list[str]:
    names: list[Any] = list(value) if isinstance(value, (list, tuple)) else [None]
    if not names or not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        raise Unfit("a list of different names")
    return names


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
    encoding: str = "utf-8",
    compression: Compression = "infer",
    max_record_bytes: int = MAX_RECORD,
    index_dir: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> Rows[dict[str, str]]:
    """The records of CSV files, by number, as dicts of texts.

    Files are as RFC 4180 has them: a field may hold newlines where it is quoted, and
    a quote that stands for itself is doubled. Where records begin is found once and kept in
    an index of 8 bytes a record. Blank lines are no records.

    Args:
        files: A listing by `lazyckpt.io.files`, or patterns for one.
        columns: The columns' names, where files have no header; by default the first
            record of each file says them, and all say the same.
        delimiter: What is between fields, such as a tab.
        quotechar: What is around fields; None where quotes stand for themselves.
        encoding: One in which a newline is one byte.
        compression: "infer" goes by `.gz`, `.bgz`, `.zst` and `.zstd` at the end of a name;
            else "none", "gzip" or "zstd".
        max_record_bytes: A longer record is an error; of one that isn't read nothing is.
        index_dir: Where indices are kept; by default `LAZYCKPT_CACHE`, or the user's
            folder for caches.
        executor: Who scans files for records, where there is no index yet.
        progress: Whether to show a bar of tqdm meanwhile, where installed.

    Returns:
        The rows, data for `source` and for `|`.

    Raises:
        ArgumentError: For a file of other columns than the first, or without random access.
        RecordError: When a record is read that has more or fewer fields, is longer, is no
            text, or has a field above `csv.field_size_limit()`; it names the record,
            its offset and the file.
        SourceChanged: When a file is read that changed since the listing.
        PipelineError: The index can't be written, or a compressed file is damaged.

    State:
        The epoch and a count of rows; of the files their number and a digest.

    Resume:
        Re-reads nothing; of a compressed file, from the nearest point that can be sought.

    Random access:
        Yes. A row of a compressed file takes what is before it in its block: in 2 MiB or so of
        gzip, a small gzip member or a zstd frame. The last read blocks are kept;
        `local_shuffle` decompresses each once, if `window` of them fit into 64 MiB.

    Rank-free:
        Yes.

    Memory:
        Some 112 KiB of rows at a time, and pieces of compressed files, at most 64 MiB.

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
    form = {
        "delimiter": checked("read_csv", "delimiter", delimiter, _character),
        "quotechar": checked("read_csv", "quotechar", quotechar, optional(_character)),
    }
    usual = {"columns": None, "delimiter": ",", "quotechar": '"', "encoding": "utf-8"}
    given = {**form, "columns": checked("read_csv", "columns", columns, optional(_names))}
    given["encoding"] = checked("read_csv", "encoding", encoding, encoding_check)
    shown = {name: given[name] for name in usual if given[name] != usual[name]}
    if quotechar is None:
        form["quoting"] = csv.QUOTE_NONE
    listed = as_files(files, "read_csv")
    return CsvRows(listed, options, given["columns"], given["encoding"], shown, form)

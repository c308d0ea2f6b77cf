"""`read_text`, `read_jsonl`: lines of files by number."""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import PurePosixPath
from secrets import token_hex
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import Unfit, checked, function, optional
from lazyckpt.executors.executor import Executor
from lazyckpt.io.cache import Uint64Array
from lazyckpt.io.content import ChecksummedChunks, Compression, ContentScan
from lazyckpt.io.decompress import Damaged
from lazyckpt.io.files import Files, as_files
from lazyckpt.io.records import MAX_RECORD, Options, Records
from lazyckpt.io.rows import RecordError, Rows
from lazyckpt.io.storage import File

_NEWLINE = 10
_IS_SPACE = np.isin(np.arange(256), list(b" \t\r\n\v\f"))
_HEAD = 1 << 16  # most bytes of a first record that are checked
_BETWEEN = token_hex(8)  # a random string that no existing file contains
_WHOLE = {"utf-8", "utf8", "ascii", "latin-1"}  # encodings whose lines may be decoded together


@dataclass(frozen=True)
class LineScan(ContentScan):
    """The offsets of lines, found by a search for newlines.

    In JSON, blank lines are not rows but part of the next row's bytes. A file that is one JSON
    value over several lines is rejected.
    """

    is_json: bool = False

    @property
    def name(self) -> str:
        return f"{'records' if self.is_json else 'lines'} {self.compression}"

    def __call__(self, file: File) -> Generator[NDArray[Any], None, int]:
        yield np.zeros(1, np.uint64)
        chunks = ChecksummedChunks(self.chunks(file))
        first, count = 0, 0  # end of the first row, number of rows
        for ends in self._ends(chunks):
            if len(ends):
                first, count = first or int(ends[0]), count + len(ends)
                yield ends
        if self.is_json and first:
            self._check(file, first, count)
        return chunks.sum

    def _ends(self, chunks: Iterator[bytes]) -> Iterator[NDArray[Any]]:
        """Yield the ends of lines that are rows."""
        passed, bound = 0, 0  # bytes read, start of the current line
        is_blank = True  # True if the current line is blank up to here
        for chunk in chunks:
            values = np.frombuffer(chunk, np.uint8)
            ends = kept = np.flatnonzero(values == _NEWLINE) + 1
            if self.is_json and len(ends):
                starts = np.append(0, ends[:-1])
                is_row = ~_IS_SPACE[values[starts]]
                for place in np.flatnonzero(~is_row):
                    is_row[place] = bool(chunk[starts[place] : ends[place]].strip())
                is_row[0] |= not is_blank
                kept = ends[is_row]
            yield kept + passed
            rest = chunk[ends[-1] :] if len(ends) else chunk
            is_blank = (is_blank or len(ends) > 0) and not rest.strip()
            passed += len(chunk)
            bound = passed - len(rest) if len(ends) else bound
        if passed > bound and not (self.is_json and is_blank):
            yield np.array([passed], np.uint64)

    def _check(self, file: File, first: int, count: int) -> None:
        """Raise an error if a file is a single JSON value, judging by its first row."""
        try:
            (head,) = self.content(file).read_ranges(file, [(0, min(first, _HEAD))])
        except Damaged:  # reading the row raises it again
            return
        head = head.strip().removeprefix(codecs.BOM_UTF8)
        is_open = count > 1 and first <= _HEAD and head.endswith((b"[", b"{", b","))
        is_array = count == 1 and ".json" in PurePosixPath(file.path).suffixes
        if (is_open and head.startswith((b"[", b"{"))) or (is_array and head.startswith(b"[")):
            raise RecordError(
                f"{file.path}: it is a single JSON value, not JSON lines; read it with json.load "
                "and pass its items to source, or convert it by jq -c '.[]'"
            )


def without_end(record: bytes) -> bytes:
    """Return a line without its newline."""
    if record.endswith(b"\n"):
        return record[:-2] if record.endswith(b"\r\n") else record[:-1]
    return record


def encoding_check(value: Any) -> str:
    """Accept an encoding in which lines can be told apart."""
    try:
        if b"\n".decode(value) == "\n":
            return str(value)
    except (LookupError, UnicodeError, TypeError):
        pass
    raise Unfit("an encoding in which a newline is one byte, such as 'utf-8'")


def errors_check(value: Any) -> str:
    """Accept a value for `errors` of `bytes.decode`."""
    try:
        codecs.lookup_error(value)
        return str(value)
    except (LookupError, TypeError):
        raise Unfit("one of Python's error handlers, such as 'replace'") from None


class TextRows(Records[str]):
    """Lines as strings."""

    reader = "read_text"

    def __init__(self, files: Files, options: Options, encoding: str, errors: str) -> None:
        self.encoding, self.errors = encoding, errors
        given = {"encoding": encoding} if encoding != "utf-8" else {}
        given |= {"errors": errors} if errors != "strict" else {}
        super().__init__(files, LineScan(options.compression, options.index_dir), options, given)

    def decode(self, record: bytes) -> str:
        return str(without_end(record), self.encoding, self.errors)

    def decode_all(self, content: bytes, bounds: Uint64Array) -> list[str]:
        if self.encoding in _WHOLE:
            text = str(content, self.encoding, self.errors)
            if "\r" not in text:
                found = text.split("\n")
                if not found[-1]:
                    found.pop()
                if len(found) == len(bounds) - 1:
                    return found
        return super().decode_all(content, bounds)


class JsonRows(Records[Any]):
    """Lines parsed as JSON."""

    reader = "read_jsonl"

    def __init__(
        self, files: Files, options: Options, loads: Callable[[Any], Any] | None, encoding: str
    ) -> None:
        self._from_json = json_decoder(loads or json_loads(), encoding)
        self._loads = json_loads() if loads is None and is_utf8(encoding) else None
        given: dict[str, Any] = {} if loads is None else {"loads": loads}
        given |= {"encoding": encoding} if encoding != "utf-8" else {}
        scan = LineScan(options.compression, options.index_dir, is_json=True)
        super().__init__(files, scan, options, given)

    def decode(self, record: bytes) -> Any:
        return self._from_json(record)

    def decode_all(self, content: bytes, bounds: Uint64Array) -> list[Any]:
        if self._loads is not None:
            found = _loaded_at_once(self._loads, content)
            if len(found) == len(bounds) - 1:
                return found
        lines = content.removesuffix(b"\n").split(b"\n")
        if len(lines) == len(bounds) - 1:
            return list(map(self._from_json, lines))
        return super().decode_all(content, bounds)


def is_utf8(encoding: str) -> bool:
    return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")


def json_decoder(loads: Callable[[Any], Any], encoding: str) -> Callable[[bytes], Any]:
    """Return a function from a line to a value; it passes `loads` the line without white space."""
    return partial(_from_json, loads, None if is_utf8(encoding) else encoding)


def _from_json(loads: Callable[[Any], Any], encoding: str | None, line: bytes) -> Any:
    value = line.strip()
    return loads(str(value, encoding) if encoding else value.removeprefix(codecs.BOM_UTF8))


def _loaded_at_once(loads: Callable[[bytes], Any], lines: bytes) -> list[Any]:
    """Parse lines of JSON as one array; return nothing unless each line is one value.

    A random string is inserted between lines. If each of these strings is an item of the array,
    each line is one value.
    """
    between = b',"%b",' % _BETWEEN.encode()
    end = b"0]" if lines.endswith(b"\n") else between + b"0]"
    try:
        found = loads(b"".join((b"[", lines.replace(b"\n", between), end)))
    except Exception:  # reading lines one by one finds the bad one
        return []
    size = len(found) // 2
    return found[:-1:2] if found[1::2].count(_BETWEEN) == size else []


def plain_loads(record: bytes | str) -> Any:
    """Parse JSON with the standard library; `NaN` is an error, as in the JSON standard."""
    text = record if isinstance(record, str) else str(record, "utf-8")
    return json.loads(text, parse_constant=_no_constant)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def json_loads() -> Callable[[Any], Any]:
    """Return a function equivalent to `plain_loads`, faster if msgspec is installed."""
    try:
        return partial(_as_plain, import_module("msgspec").json.decode)
    except ImportError:
        return plain_loads


def _as_plain(loads: Callable[[Any], Any], record: bytes | str) -> Any:
    """Parse JSON with msgspec, or `plain_loads` if it rejects a value, such as lone surrogates."""
    try:
        return loads(record)
    except Exception:  # its error types differ between versions
        return plain_loads(record)


def read_text(
    files: Any,
    *,
    encoding: str = "utf-8",
    errors: str = "strict",
    compression: Compression = "infer",
    max_record_bytes: int = MAX_RECORD,
    index_dir: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> Rows[str]:
    """Read the lines of text files, by number, without their `\\n` or `\\r\\n`.

    A blank line is a row. The last line needs no newline.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Args:
        encoding: Encoding in which a newline is one byte.
        errors: Handling of bytes that can't be decoded, as in `bytes.decode`.

    Raises:
        RecordError: If a line can't be decoded.

    >>> import lazyckpt as lz
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("to be\\nor not\\nto be\\n")
    ...     lines = lz.io.read_text(f"{folder}/a.txt", index_dir=folder)
    ...     len(lines), lines[1], list(lines | lz.batch(2))
    (3, 'or not', [['to be', 'or not'], ['to be']])
    """
    encoding = checked("read_text", "encoding", encoding, encoding_check)
    options = Options.of("read_text", compression, max_record_bytes, index_dir, executor, progress)
    listed = as_files(files, "read_text")
    return TextRows(listed, options, encoding, checked("read_text", "errors", errors, errors_check))


def read_jsonl(
    files: Any,
    *,
    loads: Callable[[Any], Any] | None = None,
    encoding: str = "utf-8",
    compression: Compression = "infer",
    max_record_bytes: int = MAX_RECORD,
    index_dir: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> Rows[Any]:
    """Read the values of JSON lines files, by number.

    Blank lines are skipped. The last line needs no newline. A byte order mark before a value is
    ignored.

    See `Rows` for what all readers share: arguments, errors, state and memory.

    Args:
        loads: Function from the bytes of a line, without surrounding white space, to a row. It gets
            a str if `encoding` isn't "utf-8". By default the standard library's parser, except that
            `NaN` is an error; faster if msgspec is installed.
        encoding: Encoding in which a newline is one byte.

    Raises:
        RecordError: If a file is one value over several lines, or an array in a `.json`, or if a
            line is not valid JSON.

    >>> import lazyckpt as lz
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.jsonl").write_text('{"x": 1}\\n{"x": 2}\\n')
    ...     rows = lz.io.read_jsonl(f"{folder}/a.jsonl", index_dir=folder)
    ...     len(rows), rows[1], rows.locate(1)[1:]
    (2, {'x': 2}, (1, 9, 18))
    """
    options = Options.of("read_jsonl", compression, max_record_bytes, index_dir, executor, progress)
    found = checked("read_jsonl", "loads", loads, optional(function))
    code = checked("read_jsonl", "encoding", encoding, encoding_check)
    return JsonRows(as_files(files, "read_jsonl"), options, found, code)

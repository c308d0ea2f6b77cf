"""`iter_text`, `iter_jsonl`: read a file from its front, if it has no random access."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from io import BufferedReader
from os import PathLike, fspath
from typing import Any

from lazyckpt.core.checks import checked, function, optional, positive
from lazyckpt.io.content import CHUNK, Compression, compression_check
from lazyckpt.io.decompress import Zstd, compression_from_suffix, decompressed_pieces, plain_chunks
from lazyckpt.io.records import MAX_RECORD
from lazyckpt.io.rows import RecordError
from lazyckpt.io.storage import ChunkStream, File, RowOrigin, storage_of
from lazyckpt.io.text import encoding_check, errors_check, json_decoder, json_loads, without_end


def iter_text(
    file: File | str | PathLike[str],
    *,
    encoding: str = "utf-8",
    errors: str = "strict",
    compression: Compression = "infer",
    max_record_bytes: int = MAX_RECORD,
) -> Iterator[str]:
    """Yield the lines of a file from its front, for `flat_map`, if the file has no random access.

    A state has the file and the number of lines yielded. Resuming reads that file from its front,
    because a file without an index has no nearer position. If a file has random access, use
    `flat_map(read_text)`, which resumes at the line itself. `trace` shows a line's file, number and
    bytes.

    Args:
        file: A file of a listing, or a path.
        encoding: Encoding in which a newline is one byte.
        errors: Handling of bytes that can't be decoded, as in `bytes.decode`.
        compression: "infer" uses the suffix, for gzip, zstd, xz and bz2; alternatives are "none",
            "gzip", "zstd" or options of `lazyckpt.io.Zstd`.
        max_record_bytes: Most bytes of a line; a longer one is an error and is never held in
            memory.

    Raises:
        RecordError: If a line can't be decoded or is too long. The error names the record, its
            offset and the file. The next call yields the line after it; `on_error="skip"` continues
            there.
        SourceChanged: If the file changed since the listing.
        PipelineError: If a compressed file is damaged or cut.

    >>> import lazyckpt as lz
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("to be\\nor not\\n")
    ...     files = lz.io.files(f"{folder}/*.txt")
    ...     list(lz.source(files) | lz.flat_map(lz.io.iter_text))
    ['to be', 'or not']
    """
    kind = checked("iter_text", "compression", compression, compression_check)
    code = checked("iter_text", "encoding", encoding, encoding_check)
    way = checked("iter_text", "errors", errors, errors_check)
    most = checked("iter_text", "max_record_bytes", max_record_bytes, positive)
    return _Values(
        file, kind, lambda line: str(without_end(line), code, way), most, keeps_blank=True
    )


def iter_jsonl(
    file: File | str | PathLike[str],
    *,
    loads: Callable[[Any], Any] | None = None,
    encoding: str = "utf-8",
    compression: Compression = "infer",
    max_record_bytes: int = MAX_RECORD,
) -> Iterator[Any]:
    """Yield the values of a JSON lines file from its front, like `iter_text` for lines.

    Args:
        file: A file of a listing, or a path.
        loads: Function from the bytes of a line to a value, as in `read_jsonl`.
        encoding: As in `read_jsonl`.
        compression: As in `iter_text`.
        max_record_bytes: As in `iter_text`.

    Raises:
        RecordError: If a line is not valid JSON or is too long, as in `iter_text`.
        SourceChanged: If the file changed since the listing.
        PipelineError: If a compressed file is damaged or cut.

    >>> import lazyckpt as lz
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.jsonl").write_text("[1]\\n[2]\\n")
    ...     list(lz.io.iter_jsonl(f"{folder}/a.jsonl"))
    [[1], [2]]
    """
    found = checked("iter_jsonl", "loads", loads, optional(function)) or json_loads()
    kind = checked("iter_jsonl", "compression", compression, compression_check)
    code = checked("iter_jsonl", "encoding", encoding, encoding_check)
    most = checked("iter_jsonl", "max_record_bytes", max_record_bytes, positive)
    return _Values(file, kind, json_decoder(found, code), most, keeps_blank=False)


class _Values(Iterator[Any]):
    """The decoded lines of a file; after an error, iteration continues with the next line."""

    goes_on = True

    def __init__(
        self,
        file: File | str | PathLike[str],
        compression: str | Zstd,
        decode: Callable[[bytes], Any],
        most: int,
        *,
        keeps_blank: bool,
    ) -> None:
        found = file if isinstance(file, File) else storage_of(fspath(file)).stat(fspath(file))
        self._path, self._most = found.path, most
        self._lines = _lines(found, compression, most)
        self._decode, self._keeps_blank = decode, keeps_blank
        self._number = self._offset = 0
        self._has_failed = True
        self._origin: Callable[[int, int, int], RowOrigin] | None = None

    def located(self) -> Iterator[tuple[Any, RowOrigin]]:
        """Yield each value with its origin."""
        self._origin = partial(RowOrigin, self._path)
        return self

    def watch(self, wrap: Callable[[Callable[[bytes], Any]], Callable[[bytes], Any]]) -> None:
        """Wrap the function that decodes a line; call it before the first line is read."""
        self._decode = wrap(self._decode)

    def __iter__(self) -> Iterator[Any]:
        if self._has_failed:
            self._has_failed, self._pull = False, self._values()
        return self._pull

    def __next__(self) -> Any:
        return next(iter(self))

    def _values(self) -> Iterator[Any]:
        decode, keeps_blank, origin = self._decode, self._keeps_blank, self._origin
        number, offset = self._number, self._offset
        for line in self._lines:
            try:
                length = len(line)
                if not (keeps_blank or line.strip()):
                    offset += length
                    continue
                made = decode(line)
            except Exception as error:
                reason: object = error
                if type(line) is int:
                    length = line
                    reason = f"it has {line:,} bytes, and max_record_bytes is {self._most:,}"
                self._number, self._offset, self._has_failed = number + 1, offset + length, True
                where = f"record {number:,} at byte {offset:,} of {self._path}"
                raise RecordError(f"{where}: {reason}") from error
            yield made if origin is None else (made, origin(number, offset, offset + length))
            number += 1
            offset += length


def _lines(file: File, compression: str | Zstd, most: int) -> Iterator[Any]:
    """Yield lines; for a line longer than `most` bytes, yield its length instead."""
    source = BufferedReader(ChunkStream(_chunks(file, compression)), CHUNK)
    for line in iter(partial(source.readline, most + 1), b""):
        if len(line) <= most:
            yield line
            continue
        length, part = len(line), line
        while not part.endswith(b"\n") and (part := source.readline(CHUNK)):
            length += len(part)
        yield length


def _chunks(file: File, compression: str | Zstd) -> Iterator[bytes]:
    kind = compression_from_suffix(file.path) if compression == "infer" else compression
    if kind in (None, "none"):
        return plain_chunks(file, CHUNK)
    return (made for made, _ in decompressed_pieces(file, kind))

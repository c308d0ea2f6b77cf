"""`iter_text`, `iter_jsonl`: a file from its front, for what has no random access."""

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
    """The lines of a file from its front, for `flat_map`, where it has no random access.

    A state has the file and how many lines were given; a resume reads that file from its
    front, as what has no index has no nearer point. `flat_map(read_text)` enters a file that
    has random access at the line itself. `trace` tells a line's file, number and bytes.

    Args:
        file: One of a listing, or a path.
        encoding: One in which a newline is one byte.
        errors: What becomes of bytes that are no text, as for `bytes.decode`.
        compression: "infer" goes by the end of a name, for gzip, zstd, xz and bz2; else "none",
            "gzip", "zstd" or options of `lazyckpt.io.Zstd`.
        max_record_bytes: A longer line is an error, and never in memory.

    Raises:
        RecordError: For a line that is no text, or longer; it names the record, its offset
            and the file. What comes next is the line behind it, which
            `on_error="skip"` goes on with.
        SourceChanged: The file changed since the listing.
        PipelineError: For a compressed file that is damaged or cut off.

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
    """The values of a file of JSON lines from its front, as `iter_text` for lines.

    Args:
        file: One of a listing, or a path.
        loads: From the bytes of a line to a value, as for `read_jsonl`.
        encoding: As for `read_jsonl`.
        compression: As for `iter_text`.
        max_record_bytes: A longer line is an error, and never in memory.

    Raises:
        RecordError: For a line that is no JSON, or longer; as for lines.
        SourceChanged: The file changed since the listing.
        PipelineError: For a compressed file that is damaged or cut off.

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
    """What the lines of a file are. After an error it goes on with the next one."""

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
        """The same, each with where it comes from."""
        self._origin = partial(RowOrigin, self._path)
        return self

    def watch(self, wrap: Callable[[Callable[[bytes], Any]], Callable[[bytes], Any]]) -> None:
        """Have the function that decodes a line wrapped: before the first one is read."""
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
    """Yield lines; of one that is longer than `most` bytes, how many it has."""
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

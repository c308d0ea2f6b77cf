"""`iter_text`, `iter_jsonl`: a file from its front, for what has no random access."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from os import PathLike, fspath
from typing import Any

from lazyckpt.io.content import CHUNK
from lazyckpt.io.decompress import compression_of, pieces
from lazyckpt.io.lines import without_end
from lazyckpt.io.ranges import MAX_RECORD
from lazyckpt.io.rows import RecordError
from lazyckpt.io.storage import File, storage_of
from lazyckpt.io.text import json_loads


def iter_text(
    file: File | str | PathLike[str], *, encoding: str = "utf-8", errors: str = "strict"
) -> Iterator[str]:
    """The lines of a file from its front, for `flat_map`, where it has no random access.

    A resume reads the file it stands in from its front. It knows gzip, zstd, xz and bz2 by the
    end of the name.

    Args:
        file: One of a listing, or a path.
        encoding: One in which a newline is one byte.
        errors: What becomes of bytes that are no text, as for `bytes.decode`.

    Raises:
        RecordError: For a line that is no text, or of more than 256 MiB.
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
    return _decoded(file, lambda line: str(without_end(line), encoding, errors), keeps_blank=True)


def iter_jsonl(
    file: File | str | PathLike[str], *, loads: Callable[[Any], Any] | None = None
) -> Iterator[Any]:
    """The values of a file of JSON lines from its front, as `iter_text` for lines.

    Args:
        file: One of a listing, or a path.
        loads: From the bytes of a line to a value, as for `read_jsonl`.

    Raises:
        RecordError: For a line that is no JSON, or of more than 256 MiB.
        PipelineError: For a compressed file that is damaged or cut off.

    >>> import lazyckpt as lz
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.jsonl").write_text("[1]\\n[2]\\n")
    ...     list(lz.io.iter_jsonl(f"{folder}/a.jsonl"))
    [[1], [2]]
    """
    return _decoded(file, loads or json_loads(), keeps_blank=False)


def _decoded(
    file: File | str | PathLike[str], decode: Callable[[bytes], Any], *, keeps_blank: bool
) -> Iterator[Any]:
    found = file if isinstance(file, File) else storage_of(fspath(file)).stat(fspath(file))
    offset = number = 0
    for line in _lines(found):
        if keeps_blank or line.strip(b"\r\n"):
            try:
                made = decode(line)
            except Exception as error:
                where = f"record {number:,} at byte {offset:,} of {found.path}"
                raise RecordError(f"{where}: {error}") from error
            yield made
            number += 1
        offset += len(line)


def _lines(file: File) -> Iterator[bytes]:
    rest: list[bytes] = []  # of a line that goes on
    for chunk in _chunks(file):
        first, *more = BytesIO(chunk)
        rest.append(first)
        if sum(map(len, rest)) > MAX_RECORD:
            raise RecordError(f"a line of {file.path} has more than {MAX_RECORD:,} bytes")
        if not first.endswith(b"\n"):
            continue
        yield b"".join(rest)
        *complete, last = more or [b""]
        yield from complete
        if last.endswith(b"\n"):
            yield last
            last = b""
        rest = [last]
    if any(rest):
        yield b"".join(rest)


def _chunks(file: File) -> Iterator[bytes]:
    kind = compression_of(file.path)
    if kind is not None:
        for made, _ in pieces(file, kind):
            yield made
        return
    storage = storage_of(file.path)
    for start in range(0, file.size, CHUNK):
        yield storage.read(file, start, min(start + CHUNK, file.size))

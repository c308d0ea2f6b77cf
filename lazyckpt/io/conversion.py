"""`convert`: the items of a pipeline, written to files of so many each."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, islice
from typing import Any, Literal, TypeAlias

from lazyckpt.combinators.source import source
from lazyckpt.core.call import Chain, runnable
from lazyckpt.core.checks import Unfit, boolean, brief, checked, one_of, positive
from lazyckpt.errors import ArgumentError, InvalidState, PipelineError
from lazyckpt.executors.executor import Executor
from lazyckpt.io.cache import write_whole, writing
from lazyckpt.io.encoders import Encoder, JsonLines, Parquet, Tar, Tokens
from lazyckpt.io.files import Files
from lazyckpt.io.locks import exclusive_lock
from lazyckpt.io.progress import shown
from lazyckpt.io.storage import storage_of
from lazyckpt.io.tokens import MEGATRON_TYPES, numbers_check
from lazyckpt.pipeline import Pipeline, run
from lazyckpt.run import Run

Format: TypeAlias = Literal["parquet", "jsonl.zst", "tar", "tokens"]

LISTING = "listing.json"

_LOG = "progress.jsonl"
_VERSION = 1
_ENCODERS: dict[str, Callable[..., Encoder]] = {
    "parquet": lambda folder, dtype, schema: Parquet(folder, schema),
    "jsonl.zst": lambda folder, dtype, schema: JsonLines(),
    "tar": lambda folder, dtype, schema: Tar(),
    "tokens": lambda folder, dtype, schema: Tokens(dtype),
}
FORMATS = tuple(_ENCODERS)

_END: Any = object()
_READ = 1 << 20  # bytes that are digested at once
_MOST = 10**6  # files, whose names have six digits


def convert(
    pipeline: Pipeline[Any] | Iterable[Any],
    folder: str | os.PathLike[str],
    *,
    format: Format,
    rows_per_file: int,
    dtype: Any = "uint16",
    schema: Any = None,
    executor: Executor | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    progress: bool = False,
) -> Files:
    """Write the items of a pipeline to files of so many rows each, which readers read again.

    Files are whole or not there. After each, the state of the pipeline is kept beside them: called
    again after a kill, or after an error, it goes on behind the last file, and the files
    become, byte for byte, those of a conversion that nothing has disturbed. At the end there
    is a `listing.json` of all files, with the numbers of their rows and bytes and their SHA-256.

    Args:
        pipeline: What gives the rows, an epoch of it; also a reader.
        folder: Where the files go, on this machine: new, empty, or that of a conversion
            which has begun.
        format: "parquet", of dicts, in row groups of some MiB; or "jsonl.zst", in zstd's
            seekable format, of frames of some MiB; or "tar", samples as WebDataset has them, a
            dict of bytes and texts as members by its `__key__` or its number, anything else as
            a `.json`; or "tokens", sequences of ints in one `.bin`, with Megatron's `.idx`
            of where rows begin. Texts are a column `text`, and members `.txt`.
        rows_per_file: How many rows a file has; the last one may have fewer.
        dtype: The type of tokens: an integer one that Megatron knows, such as "int32".
        schema: The columns of Parquet and their types, a `pyarrow.Schema`; by default those of
            the rows of the first file, with a type from a later one where the first has only None.
        executor: Who makes the items.
        on_error: As of `run`.
        progress: Whether to show a bar of tqdm, where installed.

    Returns:
        A listing of the files.

    Raises:
        ArgumentError: The folder holds something else, or a conversion with other
            arguments; the pipeline is endless.
        StateMismatch: The folder holds a conversion of another pipeline, or of files that
            have changed since.
        PipelineError: A row can't be written in the format, or would be read as another one;
            it names the row. Or another process converts into the folder.

    >>> import lazyckpt as lz
    >>> from tempfile import TemporaryDirectory
    >>> squares = lz.source(range(5)) | lz.map(lambda n: {"n": n, "square": n * n})
    >>> with TemporaryDirectory() as folder:
    ...     files = lz.io.convert(squares, folder, format="jsonl.zst", rows_per_file=3)
    ...     len(files), lz.io.read_jsonl(files, index_dir=folder)[4]
    (2, {'n': 4, 'square': 16})
    """
    form = checked("convert", "format", format, one_of(*FORMATS))
    size = checked("convert", "rows_per_file", rows_per_file, positive)
    shows = checked("convert", "progress", progress, boolean)
    kind = checked("convert", "dtype", dtype, _tokens_check)
    place = os.path.abspath(os.fspath(folder))
    given = pipeline if isinstance(pipeline, Chain) else source(pipeline)
    length = runnable("convert", given).machine.length
    if length == math.inf:
        raise ArgumentError(f"convert: {brief(given)} is endless; take(n) ends it")
    if schema is not None and form != "parquet":
        raise ArgumentError(f"convert: schema is that of Parquet, and format is {form!r}")
    encoder = _ENCODERS[form](place, kind, schema)
    header = {"lazyckpt_convert": _VERSION, "format": form, "rows_per_file": size}
    header |= {"dtype": kind.str} if form == "tokens" else {}
    header |= {} if schema is None else {"schema": str(schema)}
    os.makedirs(place, exist_ok=True)
    with _alone(place):
        log = _Log(place, header)
        with run(given, log.state, executor=executor, on_error=on_error) as rows:
            if not log.is_done:
                done = sum(chunk["rows"] for chunk in log.chunks)
                total = length if isinstance(length, int) else None
                _write_all(shown(rows, total, shows, "convert", "row", done), rows, log, encoder)
                log.finish()
    return log.listed(encoder.suffixes[0])


def _write_all(rows: Iterable[Any], done: Run[Any], log: _Log, encoder: Encoder) -> None:
    """Write the rows that are left; `done` knows the state behind them."""
    first, size = sum(chunk["rows"] for chunk in log.chunks), log.header["rows_per_file"]
    items = iter(rows)
    while (item := next(items, _END)) is not _END:
        if len(log.chunks) >= _MOST:
            raise PipelineError(f"a folder has at most {_MOST:,} files; raise rows_per_file")
        names = [f"{len(log.chunks):06}{suffix}" for suffix in encoder.suffixes]
        taken = _Counted(chain([item], islice(items, size - 1)))
        with ExitStack() as stack:
            paths = [stack.enter_context(writing(os.path.join(log.folder, n))) for n in names]
            encoder.write(taken, first, *paths)
            found = [_described(name, path) for name, path in zip(names, paths, strict=True)]
        first += taken.count
        log.add(taken.count, found, json.loads(done.state.to_json()))


class _Counted(Iterator[Any]):
    """Items, and how many there were."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._items, self.count = items, 0

    def __next__(self) -> Any:
        item = next(self._items)
        self.count += 1
        return item


class _Log:
    """What a folder says of its conversion: the files so far, and the state behind them.

    While it lasts that is a line for each file, behind one for the arguments; at its
    end one listing.
    """

    def __init__(self, folder: str, header: dict[str, Any]) -> None:
        self.folder, self.header = folder, header
        self.chunks: list[dict[str, Any]] = []
        self.state: Any = None
        self._path = os.path.join(folder, _LOG)
        self._listing = os.path.join(folder, LISTING)
        self.is_done = os.path.exists(self._listing)
        self._load()

    def _load(self) -> None:
        names = os.listdir(self.folder)
        for name in [name for name in names if _is_ours(name) and name.endswith(".tmp")]:
            os.remove(os.path.join(self.folder, name))  # of one that was killed
        if self.is_done:
            header = self._finished()
        elif _LOG in names:
            header = self._begun()
        elif other := sorted(name for name in names if not _is_ours(name)):
            raise ArgumentError(
                f"convert: {self.folder} must be empty, or hold a conversion; it has {other[0]!r}"
            )
        else:
            header = self.header
            write_whole(self._path, _line(header))
        if header != self.header:
            raise ArgumentError(
                f"convert: {self.folder} holds a conversion with {header}, not {self.header}; "
                "remove it, or choose another folder"
            )
        for file in self._files():
            path = os.path.join(self.folder, file["name"])
            if not os.path.exists(path) or os.path.getsize(path) != file["bytes"]:
                raise PipelineError(f"{path} has changed since it was written; remove the folder")

    def _begun(self) -> Any:
        with open(self._path, "rb") as file:
            lines = file.read().splitlines(keepends=True)
        if not lines[-1].endswith(b"\n"):  # it was killed meanwhile
            os.truncate(self._path, sum(map(len, lines[:-1])))
            lines.pop()
        header, *self.chunks = map(self._parsed, lines)
        for chunk in self.chunks:
            self.state = chunk.pop("state")
        return header

    def _finished(self) -> Any:
        with suppress(FileNotFoundError):
            os.remove(self._path)
        with open(self._listing, "rb") as file:
            found = self._parsed(file.read())
        self.chunks, self.state = found["chunks"], found["state"]
        return {name: found.get(name) for name in self.header}

    def _parsed(self, line: bytes) -> Any:
        try:
            found = json.loads(line)
            assert isinstance(found, dict)
        except (ValueError, AssertionError):
            raise InvalidState(f"what {self.folder} says of its conversion is damaged") from None
        return found

    def add(self, rows: int, files: list[dict[str, Any]], state: Any) -> None:
        chunk = {"rows": rows, "files": files}
        with open(self._path, "ab") as file:
            file.write(_line({**chunk, "state": state}))
            file.flush()
            os.fsync(file.fileno())
        self.chunks.append(chunk)
        self.state = state

    def finish(self) -> None:
        """Write the listing, which takes the place of the log."""
        said = {
            **self.header,
            "rows": sum(chunk["rows"] for chunk in self.chunks),
            "chunks": self.chunks,
            "state": self.state,
        }
        write_whole(self._listing, _line(said))
        os.remove(self._path)
        self.is_done = True

    def listed(self, suffix: str) -> Files:
        """The files that rows are read from."""
        names = [file["name"] for file in self._files() if file["name"].endswith(suffix)]
        paths = [os.path.join(self.folder, name) for name in names]
        return Files(storage_of(path).stat(path) for path in paths)

    def _files(self) -> list[dict[str, Any]]:
        return [file for chunk in self.chunks for file in chunk["files"]]


def _is_ours(name: str) -> bool:
    return re.fullmatch(r"(\d{6}\..*|progress\.jsonl.*|listing\.json.*)", name) is not None


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _described(name: str, path: str) -> dict[str, Any]:
    """What a listing says of a file, once that is on the disk."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while content := file.read(_READ):
            digest.update(content)
        os.fsync(file.fileno())
        return {"name": name, "bytes": file.tell(), "sha256": digest.hexdigest()}


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    """While no other process converts into a folder. The lock ends with the process."""
    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive_lock(folder, waits=False))
        except BlockingIOError:
            raise PipelineError(f"another process converts into {folder}") from None
        yield


def _tokens_check(value: Any) -> Any:
    found = numbers_check(value)
    if found.kind not in "iu" or found.str.lstrip("|") not in MEGATRON_TYPES:
        raise Unfit("an integer type that Megatron knows, such as 'uint16' or 'int32'")
    return found

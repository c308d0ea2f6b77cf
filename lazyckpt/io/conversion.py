"""`convert`: write the items of a pipeline to files with a fixed number of rows."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

from lazyckpt.combinators.source import source
from lazyckpt.core.call import Chain, runnable
from lazyckpt.core.checks import Unfit, boolean, brief, checked, one_of, positive
from lazyckpt.errors import ArgumentError, InvalidState, PipelineError, StorageError
from lazyckpt.executors.executor import Executor
from lazyckpt.io.cache import FULL, atomic_writer, exclusive_lock, write_atomically
from lazyckpt.io.files import Files
from lazyckpt.io.storage import storage_of
from lazyckpt.io.tokens import MEGATRON_TYPES, numbers_check
from lazyckpt.io.writers import JsonLinesWriter, ParquetWriter, TarWriter, TokensWriter, Writer
from lazyckpt.monitoring.bar import progress_bar
from lazyckpt.pipeline import Pipeline, run
from lazyckpt.run import Run

Format: TypeAlias = Literal["parquet", "jsonl.zst", "tar", "tokens"]

LISTING = "listing.json"

_LOG = "progress.jsonl"
_VERSION = 1
_ENCODERS: dict[str, Callable[..., Writer]] = {
    "parquet": lambda folder, dtype, schema: ParquetWriter(folder, schema),
    "jsonl.zst": lambda folder, dtype, schema: JsonLinesWriter(),
    "tar": lambda folder, dtype, schema: TarWriter(),
    "tokens": lambda folder, dtype, schema: TokensWriter(dtype),
}
FORMATS = tuple(_ENCODERS)

_READ = 1 << 20  # bytes per read for a digest
_MOST = 10**6  # files; their names have six digits


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
    """Write a pipeline's items to files of `rows_per_file` rows each, for readers of `lazyckpt.io`.

    Files appear whole or not at all. The pipeline's state is saved after each file. If `convert` is
    called again after a kill or an error, it continues after the last file, and all files are
    identical, byte for byte, to those of an uninterrupted conversion. At the end, `listing.json`
    lists the files with their rows, bytes and SHA-256.

    Rows are read back and compared: a value that would come back as a different one is an error.
    Some differences are accepted. Tuples and arrays may come back as lists, NumPy scalars as Python
    numbers, a missing key of a dict as None, and a str in a tar as bytes.

    Args:
        pipeline: The rows: one epoch of a pipeline, or a reader.
        folder: Folder for the files, on this machine: new, empty, or with an unfinished conversion.
        format: The format of the files. A string becomes a column `text`, or a member `.txt`.

            - "parquet": dicts, in row groups of a few MiB
            - "jsonl.zst": any JSON, in zstd's seekable format, with frames of about 1 MiB
            - "tar": samples in WebDataset's layout; a dict of bytes and strings has one member per
              key, named after its `__key__` or its number, and any other row is a `.json`
            - "tokens": sequences of ints in one `.bin`, with Megatron's `.idx` of row positions
        rows_per_file: Number of rows per file; the last file may have fewer.
        dtype: Type of tokens: an integer type that Megatron supports, such as "int32".
        schema: Columns of Parquet and their types, a `pyarrow.Schema`. By default they come from
            the first file. A later file may widen a type if nothing is lost, for example the type
            of a column that had only None.
        executor: How items are computed.
        on_error: As in `run`.
        progress: If True, show a tqdm progress bar, if tqdm is installed.

    Returns:
        A listing of the files.

    Raises:
        ArgumentError: If the folder holds other files or a conversion with other arguments, or if
            the pipeline is endless.
        StateMismatch: If the folder holds a conversion of a different pipeline, or if source files
            have changed since.
        PipelineError: If a row can't be written in the format, or would be read back as a different
            one; the message names row and column. Also if another process converts into the folder.
        StorageError: If the disk of the folder is full.

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
        raise ArgumentError(f"convert: schema is for Parquet only, and format is {form!r}")
    encoder = _ENCODERS[form](place, kind, schema)
    header = {"lazyckpt_convert": _VERSION, "format": form, "rows_per_file": size}
    header |= {"dtype": kind.str} if form == "tokens" else {}
    header |= {} if schema is None else {"schema": str(schema)}
    os.makedirs(place, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive_lock(place, waits=False))  # released if the process ends
        except BlockingIOError:
            raise PipelineError(f"another process is converting into {place}") from None
        log = _Log(place, header)
        rows = stack.enter_context(run(given, log.state, executor=executor, on_error=on_error))
        if not log.is_done:
            total = length if isinstance(length, int) else None
            items = progress_bar(rows, total, shows, "convert", "row", rows.state.items)
            try:
                _write_all(items, rows, log, encoder)
                log.finish()
            except OSError as error:
                if error.errno not in FULL:
                    raise
                raise StorageError(f"{place} can't hold more: {error.strerror}") from error
    return log.listed(encoder.suffixes[0])


def _write_all(rows: Iterable[Any], done: Run[Any], log: _Log, encoder: Writer) -> None:
    """Write the remaining rows; `done` holds the state after them."""
    items, first = iter(rows), done.state.items
    for item in items:
        if len(log.chunks) >= _MOST:
            raise PipelineError(f"a folder has at most {_MOST:,} files; raise rows_per_file")
        names = [f"{len(log.chunks):06}{suffix}" for suffix in encoder.suffixes]
        taken = chain([item], islice(items, log.header["rows_per_file"] - 1))
        with ExitStack() as stack:
            paths = [stack.enter_context(atomic_writer(os.path.join(log.folder, n))) for n in names]
            encoder.write(taken, first, *paths)
            found = [_described(name, path) for name, path in zip(names, paths, strict=True)]
        state = done.state
        log.add(state.items - first, found, json.loads(state.to_json()))
        first = state.items


class _Log:
    """The record of a conversion in its folder: the files written, and the state after them.

    During the conversion it has one line for the arguments and one per file; at the end, one
    listing.
    """

    def __init__(self, folder: str, header: dict[str, Any]) -> None:
        self.folder, self.header = folder, header
        self.chunks: list[dict[str, Any]] = []
        self.state: Any = None
        self._path = os.path.join(folder, _LOG)
        self._listing = os.path.join(folder, LISTING)
        self.is_done = os.path.exists(self._listing)
        names = sorted(os.listdir(folder))
        other = [name for name in names if not _is_ours(name)]
        if other and not self.is_done and _LOG not in names:
            raise ArgumentError(
                f"convert: {folder} must be empty, or hold a conversion; it has {other[0]!r}"
            )
        for name in names:
            if _is_ours(name) and name.endswith(".tmp"):  # from a conversion that was killed
                os.remove(os.path.join(folder, name))
        if not self.is_done and _LOG not in names:
            write_atomically(self._path, _line(header))
        try:
            found = self._finished() if self.is_done else self._begun()
            sizes = {file["name"]: file["bytes"] for file in self._files()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidState(
                f"the record of the conversion in {folder} is damaged: {error!r}; remove the folder"
            ) from error
        if found != header:
            raise ArgumentError(
                f"convert: {folder} holds a conversion with {found}, not {header}; remove it, or "
                "choose another folder"
            )
        for name, size in sizes.items():
            path = os.path.join(folder, name)
            if not os.path.exists(path) or os.path.getsize(path) != size:
                raise PipelineError(f"{path} has changed since it was written; remove the folder")

    def _begun(self) -> Any:
        """Load the log, whose last line may be cut; return the arguments."""
        content = Path(self._path).read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        os.truncate(self._path, len(whole))
        header, *self.chunks = map(json.loads, whole.splitlines())
        for chunk in self.chunks:
            self.state = chunk.pop("state")
        return header

    def _finished(self) -> Any:
        """Load the listing; return the arguments."""
        with suppress(FileNotFoundError):
            os.remove(self._path)
        found = json.loads(Path(self._listing).read_bytes())
        self.chunks, self.state, _ = (found.pop(name) for name in ("chunks", "state", "rows"))
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
        """Write the listing, which replaces the log."""
        rows = sum(chunk["rows"] for chunk in self.chunks)
        found = {"rows": rows, "chunks": self.chunks, "state": self.state}
        write_atomically(self._listing, _line({**self.header, **found}))
        os.remove(self._path)
        self.is_done = True

    def listed(self, suffix: str) -> Files:
        """Return the files that have rows, not those that have indices."""
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
    """Return a listing's entry of a file, after syncing that to the disk."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while content := file.read(_READ):
            digest.update(content)
        os.fsync(file.fileno())
        return {"name": name, "bytes": file.tell(), "sha256": digest.hexdigest()}


def _tokens_check(value: Any) -> Any:
    found = numbers_check(value)
    if found.kind not in "iu" or found.str.lstrip("|") not in MEGATRON_TYPES:
        raise Unfit("an integer type that Megatron supports, such as 'uint16' or 'int32'")
    return found

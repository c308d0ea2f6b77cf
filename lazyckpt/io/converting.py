"""`lazyckpt convert`: a corpus in files of another format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from time import perf_counter
from typing import Any, Literal

from lazyckpt.combinators.flat_map import flat_map
from lazyckpt.combinators.map import map as mapped
from lazyckpt.combinators.source import source
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.local import processes
from lazyckpt.io.conversion import LISTING, Format, convert
from lazyckpt.io.decompress import compression_of
from lazyckpt.io.files import Files, files
from lazyckpt.io.indexing import READERS, format_of
from lazyckpt.io.stream import iter_jsonl, iter_text
from lazyckpt.pipeline import Pipeline

_STREAMS: dict[str, Callable[[Any], Iterator[Any]]] = {"text": iter_text, "jsonl": iter_jsonl}


def converting(
    patterns: Sequence[str],
    folder: str,
    *,
    form: Format,
    rows: int,
    read_as: str | None,
    column: str | None,
    dtype: str,
    index_dir: str | None,
    workers: int,
    on_error: Literal["raise", "skip"],
) -> int:
    """Convert files, and say what there is; the exit status."""
    listed = files(patterns)
    executor: Executor | None = processes(workers) if workers else None
    begun = perf_counter()
    pipeline = _rows(listed, read_as or format_of(listed), index_dir, executor)
    if column is not None:
        pipeline = pipeline | mapped(itemgetter(column))
    made = convert(
        pipeline,
        folder,
        format=form,
        rows_per_file=rows,
        dtype=dtype,
        executor=executor,
        on_error=on_error,
        progress=True,
    )
    seconds = perf_counter() - begun
    size = sum(file.size for file in made)
    print(f"{len(made):,} files, {size:,} bytes, in {seconds:.1f} s; {folder}/{LISTING} says more")
    return 0


def _rows(
    listed: Files, form: str, index_dir: str | None, executor: Executor | None
) -> Pipeline[Any]:
    """The rows of files: by number, or from the front where they would be decompressed twice."""
    is_plain = all(compression_of(file.path) is None for file in listed)
    if form in _STREAMS and not is_plain:
        streamed: Pipeline[Any] = source(listed) | flat_map(_STREAMS[form])
        return streamed
    rows = READERS[form](listed, index_dir=index_dir, executor=executor, progress=True)
    read: Pipeline[Any] = source(rows)
    return read

"""`lazyckpt index`: indices ahead of readers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from time import perf_counter
from typing import Any

from lazyckpt.errors import ArgumentError
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.local import processes
from lazyckpt.io.arrow import read_arrow
from lazyckpt.io.csv import read_csv
from lazyckpt.io.files import Files, files
from lazyckpt.io.parquet import read_parquet
from lazyckpt.io.records import Records
from lazyckpt.io.row_groups import RowGroupRows
from lazyckpt.io.tar import read_tar
from lazyckpt.io.text import read_jsonl, read_text
from lazyckpt.io.tfrecord import read_tfrecord

READERS: dict[str, Callable[..., Any]] = {
    "text": read_text,
    "jsonl": read_jsonl,
    "csv": read_csv,
    "parquet": read_parquet,
    "arrow": read_arrow,
    "tar": read_tar,
    "tfrecord": read_tfrecord,
}
_FORMATS = {f".{name}": name for name in READERS} | {
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".txt": "text",
    ".tgz": "tar",
    ".feather": "arrow",
    ".tfrecords": "tfrecord",
}


def build_indices(
    patterns: Sequence[str], form: str | None, index_dir: str | None, workers: int
) -> int:
    """Build the index of files, and say what there is; the exit status."""
    listed = files(patterns)
    executor: Executor | None = processes(workers) if workers else None
    begun = perf_counter()
    reader = READERS[form or format_of(listed)]
    rows: Records[Any] | RowGroupRows = reader(
        listed, index_dir=index_dir, executor=executor, progress=True
    )
    seconds = perf_counter() - begun
    size = sum(file.size for file in listed)
    print(
        f"{len(rows):,} rows of {len(listed):,} files, {size:,} bytes, in {seconds:.1f} s; "
        f"index of {rows.row_index.nbytes:,} bytes in {rows.row_index.folder}"
    )
    return 0


def format_of(listed: Files) -> str:
    """What files hold, by the end of the first one's name."""
    for suffix in PurePosixPath(listed[0].path.lower()).suffixes:
        if suffix in _FORMATS:
            return _FORMATS[suffix]
    raise ArgumentError(f"what does {listed[0].path} hold? say --format {_names()}")


def _names() -> str:
    *names, last = READERS
    return f"{', '.join(names)} or {last}"

"""`lazyckpt index`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import PurePosixPath
from time import perf_counter
from typing import Any

from lazyckpt import io
from lazyckpt.cli.arguments import add_reading
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.local import processes

DESCRIPTION = """\
Find where rows begin, and store an index where the readers of lazyckpt.io look for it. A file
that is already indexed is not read again. Quote patterns for the shell.
"""
EXAMPLES = """\
  lazyckpt index 'corpus/*.jsonl'
  lazyckpt index 's3://bucket/web/*.txt' --workers 8
"""
READERS: dict[str, Callable[..., Any]] = {
    "text": io.read_text,
    "jsonl": io.read_jsonl,
    "csv": io.read_csv,
    "parquet": io.read_parquet,
    "arrow": io.read_arrow,
    "tar": io.read_tar,
    "tfrecord": io.read_tfrecord,
}
_FORMATS = {f".{name}": name for name in READERS} | {
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".txt": "text",
    ".tgz": "tar",
    ".feather": "arrow",
    ".tfrecords": "tfrecord",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("patterns", nargs="+", metavar="PATTERN", help="a path, URL or pattern")
    parser.add_argument(
        "--format",
        choices=tuple(READERS),
        metavar="FORMAT",
        help="format of the files: %(choices)s (default: from their names)",
    )
    add_reading(parser)


def run(chosen: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    listed = io.files(chosen.patterns)
    executor = processes(chosen.workers) if chosen.workers else None
    begun = perf_counter()
    reader = READERS[chosen.format or format_of(listed)]
    rows = reader(listed, index_dir=chosen.index_dir, executor=executor, progress=True)
    seconds = perf_counter() - begun
    size = sum(file.size for file in listed)
    print(
        f"{len(rows):,} rows of {len(listed):,} files, {size:,} bytes, in {seconds:.1f} s; "
        f"index of {rows.row_index.nbytes:,} bytes in {rows.row_index.folder}"
    )
    return 0


def format_of(listed: io.Files) -> str:
    """Return the format of files, from the suffix of the first one."""
    for suffix in PurePosixPath(listed[0].path.lower()).suffixes:
        if suffix in _FORMATS:
            return _FORMATS[suffix]
    *names, last = READERS
    raise ArgumentError(
        f"the format of {listed[0].path} is unknown; pass --format {', '.join(names)} or {last}"
    )

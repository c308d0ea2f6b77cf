"""`lazyckpt convert`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from operator import itemgetter
from time import perf_counter
from typing import Any

from lazyckpt.cli.arguments import add_reading, at_least
from lazyckpt.cli.index import READERS, format_of
from lazyckpt.combinators.flat_map import flat_map
from lazyckpt.combinators.map import map as mapped
from lazyckpt.combinators.source import source
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.local import processes
from lazyckpt.io.conversion import FORMATS, LISTING, convert
from lazyckpt.io.decompress import compression_from_suffix
from lazyckpt.io.files import files
from lazyckpt.io.stream import iter_jsonl, iter_text
from lazyckpt.pipeline import Pipeline

DESCRIPTION = """\
Read files and write their rows to new files of N rows each, with a listing of counts and
digests. After a kill, run the same command again to continue. Quote patterns for the shell.
"""
EXAMPLES = """\
  lazyckpt convert 'corpus/*.jsonl.gz' shards --rows 100000 --format parquet
  lazyckpt convert 'tokens/*.parquet' bins --rows 1000000 --format tokens --column ids
"""
_STREAMS: dict[str, Callable[[Any], Iterator[Any]]] = {"text": iter_text, "jsonl": iter_jsonl}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("patterns", nargs="+", metavar="INPUT", help="a path, URL or pattern")
    parser.add_argument(
        "folder", metavar="OUTPUT", help="a folder: new, empty, or with an unfinished conversion"
    )
    parser.add_argument(
        "--rows", type=at_least(1), required=True, metavar="N", help="number of rows per file"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        required=True,
        metavar="FORMAT",
        help="format of the output: %(choices)s",
    )
    parser.add_argument(
        "--from",
        dest="read_as",
        choices=tuple(READERS),
        metavar="FORMAT",
        help="format of the input: %(choices)s (default: from the file names)",
    )
    parser.add_argument("--column", metavar="NAME", help="write only this column of the rows")
    parser.add_argument(
        "--dtype", default="uint16", help="integer type of tokens (default: %(default)s)"
    )
    parser.add_argument(
        "--skip-errors",
        dest="on_error",
        action="store_const",
        const="skip",
        default="raise",
        help="skip rows that can't be read (default: stop at the first)",
    )
    add_reading(parser)


def run(chosen: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    listed = files(chosen.patterns)
    executor: Executor | None = processes(chosen.workers) if chosen.workers else None
    begun = perf_counter()
    form = chosen.read_as or format_of(listed)
    pipeline: Pipeline[Any]
    if form in _STREAMS and any(compression_from_suffix(file.path) for file in listed):
        pipeline = source(listed) | flat_map(_STREAMS[form])  # an index would read them twice
    else:
        given = {"index_dir": chosen.index_dir, "executor": executor, "progress": True}
        pipeline = source(READERS[form](listed, **given))
    if chosen.column is not None:
        pipeline = pipeline | mapped(itemgetter(chosen.column))
    made = convert(
        pipeline,
        chosen.folder,
        format=chosen.format,
        rows_per_file=chosen.rows,
        dtype=chosen.dtype,
        executor=executor,
        on_error=chosen.on_error,
        progress=True,
    )
    seconds, size = perf_counter() - begun, sum(file.size for file in made)
    print(
        f"{len(made):,} files, {size:,} bytes, in {seconds:.1f} s; {chosen.folder}/{LISTING} lists "
        "them"
    )
    return 0

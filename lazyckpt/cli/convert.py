"""`lazyckpt convert`."""

from __future__ import annotations

import argparse

from lazyckpt.cli.arguments import add_reading, at_least
from lazyckpt.io.conversion import FORMATS
from lazyckpt.io.converting import converting
from lazyckpt.io.indexing import READERS

DESCRIPTION = """\
Reads files and writes their rows to others, of N rows each, with a listing of counts and
digests. After a kill the same command goes on where it was. Patterns have to be quoted for the
shell.
"""
EXAMPLES = """\
  lazyckpt convert 'corpus/*.jsonl.gz' shards --rows 100000 --format parquet
  lazyckpt convert 'tokens/*.parquet' bins --rows 1000000 --format tokens --column ids
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("patterns", nargs="+", metavar="INPUT", help="a path, URL or pattern")
    parser.add_argument("folder", metavar="OUTPUT", help="a folder: new, empty, or unfinished")
    parser.add_argument(
        "--rows", type=at_least(1), required=True, metavar="N", help="rows that a file has"
    )
    parser.add_argument("--format", choices=FORMATS, required=True, help="of the output")
    parser.add_argument(
        "--from",
        dest="read_as",
        choices=tuple(READERS),
        help="what the input holds (default: by the end of its names)",
    )
    parser.add_argument(
        "--column", metavar="NAME", help="write what rows have by this name, and nothing else"
    )
    parser.add_argument(
        "--dtype", default="uint16", help="of tokens, which are ints (default: %(default)s)"
    )
    parser.add_argument(
        "--skip-errors",
        dest="on_error",
        action="store_const",
        const="skip",
        default="raise",
        help="leave out rows that can't be read (default: stop at the first)",
    )
    add_reading(parser)


def run(chosen: argparse.Namespace) -> int:
    """Run it; the exit status."""
    return converting(
        chosen.patterns,
        chosen.folder,
        form=chosen.format,
        rows=chosen.rows,
        read_as=chosen.read_as,
        column=chosen.column,
        dtype=chosen.dtype,
        index_dir=chosen.index_dir,
        workers=chosen.workers,
        on_error=chosen.on_error,
    )

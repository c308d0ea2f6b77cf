"""The command line: `lazyckpt demo`, `index`, `convert` and `seen`, or `python -m lazyckpt`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import lazyckpt
from lazyckpt.demo.show import demo
from lazyckpt.errors import PipelineError
from lazyckpt.io.conversion import FORMATS
from lazyckpt.io.converting import converting
from lazyckpt.io.indexing import READERS, indexing
from lazyckpt.lineage.command import telling

LEAST_KILLS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status. 130 after Ctrl-C, 2 for arguments or data that won't do."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.command is None:
        parser.print_help()
        return 2
    try:
        status: int = chosen.run(chosen)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # as in `lazyckpt demo | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lazyckpt", description=(lazyckpt.__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--version", action="version", version=f"lazyckpt {lazyckpt.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    _add_demo(commands)
    _add_index(commands)
    _add_convert(commands)
    _add_seen(commands)
    return parser


def _add_index(commands: Any) -> None:
    scanned = commands.add_parser(
        "index",
        help="find the rows of files ahead, for readers of lazyckpt.io",
        description=(
            "Finds where rows begin and keeps that where readers look for it. A file that is "
            "indexed already is not read again. Patterns have to be quoted for the shell."
        ),
    )
    scanned.set_defaults(run=_index)
    scanned.add_argument("patterns", nargs="+", metavar="PATTERN", help="a path, URL or pattern")
    scanned.add_argument(
        "--format",
        choices=tuple(READERS),
        help="what the files hold (default: by the end of their names)",
    )
    _add_reading(scanned)


def _add_reading(command: Any) -> None:
    command.add_argument(
        "--index-dir",
        metavar="PATH",
        help="where the index is kept (default: LAZYCKPT_CACHE, or the user's cache folder)",
    )
    command.add_argument(
        "--workers",
        type=_at_least(0),
        default=0,
        metavar="N",
        help="processes that read files in parallel (default: none beside this one)",
    )


def _add_convert(commands: Any) -> None:
    converted = commands.add_parser(
        "convert",
        help="write a corpus anew, in files of so many rows of a format with random access",
        description=(
            "Reads files and writes their rows to others, of N rows each, with a listing of "
            "counts and digests. After a kill the same command goes on where it was. Patterns "
            "have to be quoted for the shell."
        ),
    )
    converted.set_defaults(run=_convert)
    converted.add_argument("patterns", nargs="+", metavar="INPUT", help="a path, URL or pattern")
    converted.add_argument("folder", metavar="OUTPUT", help="a folder: new, empty, or unfinished")
    converted.add_argument(
        "--rows", type=_at_least(1), required=True, metavar="N", help="rows that a file has"
    )
    converted.add_argument("--format", choices=FORMATS, required=True, help="of the output")
    converted.add_argument(
        "--from",
        dest="read_as",
        choices=tuple(READERS),
        help="what the input holds (default: by the end of its names)",
    )
    converted.add_argument(
        "--column", metavar="NAME", help="write what rows have by this name, and nothing else"
    )
    converted.add_argument(
        "--dtype", default="uint16", help="of tokens, which are ints (default: %(default)s)"
    )
    converted.add_argument(
        "--skip-errors",
        dest="on_error",
        action="store_const",
        const="skip",
        default="raise",
        help="leave out rows that can't be read (default: stop at the first)",
    )
    _add_reading(converted)


def _convert(chosen: argparse.Namespace) -> int:
    try:
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
    except (PipelineError, OSError) as error:
        print(f"lazyckpt convert: {error}", file=sys.stderr)
        return 2


def _index(chosen: argparse.Namespace) -> int:
    try:
        return indexing(chosen.patterns, chosen.format, chosen.index_dir, chosen.workers)
    except (PipelineError, OSError) as error:
        print(f"lazyckpt index: {error}", file=sys.stderr)
        return 2


def _add_seen(commands: Any) -> None:
    told = commands.add_parser(
        "seen",
        help="tell what a run was given up to a state: the origins of all its items",
        description=(
            "Prints how many rows came from each source and file, or writes each row to a "
            "Parquet file. It imports the module from the current folder and reads data where "
            "only reading tells."
        ),
    )
    told.set_defaults(run=_seen)
    told.add_argument(
        "pipeline", metavar="MODULE:PIPELINE", help="such as train:pipeline, or a function of one"
    )
    told.add_argument("state", metavar="STATE", help="a file that lazyckpt.save wrote")
    told.add_argument("--since", metavar="STATE", help="an earlier one (default: the beginning)")
    told.add_argument("--out", metavar="PATH", help="a Parquet file (default: print the counts)")


def _seen(chosen: argparse.Namespace) -> int:
    try:
        return telling(chosen.pipeline, chosen.state, chosen.since, chosen.out)
    except (PipelineError, OSError) as error:
        print(f"lazyckpt seen: {error}", file=sys.stderr)
        return 2


def _demo(chosen: argparse.Namespace) -> int:
    return demo(chosen.data, kills=chosen.kills, lines=chosen.lines, seed=chosen.seed)


def _add_demo(commands: Any) -> None:
    shown = commands.add_parser(
        "demo",
        help="train a small model, kill it again and again, and compare with a run left alone",
        description=(
            "Trains a byte-bigram model twice on the same lines of text: once left alone, once "
            "killed at random moments and resumed from its checkpoint. Exit status 0 if all "
            "batches and the final parameters agree bit for bit, 1 if not."
        ),
    )
    shown.set_defaults(run=_demo)
    shown.add_argument(
        "--data",
        nargs="+",
        metavar="PATH",
        help="text or .gz files, or folders of them (default: Python's own standard library)",
    )
    shown.add_argument(
        "--kills",
        type=_at_least(LEAST_KILLS),
        default=LEAST_KILLS,
        metavar="N",
        help="how often to kill, at random moments (default: %(default)s, the least)",
    )
    shown.add_argument(
        "--lines",
        type=_at_least(10_000),
        default=3_000_000,
        metavar="N",
        help="about how many lines to train on, in whole epochs (default: %(default)s)",
    )
    shown.add_argument(
        "--seed",
        type=_at_least(0),
        default=0,
        metavar="N",
        help="of the shuffles (default: %(default)s)",
    )


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"expected an int >= {least:,}, got {text!r}")
        return value

    return number


if __name__ == "__main__":
    sys.exit(main())

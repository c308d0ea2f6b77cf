"""Arguments that several commands take."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from lazyckpt.executors.executor import Executor
from lazyckpt.executors.local import processes, threads


def at_least(least: int) -> Callable[[str], int]:
    """An int of so much or more."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"expected an int >= {least:,}, got {text!r}")
        return value

    return number


def add_pipeline(parser: argparse.ArgumentParser) -> None:
    """Add the name of a pipeline."""
    parser.add_argument(
        "pipeline", metavar="MODULE:NAME", help="such as train:pipeline, or a function of one"
    )


def add_executor(parser: argparse.ArgumentParser) -> None:
    """Add who makes the items."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--threads", type=at_least(1), metavar="N", help="run it in so many threads")
    group.add_argument("--processes", type=at_least(1), metavar="N", help="or in so many processes")


def executor_of(chosen: argparse.Namespace) -> Executor | None:
    """What `add_executor` was given."""
    if chosen.threads is not None:
        return threads(chosen.threads)
    return None if chosen.processes is None else processes(chosen.processes)


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Add where an index is kept, and who reads files."""
    parser.add_argument(
        "--index-dir",
        metavar="PATH",
        help="where the index is kept (default: LAZYCKPT_CACHE, or the user's cache folder)",
    )
    parser.add_argument(
        "--workers",
        type=at_least(0),
        default=0,
        metavar="N",
        help="processes that read files in parallel (default: none beside this one)",
    )

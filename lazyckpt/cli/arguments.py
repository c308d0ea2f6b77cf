"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from typing import Any

from lazyckpt.core.call import Chain
from lazyckpt.core.checks import brief
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.local import processes, threads


def at_least(least: int) -> Callable[[str], int]:
    """Return a parser of ints that are at least `least`."""

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
    """Add the argument that names a pipeline."""
    parser.add_argument(
        "pipeline",
        metavar="MODULE:NAME",
        help="a pipeline, such as train:pipeline, or a function that returns one",
    )


def pipeline_of(name: str) -> Any:
    """Return the pipeline named by `module:name`, or the result of calling it."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ArgumentError(f"expected module:pipeline, such as train:pipeline, got {name!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ArgumentError(f"{name}: no module {error.name!r} from {os.getcwd()}") from None
    try:
        value = attrgetter(attribute)(found)
    except AttributeError:
        raise ArgumentError(f"{name}: {module} has no {attribute!r}") from None
    if callable(value) and not isinstance(value, Chain):
        value = value()
    if not isinstance(value, Chain):
        raise ArgumentError(
            f"{name}: expected a pipeline or a function that returns one, got {brief(value)}"
        )
    return value


def add_executor(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose an executor."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--threads", type=at_least(1), metavar="N", help="use N threads")
    group.add_argument("--processes", type=at_least(1), metavar="N", help="use N processes")


def executor_of(chosen: argparse.Namespace) -> Executor | None:
    """Return the executor chosen by the arguments of `add_executor`."""
    if chosen.threads is not None:
        return threads(chosen.threads)
    return None if chosen.processes is None else processes(chosen.processes)


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for indices and for workers that read files."""
    parser.add_argument(
        "--index-dir",
        metavar="PATH",
        help="folder of the index (default: LAZYCKPT_CACHE, or the user's cache folder)",
    )
    parser.add_argument(
        "--workers",
        type=at_least(0),
        default=0,
        metavar="N",
        help="number of processes that read files in parallel (default: read in this process)",
    )

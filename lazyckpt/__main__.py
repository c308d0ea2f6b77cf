"""The command line: `lazyckpt demo`, or `python -m lazyckpt demo`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

import lazyckpt
from lazyckpt.demo.show import demo

LEAST_KILLS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status. 130 after Ctrl-C, 2 for arguments or data that won't do."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.command is None:
        parser.print_help()
        return 2
    try:
        status = demo(chosen.data, kills=chosen.kills, lines=chosen.lines, seed=chosen.seed)
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
    shown = commands.add_parser(
        "demo",
        help="train a small model, kill it again and again, and compare with a run left alone",
        description=(
            "Trains a byte-bigram model twice on the same lines of text: once left alone, once "
            "killed at random moments and resumed from its checkpoint. Exit status 0 if all "
            "batches and the final parameters agree bit for bit, 1 if not."
        ),
    )
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
    return parser


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

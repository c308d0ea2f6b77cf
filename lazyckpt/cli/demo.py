"""`lazyckpt demo`."""

from __future__ import annotations

import argparse

from lazyckpt.cli.arguments import at_least
from lazyckpt.demo.show import demo

DESCRIPTION = """\
Train a byte-bigram model twice on the same lines of text: once uninterrupted, once killed at
random moments and resumed from its checkpoint. The exit status is 0 if all batches and the final
parameters agree bit for bit, otherwise 1.

With --ranks N, N processes share the reading of one stream. One of them is killed, and the others
resume as N - 1 ranks. The exit status is 0 if their rows equal those of a single rank, otherwise 1.
"""
LEAST_KILLS = 5
LINES, RANKS_LINES = 3_000_000, 100_000
EXAMPLES = """\
  lazyckpt demo
  lazyckpt demo --data corpus/*.txt --kills 20
  lazyckpt demo --ranks 4
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--data",
        nargs="+",
        metavar="PATH",
        help="text or .gz files, or folders of them (default: Python's own standard library)",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--kills",
        type=at_least(LEAST_KILLS),
        default=LEAST_KILLS,
        metavar="N",
        help="number of kills, at random moments (default: %(default)s, the minimum)",
    )
    how.add_argument(
        "--ranks",
        type=at_least(2),
        metavar="N",
        help="instead of training, kill one of N ranks and resume on N - 1",
    )
    parser.add_argument(
        "--lines",
        type=at_least(10_000),
        metavar="N",
        help=f"approximate number of lines (default: {LINES:,}, with --ranks {RANKS_LINES:,})",
    )
    parser.add_argument(
        "--seed",
        type=at_least(0),
        default=0,
        metavar="N",
        help="seed of the shuffles (default: %(default)s)",
    )


def run(chosen: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    lines = chosen.lines or (RANKS_LINES if chosen.ranks else LINES)
    return demo(chosen.data, chosen.ranks, kills=chosen.kills, lines=lines, seed=chosen.seed)

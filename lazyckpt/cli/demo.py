"""`lazyckpt demo`."""

from __future__ import annotations

import argparse

from lazyckpt.cli.arguments import at_least
from lazyckpt.demo.show import demo

DESCRIPTION = """\
Trains a byte-bigram model twice on the same lines of text: once left alone, once killed at
random moments and resumed from its checkpoint. Exit status 0 if all batches and the final
parameters agree bit for bit, 1 if not.
"""
LEAST_KILLS = 5
EXAMPLES = """\
  lazyckpt demo
  lazyckpt demo --data corpus/*.txt --kills 20
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--data",
        nargs="+",
        metavar="PATH",
        help="text or .gz files, or folders of them (default: Python's own standard library)",
    )
    parser.add_argument(
        "--kills",
        type=at_least(LEAST_KILLS),
        default=LEAST_KILLS,
        metavar="N",
        help="how often to kill, at random moments (default: %(default)s, the least)",
    )
    parser.add_argument(
        "--lines",
        type=at_least(10_000),
        default=3_000_000,
        metavar="N",
        help="about how many lines to train on, in whole epochs (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=at_least(0),
        default=0,
        metavar="N",
        help="of the shuffles (default: %(default)s)",
    )


def run(chosen: argparse.Namespace) -> int:
    """Run it; the exit status."""
    return demo(chosen.data, kills=chosen.kills, lines=chosen.lines, seed=chosen.seed)

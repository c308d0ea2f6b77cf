"""`python tests/benchmarks [--only W1,W2] [--rounds N] [--peers]`: prints figures, asserts nothing.

A ratio is the median over pairs of runs, ours and the other side in turn, with
both consumed by a `for` loop as in training: `deque(..., maxlen=0)` would spare
us what a hand-written loop, which has its `for` anyway, can't be spared.
"""

from __future__ import annotations

import argparse
import platform
from importlib import import_module

import numpy as np
from big_shuffle import big_shuffle
from executors import executors
from grouping import grouping, w3
from harness import Case, Row
from imports import imports
from items import items
from packing import packing
from peers import peers
from reservoir import reservoir
from transport import transport
from wide import w1, w2

import lazyckpt


def later(module: str, name: str) -> Case:
    """A case that wants other libraries, imported when it is asked for."""
    return lambda rounds: getattr(import_module(module), name)(rounds)


CASES: dict[str, Case] = {
    "W1": w1,
    "W2": w2,
    "W3": w3,
    "W5a": transport,
    "big": big_shuffle,
    "grouping": grouping,
    "reservoir": reservoir,
    "import": imports,
    "executors": executors,
    "items": items,
    "packing": packing,
    "infinibatch": later("compat_infinibatch", "compat_infinibatch"),
    "emloop": later("compat_emloop", "compat_emloop"),
    "gluon": later("compat_gluon", "gluon"),
    "seqtools": later("compat_seqtools", "compat_seqtools"),
    "peers": peers,
}
LATER = ("infinibatch", "emloop", "gluon", "seqtools", "peers")  # want other libraries
LINE = "{:<10}{:<73}{:>10}{:>10}{:>10} {:<4}{:>7} {:<5}{}"


def main() -> None:
    parser = argparse.ArgumentParser("tests/benchmarks", description=__doc__)
    parser.add_argument("--only", metavar="NAMES", help=f"of {','.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=11, help="pairs a ratio is taken from")
    parser.add_argument("--peers", action="store_true", help="other libraries too")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else [n for n in CASES if n not in LATER]
    if options.peers and "peers" not in names:
        names.append("peers")
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    print(
        f"lazyckpt {lazyckpt.__version__}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, {options.rounds} rounds"
    )
    print(LINE.format("name", "compared", "median", "min", "max", "", "bound", "met", "each"))
    for name in names:
        for row in CASES[name](options.rounds):
            print(shown(row), flush=True)


def shown(row: Row) -> str:
    low, mid, high = (f"{v:,.2f}" for v in (min(row.values), row.median, max(row.values)))
    bound = "" if row.bound is None else f"{row.bound:g}"
    unit = row.unit or "x"
    return LINE.format(row.name, row.compared, mid, low, high, unit, bound, row.met, row.sides)


if __name__ == "__main__":
    main()

"""`python tests/benchmarks`: what this library costs, beside loops by hand and other libraries.

It prints figures and asserts nothing. A ratio is the median over rounds, the
contestants in turn, with all consumed by a `for` loop as in training:
`deque(..., maxlen=0)` would spare us what a hand-written loop, which has its
`for` anyway, can't be spared.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from contest import BY_HAND, OURS, PEERS, Contest, Terms, hold
from files import FOLDER
from harness import Case, Row
from report import Report, plot
from table import update
from workloads import CONTESTS

QUICK = 3  # rounds, of a tenth of the items


def later(module: str, name: str) -> Case:
    """A case, imported when it is asked for."""
    return lambda rounds: getattr(import_module(module), name)(rounds)


CASES: dict[str, list[Case | Contest]] = {
    "W1": [later("wide", "w1")],
    "W2": [later("wide", "w2")],
    "W3": [later("grouping", "w3")],
    "W4": [],
    "W5i": [later("executors", "w5i")],
    "W5t": [later("executors", "w5t")],
    "W5a": [later("transport", "transport"), later("executors", "w5a")],
    "W6": [later("executors", "w6")],
    "W7": [later("imports", "imports"), later("executors", "first_items")],
    "W8": [later("scaling", "scaling")],
    "W9": [],
    "W10": [],
    "W11": [],
    "W12": [],
    "shuffles": [later("shuffles", "shuffles")],
    "graphs": [later("graphs", "graphs")],
    "items": [later("items", "items")],
    "grouping": [later("grouping", "grouping")],
    "packing": [later("packing", "packing")],
    "big": [later("big_shuffle", "big_shuffle")],
    "profile": [later("profiles", "profiles")],
    "secrets": [later("secrets_masked", "secrets")],
    "reservoir": [later("reservoir", "reservoir")],
    "infinibatch": [later("compat_infinibatch", "compat_infinibatch")],
    "emloop": [later("compat_emloop", "compat_emloop")],
    "gluon": [later("compat_gluon", "gluon")],
    "seqtools": [later("compat_seqtools", "compat_seqtools")],
}
for contest in CONTESTS:
    CASES[contest.row].append(contest)
WANTS = {
    "infinibatch": "infinibatch",
    "emloop": "emloop",
    "seqtools": "seqtools",
}  # other libraries, which these cases are measured against


def main() -> None:
    options = arguments()
    if options.table:
        update(options.table)
        return
    report = Report(options.json, options.rounds)
    report.begin()
    folder = tempfile.TemporaryDirectory()
    os.environ.setdefault(FOLDER, folder.name)
    try:
        for name in options.only:
            for case in CASES[name]:
                for row in measured(name, case, options):
                    report.add(row)
    except KeyboardInterrupt:
        sys.exit(f"interrupted; {len(report.rows)} rows are measured")
    finally:
        folder.cleanup()
        report.end()
        if options.plot:
            plot(report.rows, options.plot)


def measured(name: str, case: Case | Contest, options: argparse.Namespace) -> Iterator[Row]:
    """The rows of a case; where it fails, a row that says so, and the others go on."""
    wanted = WANTS.get(name, "numpy")
    if not find_spec(wanted):
        yield Row(name, "", [], remark=f"not installed: no module {wanted}")
        return
    try:
        if not isinstance(case, Contest):
            yield from case(options.rounds)
            return
        if options.megabytes and case.row == "W11":
            case = replace(case, n=options.megabytes * 1_000_000)
        elif options.quick:
            case = replace(case, n=max(1, case.n // 10))
        terms = Terms(options.rounds, options.limit, options.enough)
        yield from hold(case, [BY_HAND, OURS, *options.peers], terms)
    except Exception as error:
        yield Row(name, "", [], remark=f"failed: {type(error).__name__}: {error}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("tests/benchmarks", description=__doc__)
    parser.add_argument("--only", metavar="NAMES", help=f"of {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, help="that a median is taken from (11)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} rounds, fewer items")
    parser.add_argument(
        "--peers",
        nargs="?",
        const=",".join(PEERS),
        default="",
        metavar="NAMES",
        help=f"other libraries too: all, or some of {', '.join(PEERS)}",
    )
    parser.add_argument("--megabytes", type=int, help="of files that W11 reads (1,000)")
    parser.add_argument("--limit", type=float, default=60, help="seconds for a peer's round (60)")
    parser.add_argument(
        "--enough",
        type=float,
        default=10,
        help="seconds of rounds after which a library has no more of them (10)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="the rows, in this file too")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="a picture of the rows")
    parser.add_argument(
        "--table",
        type=Path,
        metavar="FILE.json",
        help="measure nothing: put what --json wrote in the tables of its pages",
    )
    options = parser.parse_args()
    options.only = chosen(parser, "row", options.only, CASES) or list(CASES)
    options.peers = chosen(parser, "peer", options.peers, PEERS)
    if options.rounds is None:
        options.rounds = QUICK if options.quick else 11
    for name in ("rounds", "limit", "enough", "megabytes"):
        if getattr(options, name) is not None and getattr(options, name) <= 0:
            parser.error(f"--{name} must be above 0, got {getattr(options, name)}")
    if options.table and not options.table.is_file():
        parser.error(f"no file {str(options.table)!r} for --table; --json writes one")
    for path in filter(None, (options.json, options.plot)):
        if not path.resolve().parent.is_dir():
            parser.error(f"no folder {str(path.resolve().parent)!r} for {path.name}")
    if options.plot and not find_spec("matplotlib"):
        parser.error('--plot wants matplotlib: pip install -e ".[bench]"')
    return options


def chosen(
    parser: argparse.ArgumentParser, what: str, said: str | None, known: dict[str, object]
) -> list[str]:
    names = [name.strip() for name in said.split(",")] if said else []
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no {what} {', '.join(unknown)}; there are {', '.join(known)}")
    return names


if __name__ == "__main__":
    main()

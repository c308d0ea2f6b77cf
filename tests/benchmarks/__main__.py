"""`python tests/benchmarks`: the costs of lazyckpt, loops by hand and other libraries.

It prints figures and asserts nothing. A ratio is the median over rounds, with the contestants in
turn. All items are consumed by a `for` loop, as in training: `deque(..., maxlen=0)` would spare
lazyckpt a loop that hand-written code can't be spared.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import pairs
from files import FOLDER
from harness import BY_HAND, OURS, PEERS, Case, Contest, Row, Terms, hold
from items import items
from report import Report, update
from scaling import scaling
from shared import shared
from shuffles import shuffles
from workloads import CONTESTS

QUICK = 3  # rounds, of a tenth of the items
CASES: dict[str, list[Case | Contest]] = {
    "W1": [pairs.w1],
    "W2": [pairs.w2],
    "W3": [pairs.w3],
    "W4": [],
    "W5i": [],
    "W5t": [],
    "W5a": [pairs.w5a],
    "W6": [pairs.w6],
    "W7": [pairs.first_items],
    "W8": [scaling],
    "W9": [],
    "W10": [pairs.w10],
    "W11": [pairs.w11],
    "W12": [],
    "shuffles": [shuffles],
    "items": [items],
    "shared": [shared],
}
for contest in CONTESTS:
    CASES[contest.row].append(contest)


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


def measured(name: str, case: Case | Contest, options: argparse.Namespace) -> Iterator[Row]:
    """The rows of a case. If it fails, a row says so, and the others continue."""
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
    if options.json and not options.json.resolve().parent.is_dir():
        parser.error(f"no folder {str(options.json.resolve().parent)!r} for {options.json.name}")
    return options


def chosen(
    parser: argparse.ArgumentParser, what: str, said: str | None, known: Collection[str]
) -> list[str]:
    names = [name.strip() for name in said.split(",")] if said else []
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no {what} {', '.join(unknown)}; there are {', '.join(known)}")
    return names


if __name__ == "__main__":
    main()

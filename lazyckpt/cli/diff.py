"""`lazyckpt diff`."""

from __future__ import annotations

import argparse

from lazyckpt.errors import StateMismatch
from lazyckpt.state.algebra import diff
from lazyckpt.state.saving import load

DESCRIPTION = """\
Prints how many items lie between two states, and which stages have moved. The exit status is
0 if they are equal and 1 if not, also where they are of two pipelines.
"""
EXAMPLES = """\
  lazyckpt diff data.json.1 data.json
  lazyckpt diff rank0.json rank1.json && echo the ranks agree
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("before", metavar="A", help="a file or URL that lazyckpt.save wrote")
    parser.add_argument("after", metavar="B", help="another one")


def run(chosen: argparse.Namespace) -> int:
    """Run it; the exit status."""
    before, after = load(chosen.before), load(chosen.after)
    try:
        found = diff(before, after)
    except StateMismatch as error:
        print(error)
        return 1
    print(found)
    return int(before != after)

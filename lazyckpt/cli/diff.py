"""`lazyckpt diff`."""

from __future__ import annotations

import argparse

from lazyckpt.errors import StateMismatch
from lazyckpt.state.algebra import diff
from lazyckpt.state.saving import load

DESCRIPTION = """\
Print the number of items between two states and the stages that advanced. The exit status is 0
if the states are equal, and 1 if they differ or belong to different pipelines.
"""
EXAMPLES = """\
  lazyckpt diff data.json.1 data.json
  lazyckpt diff rank0.json rank1.json && echo the ranks agree
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("before", metavar="A", help="a file or URL written by lazyckpt.save")
    parser.add_argument("after", metavar="B", help="the state to compare it with")


def run(chosen: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    before, after = load(chosen.before), load(chosen.after)
    try:
        found = diff(before, after)
    except StateMismatch as error:
        print(error)
        return 1
    print(found)
    return int(before != after)

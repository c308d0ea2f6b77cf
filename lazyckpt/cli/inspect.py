"""`lazyckpt inspect`."""

from __future__ import annotations

import argparse
import json

from lazyckpt.core.secrets import masked
from lazyckpt.pictures.drawing import tree
from lazyckpt.state.saving import load

DESCRIPTION = """\
Shows how many items a state has delivered, and where each of its stages stands. It wants no
pipeline, and runs nothing of the state.
"""
EXAMPLES = """\
  lazyckpt inspect data.json
  lazyckpt inspect --json s3://bucket/data.json | jq .items
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("state", metavar="STATE", help="a file or URL that lazyckpt.save wrote")
    parser.add_argument("--json", action="store_true", help="print it as JSON, indented")


def run(chosen: argparse.Namespace) -> int:
    """Run it; the exit status."""
    state = load(chosen.state)
    if chosen.json:
        print(masked(json.dumps(state.to_dict(), indent=2)))
        return 0
    print(tree(state))
    if state.skipped:
        print(f"{int(state.skipped):,} left out:", *state.skipped.first, sep="\n  ")
    return 0

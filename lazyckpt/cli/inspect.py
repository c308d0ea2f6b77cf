"""`lazyckpt inspect`."""

from __future__ import annotations

import argparse
import json

from lazyckpt.core.lines import columns, filled
from lazyckpt.core.secrets import masked
from lazyckpt.pictures.drawing import tree
from lazyckpt.state.saving import load

DESCRIPTION = """\
Show the number of items delivered before a state and the position of each stage. This needs no
pipeline and executes no code from the state.
"""
EXAMPLES = """\
  lazyckpt inspect data.json
  lazyckpt inspect --json s3://bucket/data.json | jq .items
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("state", metavar="STATE", help="a file or URL written by lazyckpt.save")
    parser.add_argument("--json", action="store_true", help="print the state as indented JSON")


def run(chosen: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    state = load(chosen.state)
    if chosen.json:
        print(masked(json.dumps(state.to_dict(), indent=2)))
        return 0
    print(tree(state))
    if state.skipped:
        print(f"{int(state.skipped):,} skipped:")
        for each in state.skipped.first:
            print("\n".join(filled(each, "  ", "    ", columns())))
    return 0

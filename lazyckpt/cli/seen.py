"""`lazyckpt seen`."""

from __future__ import annotations

import argparse

from lazyckpt.cli.arguments import add_pipeline
from lazyckpt.lineage.command import telling

DESCRIPTION = """\
Prints how many rows came from each source and file, or writes each row to a Parquet file. A
row is an output and one of its origins. It imports the module from the current folder and
reads data where only reading tells.
"""
EXAMPLES = """\
  lazyckpt seen train:pipeline data.json
  lazyckpt seen train:pipeline data.json --since data.json.1 --out seen.parquet
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_pipeline(parser)
    parser.add_argument("state", metavar="STATE", help="a file that lazyckpt.save wrote")
    parser.add_argument("--since", metavar="STATE", help="an earlier one (default: the beginning)")
    parser.add_argument("--out", metavar="PATH", help="a Parquet file (default: print the counts)")


def run(chosen: argparse.Namespace) -> int:
    """Run it; the exit status."""
    return telling(chosen.pipeline, chosen.state, chosen.since, chosen.out)

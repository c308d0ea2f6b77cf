"""`lazyckpt seen`."""

from __future__ import annotations

import argparse

from lazyckpt.cli.arguments import add_pipeline, pipeline_of
from lazyckpt.core.lines import columns
from lazyckpt.lineage.seen import seen
from lazyckpt.pictures.tables import Table
from lazyckpt.state.saving import load

DESCRIPTION = """\
Print the number of rows from each source and file, or write each row to a Parquet file. A row is
an output and one of its origins. Data is read only if the origins can't be computed without it.
"""
EXAMPLES = """\
  lazyckpt seen train:pipeline data.json
  lazyckpt seen train:pipeline data.json --since data.json.1 --out seen.parquet
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_pipeline(parser)
    parser.add_argument("state", metavar="STATE", help="a file or URL written by lazyckpt.save")
    parser.add_argument("--since", metavar="STATE", help="an earlier state (default: the start)")
    words = "write the rows to this Parquet file (default: print the counts)"
    parser.add_argument("--out", metavar="PATH", help=words)


def run(chosen: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    begin = None if chosen.since is None else load(chosen.since)
    found = seen(pipeline_of(chosen.pipeline), load(chosen.state), begin)
    if chosen.out is not None:
        print(f"{found.to_parquet(chosen.out):,} rows in {chosen.out}")
        return 0
    counts = sorted((stage, file or "", rows) for (stage, file), rows in found.counts().items())
    rows = [(stage, f"{count:,}", file) for stage, file, count in counts]
    print(Table(("stage", "rows", "file"), rows, right=("rows",)).to_text(columns()))
    return 0

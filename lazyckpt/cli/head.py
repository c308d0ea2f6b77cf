"""`lazyckpt head`."""

from __future__ import annotations

import argparse

from lazyckpt.cli.arguments import add_pipeline, at_least, pipeline_of
from lazyckpt.core.lines import columns
from lazyckpt.preview import head

DESCRIPTION = """\
Compute the first items of a pipeline and show them with their types, shapes and sizes. Only the
data that these items need is read.
"""
EXAMPLES = """\
  lazyckpt head train:pipeline
  lazyckpt head train:pipeline -n 10
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_pipeline(parser)
    parser.add_argument(
        "-n", type=at_least(1), default=3, help="number of items (default: %(default)s)"
    )


def run(chosen: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    found = head(pipeline_of(chosen.pipeline), chosen.n)
    print(found.to_text(columns(100)))
    if found.error is not None:
        raise found.error
    return 0

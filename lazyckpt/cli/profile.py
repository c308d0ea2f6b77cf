"""`lazyckpt profile`."""

from __future__ import annotations

import argparse

from lazyckpt.cli.arguments import add_executor, add_pipeline, at_least, executor_of, pipeline_of
from lazyckpt.core.lines import columns
from lazyckpt.monitoring.profile import profile

DESCRIPTION = """\
Run a pipeline for some items, and print the time of each stage and the bottleneck.
"""
EXAMPLES = """\
  lazyckpt profile train:pipeline
  lazyckpt profile train:pipeline -n 10000 --processes 8
  lazyckpt profile train:pipeline --chrome trace.json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_pipeline(parser)
    parser.add_argument(
        "-n",
        type=at_least(1),
        default=1000,
        metavar="N",
        help="number of items (default: %(default)s)",
    )
    words = "write a trace to PATH, for chrome://tracing or Perfetto"
    parser.add_argument("--chrome", metavar="PATH", help=words)
    add_executor(parser)


def run(chosen: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    pipeline = pipeline_of(chosen.pipeline)
    found = profile(pipeline, chosen.n, executor=executor_of(chosen))
    print(found.to_text(columns(100)))
    if chosen.chrome is not None:
        found.to_chrome_trace(chosen.chrome)
    return 0

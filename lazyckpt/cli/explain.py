"""`lazyckpt explain`."""

from __future__ import annotations

import argparse

from lazyckpt.cli.arguments import add_executor, add_pipeline, at_least, executor_of, pipeline_of
from lazyckpt.core.lines import columns
from lazyckpt.explanation.explain import explain

DESCRIPTION = """\
Show where each stage of a pipeline would run and how many bytes of a state it takes, then how
many items are prefetched, then warnings. This reads no data and starts no workers.
"""
EXAMPLES = """\
  lazyckpt explain train:pipeline
  lazyckpt explain train:pipeline --processes 8
  lazyckpt explain train:pipeline --ranks 64
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_pipeline(parser)
    add_executor(parser)
    words = "also show the work per rank on N ranks, and the savings from sharing it"
    parser.add_argument("--ranks", type=at_least(1), metavar="N", help=words)


def run(chosen: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    found = explain(pipeline_of(chosen.pipeline), executor_of(chosen), ranks=chosen.ranks)
    print(found.to_text(columns(100)))
    return 0

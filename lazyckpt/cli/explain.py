"""`lazyckpt explain`."""

from __future__ import annotations

import argparse
import shutil

from lazyckpt.cli.arguments import add_executor, add_pipeline, at_least, executor_of, pipeline_of
from lazyckpt.explanation.explain import explain

DESCRIPTION = """\
Prints for each stage of a pipeline who runs it and its bytes in a state; then what is held
ahead, and warnings. It reads no data and starts nothing.
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
    words = "show what each of so many ranks makes, and what sharing it would save"
    parser.add_argument("--ranks", type=at_least(1), metavar="N", help=words)


def run(chosen: argparse.Namespace) -> int:
    """Run it; the exit status."""
    found = explain(pipeline_of(chosen.pipeline), executor_of(chosen), ranks=chosen.ranks)
    print(found.to_text(shutil.get_terminal_size((100, 24)).columns))
    return 0

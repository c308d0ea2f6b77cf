"""`lazyckpt index`."""

from __future__ import annotations

import argparse

from lazyckpt.cli.arguments import add_reading
from lazyckpt.io.index_command import READERS, build_indices

DESCRIPTION = """\
Finds where rows begin and keeps that where readers look for it. A file that is indexed already
is not read again. Patterns have to be quoted for the shell.
"""
EXAMPLES = """\
  lazyckpt index 'corpus/*.jsonl'
  lazyckpt index 's3://bucket/web/*.txt' --workers 8
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("patterns", nargs="+", metavar="PATTERN", help="a path, URL or pattern")
    parser.add_argument(
        "--format",
        choices=tuple(READERS),
        help="what the files hold (default: by the end of their names)",
    )
    add_reading(parser)


def run(chosen: argparse.Namespace) -> int:
    """Run it; the exit status."""
    return build_indices(chosen.patterns, chosen.format, chosen.index_dir, chosen.workers)

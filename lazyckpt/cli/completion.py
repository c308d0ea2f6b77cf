"""`lazyckpt completion`."""

from __future__ import annotations

import argparse

from lazyckpt.cli.main import COMMANDS, parser_of
from lazyckpt.io.storage import optional_module

SHELLS = ("bash", "zsh", "fish")
DESCRIPTION = """\
Print a shell completion script for lazyckpt's commands and their options. Save it where the
shell reads completion scripts; for zsh, in a folder of $fpath.
"""
EXAMPLES = """\
  lazyckpt completion bash >> ~/.bash_completion
  lazyckpt completion zsh > ~/.zfunc/_lazyckpt
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="%(choices)s")


def run(chosen: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    shtab = optional_module("shtab", "cli", "completion")
    print(shtab.complete(parser_of([*COMMANDS]), shell=chosen.shell))
    return 0

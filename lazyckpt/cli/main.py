"""`lazyckpt`: find the command, run it, report an error in one line."""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import lazyckpt
from lazyckpt.core.checks import cut
from lazyckpt.core.lines import columns, filled

COMMANDS = {
    "inspect": "show the position of a state, stage by stage",
    "diff": "compare two states",
    "head": "show the first items of a pipeline",
    "explain": "show where a pipeline's stages would run, with warnings",
    "profile": "measure which stage of a pipeline is slow",
    "seen": "list the origins of all items that a run delivered before a state",
    "index": "build indices of files, for readers of lazyckpt.io",
    "convert": "rewrite a corpus as fixed-size files in a random-access format",
    "demo": "train a small model, kill it repeatedly, and compare with an uninterrupted run",
    "completion": "print a shell completion script",
}
_EPILOG = """\
A pipeline is named as module:name, such as train:pipeline, or train:make if that is a
function that returns one. The module is imported from the current folder.

exit status:
  0    done
  1    states differ, or a check failed
  2    invalid arguments or data; a one-line reason is printed
  130  stopped by Ctrl-C

lazyckpt COMMAND --help shows examples.
"""


_COLOR = re.compile(r"\x1b\[[\d;]*m")


class _Parser(argparse.ArgumentParser):
    """Breaks the lines that argparse leaves too long for the terminal."""

    def format_usage(self) -> str:
        return _fitted(super().format_usage())

    def format_help(self) -> str:
        return _fitted(super().format_help())


def _fitted(text: str) -> str:
    width = columns()
    return "\n".join([part for line in text.split("\n") for part in _broken(line, width)])


def _broken(line: str, width: int) -> list[str]:
    plain = _COLOR.sub("", line)
    text = plain.lstrip()
    if len(plain) <= width:
        return [line]
    if plain.startswith("  lazyckpt "):  # an example: it stays a command, in several lines
        *parts, last = textwrap.wrap(
            plain,
            width - 2,
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        return [*(f"{part} \\" for part in parts), last]
    if len(text) <= width:  # of the usage
        return [text.rjust(width)]
    return filled(text, "  ", " " * 7, width)  # of the exit statuses


class _Help(argparse.RawDescriptionHelpFormatter):
    """Wraps paragraphs, except those with an indented line, such as examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.strip("\n").split("\n\n")
        return "\n\n".join(
            each if "\n " in each else textwrap.fill(each, width) for each in paragraphs
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status."""
    given = sys.argv[1:] if arguments is None else [*arguments]
    parser = parser_of(given[:1])
    chosen = parser.parse_args(given)
    if chosen.command is None:
        parser.print_help()
        return 2
    try:
        status: int = chosen.run(chosen)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # such as in `lazyckpt demo | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return _failed(chosen.command, "stopped", 130)
    except (Exception, SystemExit) as error:  # also from the user's pipeline
        return _failed(chosen.command, _told(error), 2)


def parser_of(names: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of all commands; those in `names` have their arguments."""
    parser = _Parser(
        prog="lazyckpt",
        description=(lazyckpt.__doc__ or "Data pipelines as values.").split("\n")[0],
        epilog=_EPILOG,
        formatter_class=_Help,
    )
    parser.add_argument("--version", action="version", version=f"lazyckpt {lazyckpt.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, formatter_class=_Help)
        if name in names:
            module: Any = import_module(f"lazyckpt.cli.{name}")
            command.description, command.epilog = (
                module.DESCRIPTION,
                f"examples:\n{module.EXAMPLES}",
            )
            module.configure(command)
            command.set_defaults(run=module.run)
    return parser


def _told(error: BaseException) -> str:
    """Return an error as one line, with the stage that raised it."""
    # A line without final punctuation is a sentence; one that begins with "->" continues the last.
    line = re.sub(r"(?<=[^:;,.])\n(?!\s*->)", "; ", str(error))
    text = cut(" ".join(line.split()))
    if not isinstance(error, (lazyckpt.PipelineError, OSError)):
        text = f"{type(error).__name__}: {text}"
    for note in getattr(error, "__notes__", ())[:1]:
        text += f" ({cut(' '.join(note.split()))})"
    return text


def _failed(command: str, text: str, status: int) -> int:
    print(f"lazyckpt {command}: {text}", file=sys.stderr)
    return status

"""Writes the drawings of the documentation: `python -m tests.drawings`, with `demo` records it."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.drawings import choices, demo, measured, ranks, resuming, work
from tests.pages import NOTEBOOKS

FOLDER = NOTEBOOKS / "images"
DRAWINGS: dict[str, Callable[[], str]] = {
    "bytes.svg": lambda: measured.checkpoint_bytes().svg(),
    "dealing.svg": lambda: ranks.dealing().svg(),
    "demo.svg": demo.terminal,
    "drift.svg": lambda: ranks.drift().svg(),
    "executors.svg": lambda: choices.executors().svg(),
    "packings.svg": lambda: choices.packings().svg(),
    "resume.svg": lambda: resuming.strip().svg(),
    "shuffles.svg": lambda: choices.shuffles().svg(),
    "work.svg": lambda: work.where_work_runs().svg(),
}


def main() -> None:
    if sys.argv[1:] == ["demo"]:
        demo.record()
    for name, drawn in DRAWINGS.items():
        (FOLDER / name).write_text(drawn(), "utf-8")


if __name__ == "__main__":
    main()

"""Where the work runs, as `lz.explain` has it: which stages workers run, and what is made ahead."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lazyckpt as lz
from tests.drawings.svg import Drawing

WORKERS = 2
LEFT, WIDE, MIDDLE, GAP, LINE = 6, 246, 266, 22, 16


def read(file: str) -> list[str]:
    """The lines of a file."""
    return Path(file).read_text("utf-8").splitlines()


def tokenize(line: str) -> list[str]:
    """The words of a line."""
    return line.split()


def pipeline() -> lz.Pipeline[Any]:
    """Files that workers read, a buffer, lines that workers tokenize, batches."""
    lines = lz.source(["0.txt", "1.txt"]) | lz.shuffle(seed=0) | lz.flat_map(read)
    return lines | lz.shuffle(64, seed=1) | lz.map(tokenize) | lz.batch(32)


def where_work_runs() -> Drawing:
    """A row for each part of the pipeline, from the source to the loop."""
    parts = lz.explain(pipeline(), lz.processes(WORKERS)).parts
    drawing = Drawing(
        "A pipeline from the top down. Two workers open and read files, and tokenize lines, some "
        "items ahead; the buffer of the shuffle and the batches are made in order by one process "
        "next to the training loop, batches ahead, too",
    )
    top = 0.0
    for stages, where, _ in parts:
        high = max(46, LINE * len(stages) + 12)
        drawing.box(LEFT, top, WIDE, high)
        for n, stage in enumerate(stages):
            drawing.text(
                LEFT + 10,
                top + high / 2 + 4 + LINE * (n - (len(stages) - 1) / 2),
                f"| {stage}" if n else stage,
                "code",
            )
        found = re.search(r"(\d+) processes", where)
        _workers(drawing, top + high / 2, int(found[1]) if found else 0)
        ahead = re.search(r"prefetch (\d+)", where)
        _queue(drawing, top + high / 2, int(ahead[1]) if ahead else 0)
        drawing.down(LEFT + 20, top + high, GAP)
        top += high + GAP
    drawing.box(LEFT, top, WIDE, 30, "for batch in run:", "green")
    drawing.text(MIDDLE, top + 19, "your training loop", "green")
    drawing.height = top + 30
    return drawing


def _workers(drawing: Drawing, middle: float, count: int) -> None:
    """Boxes of workers, or that of the one process that has the items in order."""
    for n in range(count):
        drawing.box(MIDDLE, middle + 25 * (n - count / 2), 84, 22, f"worker {n}", "blue")
    if not count:
        drawing.box(MIDDLE, middle - 12, 84, 24, "in order")


def _queue(drawing: Drawing, middle: float, ahead: int) -> None:
    """A square for each item that is made ahead."""
    left = MIDDLE + 92
    for n in range(ahead):
        drawing.box(left + 13 * n, middle - 6, 12, 12, "", "blue")
    text = f"prefetch {ahead}" if ahead else "no prefetch"
    drawing.text(left + 13 * ahead + 4, middle + 4, text, "small quiet")

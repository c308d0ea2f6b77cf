"""`lazyckpt demo`, recorded: what it prints, and when, as a terminal that plays it in a loop."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from time import monotonic
from typing import NamedTuple

from lazyckpt.demo.data import library
from tests.drawings.svg import WIDTH, Drawing

RECORDED = Path(__file__).with_name("demo.json")
COMMAND = "lazyckpt demo"
COLUMNS, ROWS = 79, 21
LINE, CODE = 14, 10  # units
PLAYED, HELD = 12, 8  # seconds: of all lines, and of the last ones
COLOURS = {"   kill ": "orange", "resumed": "blue", "same": "green"}  # of lines with these words
STYLE = """.paper {{ fill: var(--face); stroke: var(--line) }}
.code {{ font-size: {code}px; white-space: pre }}
.curtain {{ stroke: none; opacity: 0; animation: curtain {all}s step-end infinite }}
.roll {{ transform: translateY({end}px); animation: roll {all}s step-end infinite }}
@keyframes roll {{ {rolled} }}
@keyframes curtain {{ {raised} }}
@media (prefers-reduced-motion: reduce) {{ .roll, .curtain {{ animation: none }} }}
"""


class Line(NamedTuple):
    """What was printed after so many seconds."""

    seconds: float
    text: str


def record() -> None:
    """Run the demo, and keep what it prints; its text is cut beforehand."""
    library()
    begun = monotonic()
    found = [Line(0, f"$ {COMMAND}")]
    program = [sys.executable, "-u", "-m", "lazyckpt", *COMMAND.split()[1:]]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for text in process.stdout:
            found.append(Line(round(monotonic() - begun, 2), text.rstrip()))
    if process.returncode:
        raise SystemExit(f"the demo failed with status {process.returncode}")
    RECORDED.write_text(json.dumps(found, indent=0) + "\n")


def lines() -> Iterator[Line]:
    """What was recorded, in lines that fit."""
    for seconds, text in json.loads(RECORDED.read_text("utf-8")):
        for part in wrap(text, COLUMNS, drop_whitespace=False) or [""]:
            yield Line(seconds, part)


def terminal() -> str:
    """The picture, which plays in a loop; without motion, its end."""
    found = [*lines()]
    share = 100 * PLAYED / (PLAYED + HELD) / found[-1].seconds
    drawing = Drawing(
        f"A terminal runs {COMMAND}: a model is trained twice, once left alone, once killed again "
        "and again and resumed. All batches and the final parameters are the same, bit for bit",
        LINE * ROWS + 6,
    )
    drawing.add(f'<svg width="{WIDTH}" height="{LINE * ROWS}"><g class="roll">')
    shift, rolled, raised = 0, {}, {}
    for n, (seconds, text) in enumerate(found):
        colour = next((each for word, each in COLOURS.items() if word in text), "")
        drawing.text(0, LINE * (n + 1) - 3, text, f"code {colour}")
        shift = LINE * min(0, ROWS - n - 1)
        rolled[seconds * share], raised[seconds * share] = shift, LINE * (n + 1)
    drawing.add(
        f'<rect width="{WIDTH}" height="{LINE * len(found)}" class="curtain paper"/></g></svg>'
    )
    places = {"rolled": _keyframes(rolled), "raised": _keyframes(raised), "end": shift}
    return drawing.svg(STYLE.format(code=CODE, all=PLAYED + HELD, **places))


def _keyframes(places: dict[float, int]) -> str:
    return " ".join(
        f"{share:.2f}% {{ transform: translateY({place}px); opacity: 1 }}"
        for share, place in places.items()
    )

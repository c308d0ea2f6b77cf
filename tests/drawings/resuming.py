"""A resume as a strip: the state, the file that is opened again, what is skipped, the same item."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice

import lazyckpt as lz
from lazyckpt.pictures.drawing import figure
from tests.drawings.svg import Drawing, code_width

FILES = ["abcd", "efgh", "ijkl"]
DELIVERED = 3  # batches before the kill
LEFT, INDENT, HIGH, LANE = 6, 104, 24, 44


def strip() -> Drawing:
    """What a resume does, from the state to the batch that would have come."""
    pipeline = lz.source(FILES) | lz.flat_map(list) | lz.batch(2)
    run = lz.run(pipeline)
    before = list(islice(run, DELIVERED))
    state, following = run.state, next(run)
    resumed = next(lz.run(pipeline, state.to_json()))
    file = next(each for each in FILES if resumed[0] in each)
    seen = [letter for letter in file if letter in chain(*before)]

    drawing = Drawing(
        "A run over files of letters is killed after three batches. The resume reads "
        "the state, opens the current file again, skips the letters that were delivered, and "
        "yields the batch that would have come next",
        254,
    )
    drawing.text(LEFT, 18, "A run that is killed", "bold")
    left = _boxes(drawing, LEFT, 28, map(" ".join, before), "blue")
    drawing.line(f"M{left + 4} 33l14 14m0 -14l-14 14", "orange")
    left = _boxes(drawing, left + 26, 28, [" ".join(following)], "none dashed")
    drawing.text(left + 6, 45, "would have come next", "small quiet")

    steps = ("state", "reopen", "skip", "continue")
    notes = (
        f"{len(state.to_json())} bytes",
        "the current file, no other",
        "the items that were delivered",
        "with the same batch",
    )
    for n, (step, note) in enumerate(zip(steps, notes, strict=True)):
        top = 76 + LANE * n
        drawing.text(LEFT, top + 17, f"{n + 1}  {step}", "bold blue")
        drawing.text(474, top + 17, note, "small quiet", "end")
        if n:
            drawing.down(INDENT + 12, top - 18, 16)
    places = [f"{node.name} {node.place}" for node in figure(state).nodes if node.place]
    _boxes(drawing, INDENT, 76, places, "blue")
    _boxes(drawing, INDENT, 76 + LANE, [file], "")
    left = _boxes(drawing, INDENT, 76 + 2 * LANE, seen, "none dashed")
    _boxes(drawing, left, 76 + 2 * LANE, file[len(seen) :], "")
    _boxes(drawing, INDENT, 76 + 3 * LANE, [" ".join(resumed)], "blue")
    return drawing


def _boxes(drawing: Drawing, left: float, top: float, texts: Iterable[str], kind: str) -> float:
    """Boxes side by side; where the next one may begin."""
    for text in texts:
        width = code_width(text) + 12
        drawing.box(left, top, width, HIGH, text, kind)
        left += width + 4
    return left

"""Ranks: a stream dealt to 4, to 6 and to 3 of them; a filter after `shard`, and its two mends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import lazyckpt as lz
from tests.drawings.svg import WIDTH, Drawing, code_width

CELL, HIGH, LANE = 22, 24, 27
LEFT, GAP = 6, 14
DEALT = ((4, 2, "blue"), (6, 1, "orange"), (3, 2, "green"))  # ranks, items of each, a colour

# Of the page on uneven data.
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def dealt() -> list[list[list[int]]]:
    """The items of each rank, every time from the one state of the ranks before."""
    found, state = [], None
    for ranks, count, _ in DEALT:
        stream = lz.source(range(100)) | lz.repeat()
        parts = [stream | lz.shard(num_shards=ranks, index=index) for index in range(ranks)]
        runs = [lz.run(part, state and lz.rebase(state, part)) for part in parts]
        found.append([[next(run) for _ in range(count)] for run in runs])
        (state,) = {run.state for run in runs}
    return found


def dealing() -> Drawing:
    """One stream, three numbers of ranks."""
    drawing = Drawing(
        "One global stream of numbered items, dealt to 4 ranks, then from their one state to 6, "
        "then to 3: every item goes to one rank, and none is lost or repeated",
        282,
    )
    drawing.text(LEFT, 18, "one global stream", "bold")
    left = float(LEFT)
    for (ranks, _, colour), items in zip(DEALT, dealt(), strict=True):
        stream = sorted(chain(*items))
        for n, number in enumerate(stream):
            drawing.box(left + CELL * n, 28, CELL, HIGH, f"{number}", colour)
        drawing.text(left, 82, f"{ranks} ranks", f"bold {colour}")
        for rank, row in enumerate(items):
            top = 92 + LANE * rank
            drawing.text(left, top + 16, f"rank {rank}", "small quiet")
            for n, number in enumerate(row):
                drawing.box(left + 44 + CELL * n, top, CELL, HIGH, f"{number}", colour)
        left += CELL * len(stream) + GAP
        if ranks != DEALT[-1][0]:
            drawing.line(f"M{left - GAP / 2:g} 22V256", "dashed")
            state = f"one state: {stream[-1] + 1} items"
            drawing.text(left - GAP / 2, 272, state, "small bold", "middle")
    return drawing


def short(word: str) -> bool:
    """What the filter of the page keeps."""
    return len(word) < 4


def batches(words: Sequence[str], *stages: lz.Stage[str, str]) -> list[list[str]]:
    """Pairs of the words that come through some stages."""
    found = lz.source(words)
    for stage in stages:
        found = found | stage
    return list(found | lz.batch(2))


def drift() -> Drawing:
    """Where ranks drift apart, and both mends."""
    drawing = Drawing(
        "With a filter after shard, rank 0 has one batch and rank 1 has two: rank 1 waits in its "
        "second step. With the filter before shard, both have one. With a group, both loops end "
        "after step 1, and the batch that is left begins the next loop",
        376,
    )
    ranks = [lz.shard(num_shards=2, index=rank, remainder="drop") for rank in range(2)]
    drifted = [batches(WORDS, rank, lz.filter(short)) for rank in ranks]
    mended = [batches(WORDS, lz.filter(short), rank) for rank in ranks]

    _head(drawing, 0, "The ranks drift", "shard | filter | batch(2)", "orange")
    for rank, found in enumerate(drifted):
        top = 30 + LANE * rank
        _words(drawing, _rank(drawing, top, rank), top, WORDS[rank::2])
        _batches(drawing, top, found, "orange")
    drawing.text(STEPS + STEP, 47, "has ended", "small orange")
    drawing.text(STEPS + STEP + 36, 74, "waits for rank 0", "small orange")

    _head(drawing, 112, "Mend 1: filter first", "filter | shard | batch(2)", "green")
    _words(drawing, LEFT, 142, WORDS)
    for rank, found in enumerate(mended):
        top = 169 + LANE * rank
        _words(drawing, _rank(drawing, top, rank), top, [*chain(*found)])
        _batches(drawing, top, found, "green")

    _head(drawing, 252, "Mend 2: agree", "lz.torch.loader(..., group=group)", "green")
    for rank, found in enumerate(drifted):
        top = 282 + LANE * rank
        _words(drawing, _rank(drawing, top, rank), top, WORDS[rank::2])
        _batches(drawing, top, found, "green")
    drawing.line(f"M{STEPS + STEP - 5} 276V340", "green")
    drawing.text(STEPS + STEP - 5, 356, "both loops end here", "small green", "middle")
    return drawing


STEPS, STEP = 282, 70  # where the first step is, and how far it is to the next


def _head(drawing: Drawing, top: float, text: str, code: str, kind: str) -> None:
    drawing.text(LEFT, top + 18, text, f"bold {kind}")
    drawing.text(WIDTH - LEFT, top + 18, code, "code quiet", "end")


def _rank(drawing: Drawing, top: float, rank: int) -> float:
    drawing.text(LEFT, top + 16, f"rank {rank}", "small quiet")
    return LEFT + 44


def _words(drawing: Drawing, left: float, top: float, words: Sequence[str]) -> None:
    """Words side by side, with an edge in dashes if the filter drops them."""
    for word in words:
        width = code_width(word) + 7
        drawing.box(left, top, width, HIGH, word, "" if short(word) else "none dashed")
        left += width + 3


def _batches(drawing: Drawing, top: float, found: Sequence[Sequence[str]], kind: str) -> None:
    for n, batch in enumerate(found):
        text = " ".join(batch)
        drawing.box(STEPS + STEP * n, top, code_width(text) + 9, HIGH, text, kind)

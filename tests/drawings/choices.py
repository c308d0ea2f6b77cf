"""Which shuffle, which executor, which packing: questions in turn, each with its answer."""

from __future__ import annotations

from typing import NamedTuple

from tests.drawings.svg import WIDTH, Drawing

LEFT, RIGHT, HIGH, GAP = 6, 262, 46, 22


class Choice(NamedTuple):
    """A question, what to take if the answer is yes, and what that costs or brings."""

    asked: str
    more: str
    answer: str
    note: str


def shuffles() -> Drawing:
    """Which shuffle."""
    return _choice(
        "Which shuffle? If any item is cheap to get by its number, shuffle. If rows are stored in "
        "blocks, local_shuffle. If a resume must re-read one buffer at most, block_shuffle. Else a "
        "shuffle with a buffer, of which a resume re-reads two",
        Choice(
            "Is any item", "cheap to get by its number?", "shuffle(seed=0)", "all items; no re-read"
        ),
        Choice(
            "Are rows stored in blocks,",
            "as row groups of Parquet?",
            "local_shuffle(16, seed=0)",
            "decodes each block once",
        ),
        Choice(
            "Must a resume re-read",
            "one buffer at most?",
            "block_shuffle(1_000, seed=0)",
            "items stay in their block",
        ),
        otherwise=("shuffle(1_000, seed=0)", "a resume re-reads two buffers"),
    )


def executors() -> Drawing:
    """Which executor."""
    return _choice(
        "Which executor? If the loop hardly waits, inline. If files, decoding or NumPy take the "
        "time, threads. If many ranks repeat work before shard, shared workers. If one machine is "
        "enough, processes. Else Ray or any concurrent.futures executor",
        Choice(
            "Does the loop hardly wait",
            "for its next batch?",
            "inline()",
            "the default; see run.stats",
        ),
        Choice(
            "Is it files, decoding, NumPy",
            "that takes the time?",
            "threads(8)",
            "they release the GIL",
        ),
        Choice(
            "Do many ranks repeat",
            "the work before shard?",
            "lz.torch.shared(...)",
            "each item is made once for all",
        ),
        Choice(
            "Is one machine", "enough for the work?", "processes(8)", "Python code, on all cores"
        ),
        otherwise=("ray(workers=64)", "or futures(...), as Dask's"),
    )


def packings() -> Drawing:
    """Which packing."""
    return _choice(
        "Which packing? If a sequence may be cut where a row is full, concat_then_split. If all "
        "lengths are known before the run, pack_by_plan. If less padding is worth more time, "
        "pack_best_fit. Else pack_first_fit",
        Choice(
            "May a sequence be cut", "where a row is full?", "concat_then_split(2048)", "no padding"
        ),
        Choice(
            "Are all lengths known",
            "before the run?",
            "pack_by_plan(plan)",
            "next to no padding; seeks",
        ),
        Choice("Is less padding", "worth more time?", "pack_best_fit(2048, ...)", "less padding"),
        otherwise=("pack_first_fit(2048, ...)", "little padding"),
    )


def _choice(alt: str, *choices: Choice, otherwise: tuple[str, str]) -> Drawing:
    """Questions from the top down; an answer to the right of each, the last one below."""
    drawing = Drawing(alt, (HIGH + GAP) * len(choices) + HIGH)
    for n, (asked, more, answer, note) in enumerate(choices):
        top = 4 + (HIGH + GAP) * n
        drawing.box(LEFT, top, 212, HIGH)
        drawing.text(LEFT + 12, top + 20, asked)
        drawing.text(LEFT + 12, top + 37, more)
        drawing.right(LEFT + 212, top + HIGH / 2, 40)
        drawing.text(LEFT + 220, top + HIGH / 2 - 6, "yes", "small quiet")
        drawing.down(LEFT + 30, top + HIGH, GAP)
        drawing.text(LEFT + 38, top + HIGH + 15, "no", "small quiet")
        _answer(drawing, RIGHT, top, answer, note)
    _answer(drawing, LEFT, 4 + (HIGH + GAP) * len(choices), *otherwise)
    return drawing


def _answer(drawing: Drawing, left: float, top: float, code: str, note: str) -> None:
    drawing.box(left, top, WIDTH - LEFT - RIGHT, HIGH - 8, "", "blue")
    drawing.text(left + 8, top + 16, code, "code bold")
    drawing.text(left + 8, top + 31, note, "small quiet")

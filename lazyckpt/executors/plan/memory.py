"""What workers hold ahead, at most, in words."""

from __future__ import annotations

from textwrap import wrap

from lazyckpt.core.checks import plural
from lazyckpt.core.show import WIDTH
from lazyckpt.executors.plan.runs import PART_BYTES
from lazyckpt.executors.plan.segments import Segment, all_segments
from lazyckpt.executors.plan.tasks import CHUNK_BYTES, CHUNK_ITEMS, READY_BYTES


def with_count(where: str, ahead: int) -> str:
    """A place, and how many items are made or being made there that nobody has asked for."""
    items = plural(ahead, "item") if ahead else "nothing"
    return f"{where}; {items} ahead"


def said(segments: list[Segment], buffer_size: int, slots: int, *, is_gated: bool) -> str:
    """What the counts of items leave open, as one sentence.

    Args:
        segments: Those of the pipeline.
        buffer_size: Items to have ready.
        slots: Of shared memory, that a worker has; 0 where there is none.
        is_gated: Whether nothing is made that nobody waits for.
    """
    found = ["stages have their own buffers"]
    if is_gated:
        found.append("so much is ahead only within run.allow_buffering")
    else:
        found.append(
            f"items below {_size(CHUNK_BYTES)} come in chunks of {_size(CHUNK_BYTES)} "
            f"and {CHUNK_ITEMS:,} items at most, 3 for each worker and 2 more, and {buffer_size} "
            "items besides"
        )
    inside = [*all_segments(segments)]
    if any(each.kind == "runs" for each in inside):
        found.append(
            f"what comes of an item, in parts of {_size(PART_BYTES)} or one item, with "
            f"{_size(READY_BYTES)} for each worker"
        )
    if any(each.parts for each in inside):
        found.append("pipelines that are joined share what is ahead, and have one item each")
    if slots:
        found.append(
            f"large arrays and messages lie in {slots} slots of shared memory for each worker, "
            "as large as its largest message"
        )
    return "\n  ".join(wrap("memory: " + "; ".join(found), WIDTH))


def _size(count: int) -> str:
    return f"{count >> 10} KiB" if count < 1 << 20 else f"{count / (1 << 20):g} MiB"

"""Describe the most memory that prefetched items use."""

from __future__ import annotations

from textwrap import wrap

from lazyckpt.core.show import WIDTH
from lazyckpt.executors.plan.runs import PART_BYTES
from lazyckpt.executors.plan.segments import Segment, all_segments
from lazyckpt.executors.plan.tasks import CHUNK_BYTES, CHUNK_ITEMS, READY_BYTES


def with_count(where: str, ahead: int) -> str:
    """Append the number of prefetched items to the description of where stages run."""
    return f"{where}; prefetch {ahead:,}" if ahead else f"{where}; no prefetch"


def said(segments: list[Segment], buffer_size: int, slots: int, *, is_gated: bool) -> str:
    """Describe, in one sentence, the memory that the counts of items don't show.

    Args:
        segments: The segments of the pipeline.
        buffer_size: Number of items to hold ready.
        slots: Number of shared memory slots per worker; 0 if there is no shared memory.
        is_gated: If True, compute only items that the consumer waits for.
    """
    found = ["stages have their own buffers"]
    if is_gated:
        found.append("items are prefetched only within run.allow_buffering")
    else:
        found.append(
            f"items below {_size(CHUNK_BYTES)} travel in chunks of at most {_size(CHUNK_BYTES)} "
            f"and {CHUNK_ITEMS:,} items, with 3 chunks per worker, 2 more chunks, and "
            f"{buffer_size} more items"
        )
    inside = [*all_segments(segments)]
    if any(each.kind == "runs" for each in inside):
        found.append(
            f"the outputs of one input travel in parts of at most {_size(PART_BYTES)} or one item, "
            f"with {_size(READY_BYTES)} per worker"
        )
    if any(each.parts for each in inside):
        found.append("joined pipelines share these limits, with at least one item each")
    if slots:
        found.append(
            f"large arrays and messages lie in {slots} slots of shared memory per worker, "
            "each as large as the worker's largest message"
        )
    return "\n  ".join(wrap("memory: " + "; ".join(found), WIDTH))


def _size(count: int) -> str:
    return f"{count >> 10} KiB" if count < 1 << 20 else f"{count / (1 << 20):g} MiB"

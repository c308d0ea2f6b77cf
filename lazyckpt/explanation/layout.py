"""Lay out stages and the places where they run as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from lazyckpt.executors.executor import Part

LINE = 100  # characters
_LEAST = 32  # characters of a line that stages may fill at least


def laid_out(parts: Sequence[Part], width: int = LINE) -> str:
    """Return lines with the stages on the left; their place is right of their last line."""
    most = max(_LEAST, width - 2 - max(len(where) for _, where, _ in parts))
    texts = [_filled(stages, most) for stages, _, _ in parts]
    ends = [len(text.rpartition("\n")[2]) for text in texts]
    width = max((end for end in ends if end <= most), default=0)
    gaps = [" " * (width - end) if end <= width else "\n" + " " * width for end in ends]
    return "\n".join(
        f"{text}{gap}  {where}" for text, gap, (_, where, _) in zip(texts, gaps, parts, strict=True)
    )


def _filled(stages: tuple[str, ...], most: int) -> str:
    """Return stages as lines of at most `most` characters, broken between stages."""
    first, *rest = stages
    margin = " " * (len(first) - len(first.lstrip()))
    lines = first.split("\n")
    for stage in rest:
        joined = f"{lines[-1]} | {stage}"
        if len(joined) <= most and "\n" not in stage:
            lines[-1] = joined
        else:
            lines += f"{margin}| {stage}".split("\n")
    return "\n".join(lines)

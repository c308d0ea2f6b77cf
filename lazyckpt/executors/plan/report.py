"""What runs where, as lines that a person reads, and what to look at twice."""

from __future__ import annotations

import math
from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.machine import Machine
from lazyckpt.core.registry import registry
from lazyckpt.core.show import WIDTH

Part = tuple[tuple[str, ...], str]  # stages as they are shown, and where they run

_MOST = 100  # characters of a line
_LEAST = 32  # of the stages in it
_LONG = 1 << 40  # items, more than a stage is told to take


def laid_out(parts: list[Part]) -> str:
    """Lines with the stages to the left, and their places to the right of their last line."""
    most = max(_LEAST, _MOST - 2 - max(len(where) for _, where in parts))
    texts = [_filled(stages, most) for stages, _ in parts]
    ends = [len(text.rpartition("\n")[2]) for text in texts]
    width = max((end for end in ends if end <= most), default=0)
    gaps = [" " * (width - end) if end <= width else "\n" + " " * width for end in ends]
    return "\n".join(
        f"{text}{gap}  {where}" for text, gap, (_, where) in zip(texts, gaps, parts, strict=True)
    )


def _filled(stages: tuple[str, ...], most: int) -> str:
    """Stages in lines of so many characters, where they can be cut."""
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


def warnings(chain: Chain) -> Iterator[str]:
    """What gives other items than one may expect."""
    shuffle: Call | None = None
    for call, machine in zip(chain.calls, chain.machines, strict=True):
        if shuffle is not None and _cuts(call) and _is_fewer(machine):
            text = (
                f"warning: {call!r} gives another subset in each epoch, for {shuffle!r} before it "
                f"takes a new order; to keep one subset, put {call.name} before {shuffle.name}"
            )
            yield "\n  ".join(wrap(text, WIDTH))
        if call.combinator.branch is not None and call.combinator.keeps_items:
            shuffle = call
        elif machine.length == math.inf:
            shuffle = None


def _is_fewer(machine: Machine[Any]) -> bool:
    """Whether a stage gives, or may give, fewer items than come before it."""
    return machine.length is None or bool(machine.length != machine.upstream.length)


def _cuts(call: Call) -> bool:
    """Whether a stage leaves items out by their number: it counts them, and gives fewer."""
    if call.combinator.is_source or not call.combinator.keeps_items or call.covers:
        return False
    found = call.build(registry["source"].build(range(_LONG)))
    is_one_by_one = found.rate.each == 1 and not found.rate.whole_epoch
    return found.owns and is_one_by_one and found.length is not None and found.length < _LONG

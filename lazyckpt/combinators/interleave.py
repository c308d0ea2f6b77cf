"""`interleave`: items of several pipelines in turn."""

from __future__ import annotations

from typing import TypeVar

from lazyckpt.combinators.machines.join import joined
from lazyckpt.combinators.machines.turns import Turns
from lazyckpt.core.checks import positive
from lazyckpt.core.machine import Machine
from lazyckpt.decorators import source_combinator
from lazyckpt.pipeline import Pipeline

A = TypeVar("A")


@source_combinator(
    keeps_items=True,
    checks={"block_length": positive},
    validate=lambda pipelines, block_length: joined("interleave", pipelines),
)
def interleave(*pipelines: Pipeline[A], block_length: int = 1) -> Machine[A]:
    """Yield items of each pipeline in turn, round-robin over those that haven't ended.

    Args:
        pipelines: One or more pipelines.
        block_length: Number of consecutive items from one pipeline before the next one's turn.

    Raises:
        ArgumentError: If called without pipelines.

    State:
        The state of each pipeline, which ones have ended, whose turn it is, and a count of the
        items yielded in that turn.

    Resume:
        Re-reads what each pipeline re-reads.

    Random access:
        If all pipelines have it.

    Rank-invariant:
        If all pipelines are.

    >>> import lazyckpt as lz
    >>> list(lz.interleave(lz.source([1, 2, 3]), lz.source([10]), lz.source([20, 30])))
    [1, 10, 20, 2, 30, 3]
    """
    return Turns([pipeline.machine for pipeline in pipelines], block_length).machine("interleave")

"""Several pipelines in turn: `interleave`."""

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
    """Items of each pipeline in turn, round and round over those that still have some.

    Args:
        pipelines: One or more.
        block_length: How many items one gives before it is the next one's turn.

    Raises:
        ArgumentError: None is given.

    State:
        That of each pipeline, which have ended, whose turn it is, and a count of
        the items given in it.

    Resume:
        Re-reads what each pipeline does.

    Random access:
        If all pipelines have it.

    Rank-invariant:
        Where all are.

    >>> import lazyckpt as lz
    >>> list(lz.interleave(lz.source([1, 2, 3]), lz.source([10]), lz.source([20, 30])))
    [1, 10, 20, 2, 30, 3]
    """
    return Turns([pipeline.machine for pipeline in pipelines], block_length).machine("interleave")

"""`repeat`: the stream over several epochs."""

from __future__ import annotations

from typing import TypeVar

from lazyckpt.combinators.machines.repeated import repeated
from lazyckpt.core.checks import natural, optional
from lazyckpt.core.machine import Machine
from lazyckpt.core.registry import Elastic
from lazyckpt.decorators import combinator

A = TypeVar("A")


@combinator(
    keeps_items=True,
    checks={"count": optional(natural)},
    elastic=Elastic(changes={"count": "any"}),
)
def repeat(upstream: Machine[A], count: int | None = None) -> Machine[A]:
    """Repeat the stream `count` times or forever; upstream shuffles use a new order each epoch.

    Args:
        count: Number of epochs, an int >= 0; None for endless repetition.

    Raises:
        PipelineError: If a stream that is repeated forever is empty. A stream that may have items
            in a later epoch, as after a `filter`, is tried for at least 10 epochs, and at least
            10,000 items of the source.

    State:
        None; the epoch is the source's.

    Resume:
        Re-reads nothing.

    Random access:
        Kept.

    Rank-invariant:
        If all shards have the same length; put it before `shard`.

    >>> import lazyckpt as lz
    >>> list(lz.source("ab".split()) | lz.repeat(2))
    ['ab', 'ab']
    """
    return repeated(upstream, count, "repeat: the stream")

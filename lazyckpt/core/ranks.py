"""Whose a position is: that of all ranks, or of one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyckpt.core.machine import Machine
from lazyckpt.core.user_state import storable

if TYPE_CHECKING:
    from lazyckpt.core.call import Call, Chain


class Rank(NamedTuple):
    """One of several ranks, as `shard` numbers them: from 0."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"rank {self.number} of {self.of}"


def rank_of(machine: Machine[Any]) -> Rank | None:
    """The rank that a machine belongs to; None where its data are not divided."""
    share = machine.share
    return Rank(share.rank, share.ranks) if share.ranks > 1 else None


def is_global(chain: Chain) -> bool:
    """Whether all ranks are at equal positions after as many items."""
    stages = zip(chain.calls, chain.machines, strict=True)
    return all(_is_in_step(*each) for each in stages) and all(map(is_global, chain.calls[0].chains))


def _is_in_step(call: Call, machine: Machine[Any]) -> bool:
    share, rate = machine.share, machine.rate
    # Of what one rank has come to the end of, another may read on.
    sees_end = rate.more > 0 or rate.epochs != 1 or len(machine.children) > 1
    return share.ranks == 1 or (is_rank_free(call, machine) and (share.is_even or not sees_end))


def is_rank_free(call: Call, machine: Machine[Any]) -> bool:
    """Whether where a stage stands is known to depend on no item, which is another on other ranks.

    It isn't of what keeps a count of items that may end anywhere.
    """
    combinator, upstream = call.combinator, machine.upstream
    if combinator.elastic.reshard is not None or machine.rate.each == math.inf:
        return False
    if upstream is None or not machine.owns:
        return True
    lengths = machine.length, upstream.length
    return None not in lengths and storable not in combinator.checks.values()

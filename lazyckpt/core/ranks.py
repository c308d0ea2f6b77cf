"""Whose a position is: that of all ranks, or of one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyckpt.core.machine import Machine
from lazyckpt.core.user_state import storable

if TYPE_CHECKING:
    from lazyckpt.core.call import Call, Chain


class Rank(NamedTuple):
    """One of several ranks.

    Attributes:
        number: Its number, from 0, as the `index` of `shard` has it.
        of: How many ranks there are.
    """

    number: int
    of: int

    def __str__(self) -> str:
        return f"rank {self.number} of {self.of}"


def rank_of(machine: Machine[Any]) -> Rank | None:
    """The rank that a machine belongs to; None where its data are not divided."""
    share = machine.share
    return Rank(share.rank, share.ranks) if share.ranks > 1 else None


def parting(chain: Chain) -> Call | None:
    """The stage behind which ranks are at positions of their own after as many items, if any."""
    for inner in chain.calls[0].chains:
        if inner.own_rank is not None:  # told once of a pipeline that is joined several times
            return parting(inner)
    stages = zip(chain.calls, chain.machines, strict=True)
    return next((call for call, machine in stages if not _is_in_step(call, machine)), None)


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

"""Ownership of positions: by all ranks, or by one."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from lazyckpt.core.machine import Machine, apart
from lazyckpt.core.registry import Combinator
from lazyckpt.core.user_state import storable


class Rank(NamedTuple):
    """One of several ranks.

    Attributes:
        number: Its number, from 0: the `index` of `shard`.
        of: The number of ranks.
    """

    number: int
    of: int

    def __str__(self) -> str:
        return f"rank {self.number} of {self.of}"


def finest(*ranks: Rank | None) -> Rank | None:
    """Of ranks that are parts of each other, return the one with the most ranks; None if none."""
    return max((rank for rank in ranks if rank), key=lambda rank: rank.of, default=None)


def rank_of(machine: Machine[Any]) -> Rank | None:
    """Return the rank that a machine belongs to; None if its data are not divided."""
    share = machine.share
    return Rank(share.rank, share.ranks) if share.ranks > 1 else None


def is_in_step(combinator: Combinator, machine: Machine[Any]) -> bool:
    """Return whether ranks at equal positions before a stage are at equal positions after it."""
    share = machine.share
    if share.ranks == 1:
        return True
    return is_rank_invariant(combinator, machine) and (share.is_even or not _sees_end(machine))


def _sees_end(machine: Machine[Any]) -> bool:
    """Return whether a stage may reach the end before its items do, and so on one rank only."""
    rate, upstream = machine.rate, machine.upstream
    passes_over = upstream and apart(machine, machine.init(0))[0] != upstream.init(0)
    return bool(rate.more or rate.epochs != 1 or len(machine.children) > 1 or passes_over)


def is_rank_invariant(combinator: Combinator, machine: Machine[Any]) -> bool:
    """Return whether a stage's position is known not to depend on items, which ranks don't share.

    A stage that counts items that may end anywhere is not rank-invariant.
    """
    upstream = machine.upstream
    if combinator.elastic.reshard is not None or machine.rate.each == math.inf:
        return False
    if upstream is None or not machine.owns:
        return True
    lengths = machine.length, upstream.length
    return None not in lengths and storable not in combinator.checks.values()

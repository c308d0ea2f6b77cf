"""Stages that join pipelines, and stages after them: do they look at items?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.machine import Machine
from lazyckpt.core.registry import registry

_ENOUGH = 1 << 40  # items: more than any stage's `n`


def with_machines(call: Call, machines: Iterable[Machine[Any] | None]) -> Call:
    """Replace the machines of joined pipelines; None keeps the machine of a pipeline."""
    following = iter(machines)

    def with_next(chain: Chain) -> Chain:
        if (machine := next(following)) is None:
            return chain
        made = type(chain)(chain.calls)
        made.__dict__["machine"] = machine
        return made

    return call.with_chains(with_next)


def draws(call: Call) -> bool:
    """Return whether a stage joins pipelines by its own choices, whatever their items are."""
    return _chooses(call) and not any(_is_looked_at(call, each) for each in call.chains)


def _chooses(call: Call) -> bool:
    """Return whether a stage joins pipelines by its own choices."""
    is_joining = call.combinator.is_source and bool(call.chains)
    return is_joining and call.build(None).choices is not None


def _is_looked_at(call: Call, chain: Chain) -> bool:
    """Return whether a pipeline's items decide which items of the others are used."""
    return any(call.arguments[name] is chain for name in call.functions)


def is_blind(call: Call) -> bool:
    """Return whether a stage passes items on without looking at them."""
    if not call.combinator.keeps_items or call.functions:
        return False
    # A stage that doesn't look at items has random access if its input has.
    return call.build(registry["source"].build(range(_ENOUGH))).skip is not None

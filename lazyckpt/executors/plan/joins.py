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
    if not (call.combinator.is_source and call.chains) or call.build(None).choices is None:
        return False
    functions = [call.arguments[name] for name in call.functions]
    return not any(each is fn for each in call.chains for fn in functions)


def is_blind(call: Call) -> bool:
    """Return whether a stage passes items on without looking at them."""
    if not call.combinator.keeps_items or call.functions:
        return False
    # A stage that doesn't look at items has random access if its input has.
    return call.build(registry["source"].build(range(_ENOUGH))).skip is not None

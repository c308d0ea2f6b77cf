"""`take_tokens`: the first items of an epoch, up to a number of tokens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from lazyckpt.combinators.machines.token_rows import token_count
from lazyckpt.core.checks import function, natural
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine, Rate, Reread, within
from lazyckpt.core.stages import stateful
from lazyckpt.decorators import combinator, giving
from lazyckpt.pipeline import Keeping

A = TypeVar("A", bound=Any)  # bound to Any, so that pyright doesn't check the body of a lambda


@giving(Keeping)
@combinator(checks={"tokens": natural, "key": function}, functions={"key": "look"})
def take_tokens(upstream: Machine[A], tokens: int, *, key: Callable[[A], int]) -> Machine[A]:
    """Keep the first items of an epoch that have at most `tokens` tokens together.

    The first item that would exceed the limit is read and dropped, and the epoch ends. Before
    `repeat` the limit holds per epoch, after it for all epochs together.

    Args:
        tokens: Number of tokens, an int >= 0.
        key: Function from an item to its number of tokens, an int >= 0.

    Raises:
        TypeError: If a number of tokens is not an int >= 0.

    State:
        A count of tokens, and whether the epoch has ended.

    Resume:
        Re-reads nothing.

    Random access:
        No.

    Rank-invariant:
        No.

    >>> import lazyckpt as lz
    >>> list(lz.source(["to", "be", "or", "not"]) | lz.take_tokens(5, key=len))
    ['to', 'be']
    """

    def flow(position: Position) -> Flow[A]:
        before, given, ended = position
        items = upstream.flow(before)

        def some() -> Iterator[A]:
            nonlocal given, ended
            if ended:
                return
            for item in items:
                size = token_count("take_tokens", key(item), item)
                if given + size > tokens:
                    break
                given += size
                yield item
            else:
                return
            ended = 1

        return Flow(some(), lambda: (items.snapshot(), given, ended))

    def check(given: int, ended: int) -> None:
        within("take_tokens", given, min(tokens, sys.maxsize)), within("take_tokens", ended, 1)

    return stateful(
        "take_tokens",
        upstream,
        first=(0, 0),
        check=check,
        rate=Rate(1, 1),
        rereads=lambda position: (Reread(position[0], ended=position[2] == 1),),
        flow=flow,
    )._replace(holds=False)

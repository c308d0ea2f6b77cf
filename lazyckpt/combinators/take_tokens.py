"""`take_tokens`: the first items, as far as a number of tokens goes."""

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

A = TypeVar("A", bound=Any)  # by which pyright lets a lambda do anything with it


@giving(Keeping)
@combinator(checks={"tokens": natural, "key": function}, functions={"key": "look"})
def take_tokens(upstream: Machine[A], tokens: int, *, key: Callable[[A], int]) -> Machine[A]:
    """The first items of an epoch that have at most so many tokens together.

    The item that would go beyond is read, and ends it. Before `repeat` it is a limit of an
    epoch, behind it one of all epochs.

    Args:
        tokens: How many, an int >= 0.
        key: How many tokens an item has, an int >= 0.

    Raises:
        TypeError: For a length that is no int >= 0.

    State:
        A count of tokens, and whether it has ended.

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

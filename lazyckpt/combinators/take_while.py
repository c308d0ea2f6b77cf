"""`take_while`, `drop_while`: the items before the first that a predicate rejects, or the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, TypeVarTuple

from lazyckpt.combinators.filter import selecting
from lazyckpt.core.checks import function
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine, Rate, Reread, within
from lazyckpt.core.registry import Elastic
from lazyckpt.core.stages import applying, stateful
from lazyckpt.decorators import combinator, giving
from lazyckpt.pipeline import Keeping

A = TypeVar("A", bound=Any)  # bound to Any, so that pyright doesn't check the body of a lambda
Ts = TypeVarTuple("Ts")


@selecting
@combinator(
    checks={"predicate": function},
    functions={"predicate": "look"},
    elastic=Elastic(changes={"args": "here"}),
)
def take_while(upstream: Machine[A], predicate: Callable[[*Ts, A], Any], *args: *Ts) -> Machine[A]:
    """Keep the items of an epoch before the first one for which `predicate(item)` is false.

    That first item is read, and nothing after it.

    Args:
        predicate: Function of one item. With `args`, it is called as `predicate(*args, item)`,
            as by `functools.partial`.
        args: Arguments before the item.

    State:
        Whether the epoch has ended.

    Resume:
        Re-reads nothing.

    Random access:
        No.

    Rank-invariant:
        No.

    >>> import lazyckpt as lz
    >>> list(lz.count() | lz.take_while(lambda x: x < 3))
    [0, 1, 2]
    """

    is_wanted = applying(predicate, args)

    def before(items: Iterator[A], turn: Callable[[], None]) -> Iterator[A]:
        for item in items:
            if not is_wanted(item):
                break
            yield item
        turn()

    return _turning(
        "take_while",
        upstream,
        before,
        lambda items: iter(()),
        Rate(1, 1),
        lambda position: (Reread(position[0], ended=position[1] == 1),),
    )._replace(holds=False)


@giving(Keeping)
@combinator(checks={"predicate": function}, functions={"predicate": "look"})
def drop_while(upstream: Machine[A], predicate: Callable[[A], Any]) -> Machine[A]:
    """Keep the items of an epoch from the first one on for which `predicate(item)` is false.

    Args:
        predicate: Function of one item.

    State:
        Whether the first item was found.

    Resume:
        Re-reads nothing.

    Random access:
        No.

    Rank-invariant:
        No.

    >>> import lazyckpt as lz
    >>> list(lz.source([1, 5, 2]) | lz.drop_while(lambda x: x < 3))
    [5, 2]
    """

    def after(items: Iterator[A], turn: Callable[[], None]) -> Iterator[A]:
        for item in items:
            if not predicate(item):
                turn()
                yield item
                break
        yield from items

    return _turning("drop_while", upstream, after, iter, Rate(1, math.inf))


def _turning(
    name: str,
    upstream: Machine[A],
    first: Callable[[Iterator[A], Callable[[], None]], Iterator[A]],
    then: Callable[[Iterator[A]], Iterator[A]],
    rate: Rate,
    rereads: Callable[[Position], Iterable[Reread]] | None = None,
) -> Machine[A]:
    """Use `first(items, turn)`, and `then(items)` for a flow opened after `turn` was called."""

    def flow(position: Position) -> Flow[A]:
        before, turned = position
        items = upstream.flow(before)

        def turn() -> None:
            nonlocal turned
            turned = 1

        stream = iter(items)
        given = then(stream) if turned else first(stream, turn)
        return Flow(given, lambda: (items.snapshot(), turned))

    return stateful(
        name,
        upstream,
        check=lambda turned: within(name, turned, 1),
        rate=rate,
        rereads=rereads,
        flow=flow,
    )

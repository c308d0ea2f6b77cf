"""`filter`: the items that a predicate accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar, TypeVarTuple, overload

from lazyckpt.core.checks import function
from lazyckpt.core.flow import Flow, Position, noted
from lazyckpt.core.machine import Machine, anchored
from lazyckpt.core.registry import Elastic
from lazyckpt.core.stages import applying, stateless
from lazyckpt.decorators import combinator
from lazyckpt.pipeline import Keeping

A = TypeVar("A", bound=Any)  # bound to Any, so that pyright doesn't check the body of a lambda
Ts = TypeVarTuple("Ts")


class _Filter(Protocol):
    """Overloads that tell type checkers the argument of a lambda; the decorator can't make them."""

    @overload
    def __call__(self, predicate: Callable[[A], Any]) -> Keeping[A]: ...
    @overload
    def __call__(self, predicate: Callable[[*Ts, A], Any], *args: *Ts) -> Keeping[A]: ...


def selecting(public: Any) -> _Filter:
    found: _Filter = public
    return found


@selecting
@combinator(
    checks={"predicate": function},
    functions={"predicate": "predicate"},
    elastic=Elastic(changes={"args": "here"}),
    itemwise=True,
)
def filter(upstream: Machine[A], predicate: Callable[[*Ts, A], Any], *args: *Ts) -> Machine[A]:
    """Keep the items for which `predicate(item)` is true.

    Args:
        predicate: Function of one item. With `args`, it is called as `predicate(*args, item)`,
            as by `functools.partial`.
        args: Arguments before the item.

    State:
        None.

    Resume:
        Re-reads nothing.

    Random access:
        No.

    Rank-invariant:
        No.

    >>> import lazyckpt as lz
    >>> list(lz.source(range(6)) | lz.filter(lambda x: x % 2))
    [1, 3, 5]
    """
    return selected(upstream, applying(predicate, args))


def selected(upstream: Machine[A], predicate: Callable[[A], Any]) -> Machine[A]:
    def step(position: Position) -> tuple[Position, A]:
        while True:
            position, item = upstream.step(position)
            if predicate(item):
                return position, item

    def flow(position: Position) -> Flow[A]:
        return chosen(anchored(upstream, position))

    def chosen(items: Flow[A]) -> Flow[A]:
        blocks = (items.pull,) if items.blocks is None else items.blocks
        kept, before = _kept(blocks, items.fn, predicate), items.before

        def noting() -> Flow[A]:
            return chosen(noted(items)[0])

        return Flow(kept, items.snapshot, before=before, noting=None if before else noting)

    return stateless(upstream, step=step, flow=flow)


def _kept(
    blocks: Iterable[Iterator[Any]], fn: Callable[[Any], A] | None, predicate: Callable[[A], Any]
) -> Iterator[A]:
    """One loop for a pending function and the predicate: half the cost of two."""
    for block in blocks:
        if fn is None:
            for item in block:
                if predicate(item):
                    yield item
        else:
            for each in block:
                item = fn(each)
                if predicate(item):
                    yield item

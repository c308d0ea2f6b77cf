"""`batch`: many items in, one out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Protocol, TypeVar, overload

from lazyckpt.combinators.machines.stacking import stack
from lazyckpt.core.checks import boolean, brief, function, optional, positive
from lazyckpt.core.flow import Flow, Position, items_at
from lazyckpt.core.machine import End, Machine, Rate
from lazyckpt.core.prng import Indices
from lazyckpt.core.registry import Elastic
from lazyckpt.core.stages import stateless
from lazyckpt.decorators import combinator
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Listing, Stage

A = TypeVar("A", bound=Any)  # bound to Any, so that pyright doesn't check the body of a lambda
B = TypeVar("B")


class _Batch(Protocol):
    """The types of `batch`, which depend on `collate`; the decorator can't express that."""

    @overload
    def __call__(
        self, batch_size: int, *, drop_last: bool = False, collate: None = None, pad: Any = None
    ) -> Listing[object]: ...
    @overload
    def __call__(
        self,
        batch_size: int,
        *,
        drop_last: bool = False,
        collate: Callable[[list[A]], B] | None,
        pad: A | None = None,
    ) -> Stage[A, B]: ...


def _typed(public: Any) -> _Batch:
    found: _Batch = public
    return found


def _last(drop_last: bool, pad: Any, **_: Any) -> None:
    if drop_last and pad is not None:
        raise ArgumentError(
            f"batch: a final batch is dropped or padded, not both; "
            f"got drop_last=True and pad={brief(pad)}"
        )


@_typed
@combinator(
    checks={"batch_size": positive, "drop_last": boolean, "collate": optional(function)},
    validate=_last,
    unrecorded=("collate",),
    functions={"collate": "collate"},
    elastic=Elastic(changes={"batch_size": "here", "drop_last": "here", "pad": "blind"}),
)
def batch(
    upstream: Machine[A],
    batch_size: int,
    *,
    drop_last: bool = False,
    collate: Callable[[list[A]], Any] | None = None,
    pad: A | None = None,
) -> Machine[Any]:
    """Group consecutive items into lists of `batch_size`, and apply `collate` to each list.

    Args:
        batch_size: Number of items per batch, an int >= 1.
        drop_last: If True, drop a final batch shorter than `batch_size`.
        collate: Function called with each list, such as `lazyckpt.stack`, which makes arrays;
            None to yield the lists. Over a table of arrays (`columns`, `source(array)`), `stack`
            reads whole batches in one call, and so does a dataset with `__getitems__`.
        pad: Item that fills up a final batch shorter than `batch_size`; None to leave it short.
            To fill it up with None, use a `collate` that does so.

    Raises:
        ArgumentError: If both `drop_last` and `pad` are given.

    State:
        None.

    Resume:
        Re-reads nothing, also with a different batch size (`rebase`).

    Random access:
        Kept.

    Rank-invariant:
        Yes.

    Memory:
        One batch.

    >>> import lazyckpt as lz
    >>> list(lz.source(list("abcde")) | lz.batch(2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """

    filled = None if pad is None else lambda items: items + [pad] * (batch_size - len(items))

    def step(position: Position) -> tuple[Position, Any]:
        items: list[A] = []
        while len(items) < batch_size:
            try:
                position, item = upstream.step(position)
            except End as end:
                if drop_last or not items:
                    raise
                position = end.position
                break
            items.append(item)
        if filled is not None:
            items = filled(items)
        return position, items if collate is None else collate(items)

    def flow(position: Position) -> Flow[Any]:
        items = upstream.flow(position)

        def batches() -> Iterator[list[A]]:
            stream = iter(items)
            while some := list(islice(stream, batch_size)):
                if drop_last and len(some) < batch_size:
                    return
                yield some if filled is None else filled(some)
                del some  # before the next is made

        found: Flow[Any] = Flow(batches(), items.snapshot)
        return found if collate is None else found.map(collate)

    def skip(position: Position, n: int) -> tuple[Position, int]:
        assert upstream.skip is not None
        after, passed = upstream.skip(position, n * batch_size)
        whole, rest = divmod(passed, batch_size)
        return after, whole + (rest > 0 and not drop_last)

    def item(position: Position, n: int) -> Any:
        if view is None or walk is not flow:
            return next(iter(walk(skip(position, n)[0])))
        begin = n * batch_size
        end = jump(position, begin + batch_size)[1]
        indices = view.ahead(position, range(begin, end))
        items = [*items_at(view.table, indices)]
        if filled is not None:
            items = filled(items)
        return items if collate is None else collate(items)

    view = upstream.view
    jump: Any = upstream.skip
    walk = _fetching(upstream, batch_size, drop_last, collate, filled) or flow
    return stateless(
        upstream,
        rate=Rate(batch_size),
        step=step,
        flow=walk,
        skip=upstream.skip and skip,
        item=item,
        length=_parts(upstream.length, batch_size, drop_last),
    )


def _parts(length: int | float | None, size: int, drop_last: bool) -> int | float | None:
    if length is None or length == math.inf:
        return length
    return int(length) // size if drop_last else -(-int(length) // size)


def _fetching(
    upstream: Machine[A],
    batch_size: int,
    drop_last: bool,
    collate: Callable[[list[A]], Any] | None,
    filled: Callable[[list[A]], list[A]] | None,
) -> Callable[[Position], Flow[Any]] | None:
    """The flow that reads whole batches from a table; None if that gains nothing."""
    view, jump = upstream.view, upstream.skip
    if view is None or jump is None:
        return None
    get, rows, stacked = view.table[:3]
    fetch: Callable[[Indices], Any]
    if collate is stack and stacked is not None:
        fetch, finish = stacked, None
    elif rows is not None:
        fetch, finish = rows, collate
    else:
        return None

    def flow(position: Position) -> Flow[Any]:
        def batches() -> Iterator[Any]:
            nonlocal position
            while True:
                after, count = jump(position, batch_size)
                if not count or (drop_last and count < batch_size):
                    position = after
                    return
                indices = view.ahead(position, range(count))
                if count < batch_size and filled is not None:
                    some = filled([get(int(i)) for i in indices])
                    found = stack(some) if fetch is stacked else some
                    del some
                else:
                    found = fetch(indices)
                position = after
                yield found
                del found  # before the next is made

        found: Flow[Any] = Flow(batches(), lambda: position)
        return found if finish is None else found.map(finish)

    return flow

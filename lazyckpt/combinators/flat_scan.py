"""`flat_scan`: one item in, any number out, with a state of your own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any, TypeVar

from lazyckpt.combinators.machines.expansions import check_inside, opened
from lazyckpt.core.checks import function, optional
from lazyckpt.core.flow import Flow, Position, counted, noted
from lazyckpt.core.machine import Machine, Reread, anchored
from lazyckpt.core.stages import stateful
from lazyckpt.core.user_state import Own, freeze, storable, thaw
from lazyckpt.decorators import combinator
from lazyckpt.pipeline import Pipeline

A = TypeVar("A", bound=Any)  # bound to Any, so that pyright doesn't check the body of a lambda
B = TypeVar("B")
S = TypeVar("S")

_ENDED = (1 << 53) - 1  # in place of the number of outputs yielded, which never reaches it


@combinator(
    checks={"step": function, "init": storable, "flush": optional(function)},
    functions={"step": "steps"},
)
def flat_scan(
    upstream: Machine[A],
    step: Callable[[S, A], tuple[S, Iterable[B]]],
    init: S,
    flush: Callable[[S], Iterable[B]] | None = None,
) -> Machine[B]:
    """Yield the outputs of a Mealy machine, any number per item: `step(state, item)`.

    `step` returns `(state, outputs)`; outputs are an iterable or a pipeline, as for `flat_map`.

    Args:
        step: Function of the state and an item. It may change the state in place, because it is
            called on a copy. Changes made while the outputs are iterated have no effect on it.
        init: The first state: None, bool, int, float, str, and lists, dicts and tuples of them.
        flush: Function from the state to outputs, called at the end of the epoch.

    Raises:
        InvalidState: If a state is of another type.
        SourceChanged: If outputs became fewer.

    State:
        The position before the current item, your own state there, and a count of the item's
        outputs yielded.

    Resume:
        Calls `step`, or `flush`, once again, and skips the outputs already yielded.

    Random access:
        No.

    Rank-invariant:
        No.

    >>> import lazyckpt as lz
    >>> def pairs(held, item):
    ...     return ([], [(held[0], item)]) if held else ([item], [])
    >>> list(lz.source(range(5)) | lz.flat_scan(pairs, [], flush=lambda held: held))
    [(0, 1), (2, 3), 4]
    """

    def flow(position: Position) -> Flow[B]:
        anchor, mine, inside = position
        if inside == _ENDED:
            return Flow(iter(()), lambda: position)
        epoch = upstream.epoch(anchor)
        before, last = noted(anchored(upstream, anchor))
        inner: Flow[B] | None = None
        begun = 0  # outputs yielded before those of the current item

        def expansions() -> Iterator[Iterable[B]]:
            nonlocal anchor, mine, inside, inner, begun
            after = mine
            for item in before:
                held = after
                state, outputs = step(thaw(held), item)
                after = freeze(state, "flat_scan")
                inner = _entered(outputs, inside, epoch)
                anchor, mine, inside, begun = last(), held, 0, taken()
                yield inner or outputs
            here = before.snapshot()
            if flush is not None:
                outputs = flush(thaw(after))
                inner = _entered(outputs, inside, epoch)
                anchor, mine, inside, begun = here, after, 0, taken()
                yield inner or outputs
            anchor, mine, inside, inner, begun = here, after, _ENDED, None, taken()

        def snapshot() -> Position:
            if inner is not None:
                return anchor, mine, inner.snapshot()
            given = taken() - begun
            return anchor, mine, inside + given if given else inside

        items, taken = counted(itertools.chain.from_iterable(expansions()))
        return Flow(items, snapshot)

    return stateful(
        "flat_scan",
        upstream,
        first=(freeze(init, "flat_scan"), 0),
        check=_check,
        rereads=_rereads,
        flow=flow,
    )


def _check(mine: Own, inside: Position) -> None:
    thaw(mine)
    check_inside("flat_scan", inside)


def _rereads(position: Position) -> tuple[Reread, ...]:
    anchor, _, inside = position
    is_ended = inside == _ENDED
    return (Reread(anchor, 1 if inside and not is_ended else 0, ended=is_ended),)


def _entered(outputs: Iterable[B], inside: Position, epoch: int) -> Flow[B] | None:
    """Return the outputs as a flow, if a count of them isn't enough to resume; otherwise None."""
    if inside or isinstance(outputs, (Pipeline, Set)):
        return opened(outputs, inside, epoch)
    return None

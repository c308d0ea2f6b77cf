"""How machines are made: sources, what joins them, and stages with and without a state."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypedDict, TypeVar, Unpack

from lazyckpt.core.checks import brief
from lazyckpt.core.flow import Flow, Position, View, close_stream
from lazyckpt.core.machine import (
    ALL,
    UNKNOWN,
    End,
    Machine,
    Rate,
    Reread,
    Share,
    machines,
    within,
)
from lazyckpt.core.views import viewing
from lazyckpt.errors import InvalidState

U = TypeVar("U")


def applying(fn: Callable[..., U], args: tuple[Any, ...]) -> Callable[[Any], U]:
    """A function of one item, which comes behind what else it is called with."""
    return partial(fn, *args) if args else fn


class Modes(TypedDict, total=False):
    """What a stage gives of its modes; the others follow from them. One of the first two is needed.

    A view and `skip` together do as well. `item` counts where there is `skip`.
    """

    step: Callable[[Position], tuple[Position, Any]]
    flow: Callable[[Position], Flow[Any]] | None
    skip: Callable[[Position, int], tuple[Position, int]] | None
    item: Callable[[Position, int], Any] | None
    length: int | float | None
    view: View[Any] | None


def stateless(
    upstream: Machine[Any],
    *,
    rate: Rate = UNKNOWN,
    rereads: Callable[[Position], Iterable[Reread]] | None = None,
    init: Callable[[int], Position] | None = None,
    epoch: Callable[[Position], int] | None = None,
    share: Share | None = None,
    **modes: Unpack[Modes],
) -> Machine[Any]:
    """A stage whose position is its upstream's.

    Args:
        upstream: The machine before it.
        rate: How many of upstream's items it takes for each that it gives.
        rereads: What a resume from a position takes of upstream again; by default nothing.
        init: The position where an epoch begins; by default upstream's.
        epoch: The epoch of a position; by default upstream's.
        share: Where its items stand among those of all ranks, if upstream doesn't tell.
        modes: `step`, `flow`, `skip`, `item`, `length`, `view`, as of `Machine`.
    """
    return _machine(
        modes,
        init=init or upstream.init,
        epoch=epoch or upstream.epoch,
        check=upstream.check,
        rereads=rereads or (lambda position: (Reread(position),)),
        rate=rate,
        share=share or upstream.share.passed(rate),
        upstream=upstream,
        children=(),
        owns=False,
        holds=rereads is not None or rate.whole_epoch,
    )


def passing(upstream: Machine[Any]) -> Machine[Any]:
    """A stage that does nothing."""
    return upstream._replace(
        upstream=upstream,
        children=(),
        owns=False,
        holds=False,
        rate=Rate(),
        rereads=lambda position: (Reread(position),),
    )


def stateful(
    name: str,
    upstream: Machine[Any],
    *,
    first: tuple[Any, ...] = (0,),
    check: Callable[..., object],
    rate: Rate = UNKNOWN,
    rereads: Callable[[Position], Iterable[Reread]] | None = None,
    init: Callable[[int], Position] | None = None,
    share: Share | None = None,
    **modes: Unpack[Modes],
) -> Machine[Any]:
    """A stage that keeps a part of its own behind upstream's position: `(place, own, ...)`.

    A step that has reached upstream's `End` raises one with its own position.

    Args:
        name: What errors call it.
        upstream: The machine before it.
        first: Its own part where an epoch begins.
        check: Called with its own part; raises `InvalidState` if it doesn't fit, as `within` does.
        rate: How many of upstream's items it takes for each that it gives.
        rereads: What a resume from a position takes of upstream again; by default nothing.
        init: The position where an epoch begins, if it isn't upstream's and `first`.
        share: Where its items stand among those of all ranks, if upstream doesn't tell.
        modes: `step`, `flow`, `skip`, `item`, `length`, `view`, as of `Machine`.
    """

    def fits(position: Position) -> None:
        before, *own = position
        upstream.check(before)
        _check_own(name, own, check)

    return _machine(
        modes,
        init=init or (lambda epoch: (upstream.init(epoch), *first)),
        epoch=lambda position: upstream.epoch(position[0]),
        check=fits,
        rereads=rereads or (lambda position: (Reread(position[0]),)),
        rate=rate,
        share=share or upstream.share.passed(rate),
        upstream=upstream,
        children=(),
        owns=True,
        holds=rereads is not None or rate.whole_epoch,
    )


def sourced(
    name: str,
    *,
    first: tuple[Any, ...] = (),
    check: Callable[..., object] = lambda: None,
    most: float = sys.maxsize,
    rereads: Callable[[Position], Iterable[Reread]] = lambda position: (),
    **modes: Unpack[Modes],
) -> Machine[Any]:
    """A source, whose position is `(epoch, index, ...)`: `index` is the next item's number.

    Args:
        name: What errors call it.
        first: What stands behind epoch and index where an epoch begins.
        check: Called with that; raises `InvalidState` if it doesn't fit.
        most: The highest index.
        rereads: What of its data a resume from a position re-reads; by default nothing.
        modes: `step`, `flow`, `skip`, `item`, `length`, `view`, as of `Machine`.
    """

    def fits(position: Position) -> None:
        epoch, index, *own = position
        within(name, epoch, math.inf), within(name, index, most)
        _check_own(name, own, check)

    return _machine(
        modes,
        init=lambda epoch: (epoch, 0, *first),
        epoch=lambda position: position[0],
        check=fits,
        rereads=rereads,
        rate=Rate(),
        share=ALL,
        upstream=None,
        children=(),
        owns=True,
        holds=False,
    )


def joining(
    name: str,
    children: Sequence[Machine[Any]],
    *,
    first: tuple[Any, ...] = (),
    check: Callable[..., object] = lambda: None,
    opened: Callable[..., Iterable[int]] | None = None,
    init: Callable[[int], Position] | None = None,
    epoch: Callable[[Position], int] | None = None,
    rate: Rate,
    share: Share | None = None,
    choices: Callable[[Position, int], Iterator[int]] | None = None,
    **modes: Unpack[Modes],
) -> Machine[Any]:
    """What joins pipelines: its position is `((place, ...), own, ...)`, a place for each of them.

    Args:
        name: What errors call it.
        children: The machines of the pipelines.
        first: Its own part where an epoch begins.
        check: Called with its own part; raises `InvalidState` if it doesn't fit.
        opened: Of its own part, the numbers of the pipelines that have a place, if not all;
            the place of any other is `()`.
        init: The position where an epoch begins, if it isn't theirs and `first`.
        epoch: The epoch of a position, if it isn't the first pipeline's.
        rate: How many items it takes for each that it gives: of one of them, or of `every` one.
        share: Where its items stand among those of all ranks, if the pipelines don't tell.
        choices: As of `Machine`.
        modes: `step`, `flow`, `skip`, `item`, `length`, as of `Machine`.
    """

    def fits(position: Position) -> None:
        places, *own = position
        _check_own(name, own, check)
        wanted = range(len(children)) if opened is None else {*opened(*own)}
        for number, (child, place) in enumerate(zip(children, places, strict=True)):
            if (place != ()) != (number in wanted):
                raise InvalidState(f"{name}: a state with {brief(place)} for pipelines[{number}]")
            if place != ():
                child.check(place)

    return _machine(
        modes,
        init=init or (lambda epoch: (tuple([each.init(epoch) for each in children]), *first)),
        epoch=epoch or (lambda position: children[0].epoch(position[0][0])),
        check=fits,
        rereads=lambda position: (),
        rate=rate,
        share=share or _joined([child.share for child in children], rate),
        upstream=None,
        children=tuple(children),
        owns=True,
        holds=False,
        choices=choices,
    )


def _joined(shares: list[Share], rate: Rate) -> Share:
    """That of items of several pipelines, of which some may be the same on all ranks."""
    found = max(shares, key=lambda share: share.ranks)
    divided = {(share.ranks, share.rank) for share in shares if share.ranks > 1}
    if len(divided) > 1:  # by several numbers of ranks
        found = ALL
        for ranks, rank in sorted(divided):
            found = found.dealt(ranks, rank, is_even=False)
    found = found._replace(is_even=all(share.is_even for share in shares))
    return found.passed(rate._replace(every=rate.every and len({*shares}) > 1))


def _check_own(name: str, own: list[Any], check: Callable[..., object]) -> None:
    try:
        check(*own)
    except TypeError:
        raise InvalidState(f"{name}: a state with {brief(tuple(own))} does not fit") from None


def _machine(modes: Modes, **said: Any) -> Machine[Any]:
    """A machine from whichever modes are given; the others follow from them."""
    skip, view = modes.get("skip"), modes.get("view")
    step, flow = modes.get("step"), modes.get("flow")
    if flow is None and view is not None and skip is not None:
        flow = viewing(skip, view)
    if flow is None:
        assert step is not None, "a machine needs a step or a flow"
        flow = stepping(step)
    step = step or _Continuing(flow)
    return Machine(
        step=step,
        flow=flow,
        skip=skip,
        item=skip and (modes.get("item") or stepped_to(skip, step)),
        length=modes.get("length"),
        view=view,
        **said,
    )


def stepped_to(
    skip: Callable[[Position, int], tuple[Position, int]],
    step: Callable[[Position], tuple[Position, U]],
) -> Callable[[Position, int], U]:
    """An item by a step from where `skip` leads."""
    return lambda position, n: step(skip(position, n)[0])[1]


def step_by(
    skip: Callable[[Position, int], tuple[Position, int]], made: Callable[[Position], U]
) -> Callable[[Position], tuple[Position, U]]:
    """A step to where `skip` leads, with what is made of the position in place of the item."""

    def step(position: Position) -> tuple[Position, U]:
        after, passed = skip(position, 1)
        if not passed:
            raise End(after)
        return after, made(position)

    return step


def stepping(
    step: Callable[[Position], tuple[Position, U]],
) -> Callable[[Position], Flow[U]]:
    """A flow that takes one step after another."""

    def flow(position: Position) -> Flow[U]:
        def items() -> Iterator[U]:
            nonlocal position
            while True:
                try:
                    position, item = step(position)
                except End as end:
                    position = end.position
                    return
                yield item

        return Flow(items(), lambda: position)

    return flow


class _Continuing(Generic[U]):
    """A step out of a flow, which keeps one flow open where the last step ended."""

    def __init__(self, flow: Callable[[Position], Flow[U]]) -> None:
        self._flow = flow
        self._live: dict[Position, tuple[Flow[U], Iterator[U]]] = {}

    def __call__(self, position: Position) -> tuple[Position, U]:
        pair = self._live.pop(position, None)
        if pair is None:
            opened = self._flow(position)
            pair = (opened, iter(opened))
        for item in pair[1]:
            self.close()
            after = pair[0].snapshot()
            self._live[after] = pair
            return after, item
        raise End(pair[0].snapshot())

    def close(self) -> None:
        """Close that flow."""
        while self._live:
            close_stream(self._live.popitem()[1][0])


def closing(machine: Machine[Any]) -> Callable[..., None]:
    """What closes all that the last steps of a machine have kept open for the next ones."""
    steps = [each.step for each in _each(machine) if isinstance(each.step, _Continuing)]

    def close(*_: Any) -> None:
        for step in steps:
            step.close()

    return close


def _each(machine: Machine[Any]) -> Iterator[Machine[Any]]:
    for each in machines(machine):
        yield each
        for child in each.children:
            yield from _each(child)

"""Builders of machines: sources, stages that join pipelines, stages with and without a position."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypedDict, TypeVar, Unpack

from lazyckpt.core.checks import brief
from lazyckpt.core.flow import Flow, Position, View, close_stream, viewing
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
from lazyckpt.errors import InvalidState

U = TypeVar("U")


def applying(fn: Callable[..., U], args: tuple[Any, ...]) -> Callable[[Any], U]:
    """Return a function of one item, which is passed after the other arguments."""
    return partial(fn, *args) if args else fn


class Modes(TypedDict, total=False):
    """The modes that a stage implements; the others follow. One of the first two is required.

    A view with `skip` is enough as well. `item` is used only if there is `skip`.
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
    """Build a stage whose position is its upstream's.

    Args:
        upstream: The machine before it.
        rate: How many of upstream's items it takes per output.
        rereads: Function from a position to what a resume re-reads of upstream; by default
            nothing.
        init: Function from an epoch to its first position; by default upstream's.
        epoch: Function from a position to its epoch; by default upstream's.
        share: Its share of the items of all ranks, if it differs from upstream's.
        modes: `step`, `flow`, `skip`, `item`, `length`, `view`, as for `Machine`.
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
    """Build a stage that does nothing."""
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
    """Build a stage that owns a part of the position, after upstream's: `(before, own, ...)`.

    A step that reaches upstream's `End` raises one with its own position.

    Args:
        name: Name for errors.
        upstream: The machine before it.
        first: Its own part at the beginning of an epoch.
        check: Function of its own part; raises `InvalidState` if it doesn't fit, as `within` does.
        rate: How many of upstream's items it takes per output.
        rereads: Function from a position to what a resume re-reads of upstream; by default
            nothing.
        init: Function from an epoch to its first position; by default upstream's and `first`.
        share: Its share of the items of all ranks, if it differs from upstream's.
        modes: `step`, `flow`, `skip`, `item`, `length`, `view`, as for `Machine`.
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
    """Build a source with the position `(epoch, index, ...)`: `index` is the next item's number.

    Args:
        name: Name for errors.
        first: The part after epoch and index, at the beginning of an epoch.
        check: Function of that part; raises `InvalidState` if it doesn't fit.
        most: The highest index.
        rereads: Function from a position to what a resume re-reads of its data; by default
            nothing.
        modes: `step`, `flow`, `skip`, `item`, `length`, `view`, as for `Machine`.
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
    """Build a stage that joins pipelines: its position is `((part, ...), own, ...)`.

    Args:
        name: Name for errors.
        children: The machines of the pipelines.
        first: Its own part at the beginning of an epoch.
        check: Function of its own part; raises `InvalidState` if it doesn't fit.
        opened: Function from its own part to the numbers of the pipelines that have a position,
            if not all; the position of any other is `()`.
        init: Function from an epoch to its first position; by default theirs and `first`.
        epoch: Function from a position to its epoch; by default the first pipeline's.
        rate: How many items it takes per output: of one of them, or of `every` one.
        share: Its share of the items of all ranks, if it differs from the pipelines'.
        choices: As for `Machine`.
        modes: `step`, `flow`, `skip`, `item`, `length`, as for `Machine`.
    """

    def fits(position: Position) -> None:
        parts, *own = position
        _check_own(name, own, check)
        wanted = range(len(children)) if opened is None else {*opened(*own)}
        for number, (child, part) in enumerate(zip(children, parts, strict=True)):
            if (part != ()) != (number in wanted):
                raise InvalidState(f"{name}: a state with {brief(part)} for pipelines[{number}]")
            if part != ():
                child.check(part)

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
    """Return the share of items of several pipelines; some may be the same on all ranks."""
    found = max(shares, key=lambda share: share.ranks)
    divided = {(share.ranks, share.rank) for share in shares if share.ranks > 1}
    if len(divided) > 1:  # by different numbers of ranks
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
    """Build a machine from the given modes; the others follow from them."""
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
    """Return an `item` function that steps from the position that `skip` returns."""
    return lambda position, n: step(skip(position, n)[0])[1]


def step_by(
    skip: Callable[[Position, int], tuple[Position, int]], made: Callable[[Position], U]
) -> Callable[[Position], tuple[Position, U]]:
    """Return a `step` function by `skip`, with a function of the position in place of the item."""

    def step(position: Position) -> tuple[Position, U]:
        after, passed = skip(position, 1)
        if not passed:
            raise End(after)
        return after, made(position)

    return step


def stepping(
    step: Callable[[Position], tuple[Position, U]],
) -> Callable[[Position], Flow[U]]:
    """Return a flow that takes one step after another."""

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
    """A step function from a flow; it keeps one flow open at the position of the last step."""

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
    """Return a function that closes everything that a machine's steps keep open."""
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

"""Which items of the sources went into an output: `trace`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile
from numbers import Number
from typing import Any, cast, overload

import numpy as np

from lazyckpt.combinators.map import map as mapped
from lazyckpt.combinators.source import source
from lazyckpt.core.call import Call, Chain, runnable
from lazyckpt.core.checks import brief, checked, natural
from lazyckpt.core.flow import Flow, Position, Table, View
from lazyckpt.core.machine import End, Machine, apart, entered
from lazyckpt.core.prng import Indices
from lazyckpt.core.stages import stateful, stateless, stepping
from lazyckpt.pipeline import Pipeline, Stage, combinator, source_combinator
from lazyckpt.state.algebra import between
from lazyckpt.state.rebase import matching
from lazyckpt.state.state import AnyState, State, as_state


@dataclass(frozen=True, slots=True)
class Origin:
    """An item of a source.

    Attributes:
        stage: The source's, `1`, or `1[0].1` within pipeline 0 of stage 1.
        epoch: The source's epoch, from 0.
        place: The item's number in that epoch, from 0: its index, in data with indices.
    """

    stage: str
    epoch: int
    place: int


class Traced:
    """An item with its origins; where nothing is read, its value is None."""

    __slots__ = ("origins", "value")

    def __init__(self, value: Any, origins: Iterable[Origin]) -> None:
        self.value, self.origins = value, tuple(dict.fromkeys(origins))


def plain(item: Any) -> Any:
    """An item without its origins."""
    if isinstance(item, Traced):
        return item.value
    if type(item) is dict:
        return {name: plain(each) for name, each in item.items()}
    return type(item)(map(plain, item)) if type(item) in (list, tuple) else item


def origins(item: Any) -> Iterator[Origin]:
    """The origins of an item, and of those in it."""
    if isinstance(item, Traced):
        yield from item.origins
    elif type(item) in (list, tuple, dict):
        for each in item.values() if type(item) is dict else item:
            yield from origins(each)


@overload
def trace(pipeline: Chain, at: int | AnyState) -> list[Origin]: ...
@overload
def trace(pipeline: Chain, at: AnyState, until: AnyState) -> list[list[Origin]]: ...
def trace(pipeline: Chain, at: int | AnyState, until: AnyState | None = None) -> list[Any]:
    """Which items of the sources went into an output, in the order in which they stand there.

    Where the pipeline has random access, nothing is read and no function called.
    Elsewhere, and where `case` or `switch` have to see what they choose by, it
    is run: from a state on, or from its beginning to an output that is given by
    its number. What a stage only looked at, as `filter` does at items that it
    leaves out, doesn't count; nor what the state of `scan` and `flat_scan`
    remembers of items before, nor the control of a `multiplex`. A row of a
    collated batch that is taken apart again is told as the batch is.

    Of a combinator of your own it tells what its rate and rereads say: the items
    that upstream gives between its place before and after the output, and those
    that a resume behind it takes again. Where its functions have roles, or it has
    a `trace` of its own, it is as exact as ours.

    Args:
        pipeline: One of which the items are.
        at: A state, for the output that comes next; or the number of an output, from 0, as
            the pipeline counts from its beginning. Behind `rebase` the two differ.
        until: A later state; the origins of each output between the two are told.

    Raises:
        IndexError: There are fewer outputs.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(10**9)) | lz.shuffle(seed=0) | lz.batch(3)
    >>> [origin.place for origin in lz.trace(pipeline, 10**8)]
    [810775110, 507087939, 945658273]
    """
    chain: Chain = runnable("trace", pipeline)
    if at is None or isinstance(at, Number):
        found = _after(chain, checked("trace", "at", at, natural))
        if not found:
            raise IndexError(f"trace: at={brief(at)}, but the pipeline has fewer items")
        return _told(found[0])
    state = matching(as_state(cast(AnyState, at)), chain)
    if until is None:
        found = list(_from(chain, state, 1))
        if not found:
            raise IndexError(f"trace: no item comes after the state of {state.items:,} items")
        return _told(found[0])
    return [_told(item) for item in _from(chain, *between(chain, state, until))]


def _after(chain: Chain, n: int) -> list[Any]:
    machine = traced(chain).machine
    position = machine.init(0)
    if machine.skip is not None:
        position, passed = machine.skip(position, n)
        return [] if passed < n else list(islice(machine.flow(position), 1))
    return list(islice(machine.flow(position), n, n + 1))


def _from(chain: Chain, state: State, count: int) -> Iterator[Any]:
    entered(chain.machine, state.position)
    return islice(traced(chain).machine.flow(state.position), count)


def _told(item: Any) -> list[Origin]:
    return list(dict.fromkeys(origins(item)))


def traced(chain: Chain) -> Pipeline[Any]:
    """The pipeline, whose items come with their origins. Its positions are the same."""
    return Tracing(chain.machine.skip is None or _chooses(chain)).pipeline(chain, "")


def _chooses(chain: Chain) -> bool:
    first = chain.calls[0]
    return "selector" in first.functions.values() or any(map(_chooses, first.chains))


class Tracing:
    """One pipeline on its way to another, stage by stage; what a stage's `trace` is given.

    - `reads`: whether items are read and made; else each is None
    """

    plain = staticmethod(plain)
    origins = staticmethod(origins)
    traced = Traced

    def __init__(self, reads: bool) -> None:
        self.reads = reads

    def pipeline(self, chain: Chain, prefix: str) -> Pipeline[Any]:
        first, *rest = chain.calls
        found = self.source(first, f"{prefix}1")
        for call in rest:
            found = found | self.stage(call)
        return found

    def source(self, call: Call, stage: str) -> Pipeline[Any]:
        if not call.chains:
            return _leaf(call, stage, self.reads)
        numbers = iter(range(len(call.chains)))

        def inner(value: Any) -> Any:
            if isinstance(value, Chain):
                return self.pipeline(value, f"{stage}[{next(numbers)}].")
            return tuple(map(inner, value)) if isinstance(value, tuple) else value

        arguments = {name: inner(value) for name, value in call.arguments.items()}
        chooser = next((n for n, r in call.functions.items() if r in ("selector", "control")), "")
        if not chooser:
            return Pipeline((call.replaced(**arguments),))
        choosing = arguments[chooser]
        arguments[chooser] = choosing | mapped(plain)
        chosen: Pipeline[Any] = Pipeline((call.replaced(**arguments),))
        if call.functions[chooser] == "control":
            return chosen
        return chosen | _with_choice(choosing.machine)

    def stage(self, call: Call) -> Stage[Any, Any]:
        if call.combinator.trace is not None:
            found: Stage[Any, Any] = call.combinator.trace(call, self)
            return found
        roles = call.functions
        if not roles:
            keeps = call.combinator.keeps_items or call.combinator.functions
            is_seen = keeps and not call.combinator.pointwise
            return Stage((call,)) if is_seen else _between(call, self.reads)
        if "tap" in roles.values():
            return mapped(lambda item: item)
        if "star" in roles.values():
            return mapped(lambda item: self.made(partial(self.alone, call), item))
        return Stage(
            (call.replaced(**{k: self.role(v, call.arguments[k]) for k, v in roles.items()}),)
        )

    def alone(self, call: Call, item: Any) -> Any:
        """What a stage makes of one item alone."""
        upstream = source([plain(item)]).machine
        return next(iter(call.build(upstream).flow(upstream.init(0))))

    def made(self, fn: Callable[[Any], Any], item: Any) -> Traced:
        """What a function makes of an item, if it is to be made, with the item's origins."""
        return Traced(fn(plain(item)) if self.reads else None, origins(item))

    def role(self, role: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A function that is given what it expects, and gives items with their origins."""
        if role in ("item", "collate"):
            return lambda *args: self.made(lambda item: fn(*args[:-1], item), args[-1])
        if role == "expand":
            return lambda item: _all(fn(plain(item)), item)
        if role == "step":
            return lambda state, item: _stepped(fn(state, plain(item)), item)
        if role == "steps":
            return lambda state, item: _expanded(fn(state, plain(item)), item)
        return lambda item: fn(plain(item))


def _stepped(found: tuple[Any, Any], item: Any) -> tuple[Any, Traced]:
    state, output = found
    return state, Traced(output, origins(item))


def _expanded(found: tuple[Any, Any], item: Any) -> tuple[Any, Any]:
    state, outputs = found
    return state, _all(outputs, item)


def _all(items: Any, item: Any) -> Any:
    mine = tuple(origins(item))
    if isinstance(items, Pipeline):
        return items | mapped(lambda each: Traced(each, mine))
    each_traced = (Traced(each, mine) for each in items)
    return list(each_traced) if isinstance(items, list) else each_traced


@source_combinator(registered=False)
def _leaf(call: Call, stage: str, reads: bool) -> Machine[Any]:
    """A source whose items come with their origins."""
    machine = call.build(None)

    def told(item: Any, epoch: int, place: int) -> Traced:
        return Traced(item, [Origin(stage, epoch, place)])

    def step(position: Position) -> tuple[Position, Traced]:
        if reads or machine.skip is None:
            after, item = machine.step(position)
        else:
            (after, passed), item = machine.skip(position, 1), None
            if not passed:
                raise End(after)
        return after, told(item, *position[:2])

    def flow(position: Position) -> Flow[Traced]:
        epoch, begin = position[:2]
        items = machine.flow(position)
        numbered = enumerate(items, begin)
        return Flow((told(item, epoch, place) for place, item in numbered), items.snapshot)

    is_read = reads or machine.skip is None
    return machine._replace(
        step=step,
        flow=flow if is_read else stepping(step),
        view=machine.view and _leaf_view(machine.view, told, reads),
    )


def _leaf_view(view: View[Any], told: Callable[..., Traced], reads: bool) -> View[Traced]:
    """Items by their numbers in a list of (epoch, place, index), which grows as it is asked."""
    known: list[tuple[int, int, int]] = []

    def get(number: int) -> Traced:
        epoch, place, index = known[number]
        return told(view.table.get(index) if reads else None, epoch, place)

    def ahead(position: Position, offsets: Indices) -> Indices:
        epoch, begin = position[:2]
        indices = view.ahead(position, offsets)
        first = len(known)
        for offset, index in zip(offsets, indices, strict=True):
            known.append((epoch, begin + int(offset), int(index)))
        return np.arange(first, len(known))

    return View(Table(get), ahead)


@combinator(registered=False)
def _with_choice(upstream: Machine[Any], choosing: Machine[Any]) -> Machine[Any]:
    """Items with the origins of what they were chosen by, which is in the first place of all."""

    def step(position: Position) -> tuple[Position, Traced]:
        after, item = upstream.step(position)
        choice = choosing.step(position[0][0])[1]
        return after, Traced(plain(item), [*origins(choice), *origins(item)])

    return stateless(upstream, step=step, skip=upstream.skip, length=upstream.length)


@combinator(registered=False)
def _between(upstream: Machine[Any], call: Call, reads: bool) -> Machine[Any]:
    """A stage that is known by its positions, rate and rereads alone."""
    shared = _Shared(upstream)
    values = stateless(upstream, flow=shared.flow, skip=upstream.skip, length=upstream.length)
    machine = call.build(values)

    def taken(before: Position, after: Position) -> Iterator[Origin]:
        """The origins of upstream's items between two positions, and of those held besides."""
        begin, end = (apart(machine, position)[0] for position in (before, after))
        if machine.rate.is_fixed:
            most = int(machine.rate.each + machine.rate.more)
        else:
            held = sum(each.items for each in machine.rereads(after) if each.position == end)
            passed = takewhile(lambda read: read.place != end, shared.since(begin))
            most = sum(1 for _ in passed) + (0 if held == math.inf else int(held))
        for read in islice(shared.since(begin), most):
            yield from origins(read.item)

    def step(position: Position) -> tuple[Position, Traced]:
        if reads or machine.skip is None:
            after, item = machine.step(position)
        else:
            (after, passed), item = machine.skip(position, 1), None
            if not passed:
                raise End(after)
        return after, Traced(item, taken(position, after))

    lanes: dict[str, Any] = {
        "step": step,
        "skip": machine.skip,
        "length": machine.length,
    }
    if not machine.owns:
        return stateless(upstream, init=machine.init, epoch=machine.epoch, **lanes)
    return stateful(call.name, upstream, init=machine.init, check=lambda *own: None, **lanes)


class _Read:
    """A place in a flow, and the item and the place that come then, once they have been read."""

    def __init__(self, flow: Flow[Any], items: Iterator[Any]) -> None:
        self.flow, self.items, self.place = flow, items, flow.snapshot()
        self.item: Any = None
        self.known: _Read | None = None

    def following(self) -> _Read | None:
        """The next place; None at the end, which this is then."""
        if self.known is None:
            self.item = next(self.items, End)
            if self.item is End:
                self.place = self.flow.snapshot()
            else:
                self.known = _Read(self.flow, self.items)
        return self.known


class _Shared:
    """A machine's items, read once for all who go on from about the same place."""

    def __init__(self, machine: Machine[Any]) -> None:
        self.machine = machine
        self.first: _Read | None = None  # of those that are kept

    def at(self, position: Position) -> _Read:
        found = self.first
        while found is not None and found.place != position:
            found = found.known
        if found is None:
            flow = self.machine.flow(position)
            found = self.first = _Read(flow, iter(flow))
        return found

    def since(self, position: Position) -> Iterator[_Read]:
        """The places before items; those before the first are forgotten."""
        read = self.first = self.at(position)
        while (following := read.following()) is not None:
            yield read
            read = following

    def flow(self, position: Position) -> Flow[Any]:
        """The items as they are."""
        read = self.at(position)

        def items() -> Iterator[Any]:
            nonlocal read
            while (following := read.following()) is not None:
                item, read = read.item, following
                yield plain(item)

        return Flow(items(), lambda: read.place)

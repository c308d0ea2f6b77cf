"""Items with their origins: what sources give them, and what becomes of them in a stage."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any

import numpy as np

from lazyckpt.core.call import Call
from lazyckpt.core.flow import Flow, Position, Table, View
from lazyckpt.core.frames import is_reader
from lazyckpt.core.machine import End, Machine, apart
from lazyckpt.core.prng import Indices
from lazyckpt.core.secrets import masked
from lazyckpt.core.stages import stateful, stateless, stepped_to, stepping
from lazyckpt.decorators import combinator, source_combinator
from lazyckpt.failures.guards import unguarded


@dataclass(frozen=True, slots=True)
class Origin:
    """An item of a source.

    Attributes:
        stage: The source's, `1`, or `1[0].1` within pipeline 0 of stage 1.
        epoch: The source's epoch, from 0.
        place: The item's number in that epoch, from 0: its index, in data with indices.
        row: What the data's own `locate(place)` says, if it has one: of a reader of
            `lazyckpt.io`, file, record and bytes; of a file of `lazyckpt.io.files` that an
            expansion reads, that file and which of the items made of it this is.
    """

    stage: str
    epoch: int
    place: int
    row: Any = None

    def __repr__(self) -> str:
        row = "" if self.row is None else f", row={masked(repr(self.row))}"
        return f"Origin(stage={self.stage!r}, epoch={self.epoch}, place={self.place}{row})"


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


@source_combinator(registered=False, unrecorded=("call",))
def traced_source(call: Call, stage: str, reads: bool) -> Machine[Any]:
    """A source whose items come with their origins."""
    machine = call.build(None)
    data: Any = unguarded(call.arguments.get("data"))
    locate = data.locate if is_reader(data) else None

    def told(item: Any, epoch: int, place: int) -> Traced:
        row = None if locate is None else locate(place)
        return Traced(item, [Origin(stage, epoch, place, row)])

    def step(position: Position) -> tuple[Position, Traced]:
        after, item = _step(machine, position, reads)
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
        item=machine.skip and stepped_to(machine.skip, step),
        view=machine.view and _traced_view(machine.view, told, reads),
    )


def _step(machine: Machine[Any], position: Position, reads: bool) -> tuple[Position, Any]:
    """A step, without the item where nothing is to be read."""
    if reads or machine.skip is None:
        return machine.step(position)
    after, passed = machine.skip(position, 1)
    if not passed:
        raise End(after)
    return after, None


def _traced_view(view: View[Any], told: Callable[..., Traced], reads: bool) -> View[Traced]:
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

    return View(Table(get), ahead, view.block_starts)


@combinator(registered=False, unrecorded=("choosing",))
def with_choice(upstream: Machine[Any], choosing: Machine[Any]) -> Machine[Any]:
    """Items with the origins of what they were chosen by, which is in the first place of all."""

    def step(position: Position) -> tuple[Position, Traced]:
        after, item = upstream.step(position)
        choice = choosing.step(position[0][0])[1]
        return after, Traced(plain(item), [*origins(choice), *origins(item)])

    return stateless(upstream, step=step, skip=upstream.skip, length=upstream.length)


@combinator(registered=False, unrecorded=("call",))
def between_places(upstream: Machine[Any], call: Call, reads: bool) -> Machine[Any]:
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
        after, item = _step(machine, position, reads)
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

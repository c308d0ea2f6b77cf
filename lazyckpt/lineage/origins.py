"""Items with their origins: how sources attach them, and how stages pass them on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lazyckpt.core.call import Call
from lazyckpt.core.content import is_reader
from lazyckpt.core.flow import Flow, Position, Table, View
from lazyckpt.core.machine import End, Machine, Rate, apart
from lazyckpt.core.prng import Indices
from lazyckpt.core.secrets import masked
from lazyckpt.core.stages import stateless, step_by, stepped_to
from lazyckpt.decorators import combinator, source_combinator
from lazyckpt.errors import PipelineError
from lazyckpt.failures.guards import unguarded


@dataclass(frozen=True, slots=True)
class Origin:
    """An item of a source.

    Attributes:
        stage: The source's number: `1`, or `1[0].1` within pipeline 0 of stage 1.
        epoch: The source's epoch, from 0.
        index: The item's number in that epoch, from 0; its index, if the data can be indexed.
        row: The result of the data's own `locate(index)`, if it exists. For a reader of
            `lazyckpt.io` it is file, record and bytes; for a file of `lazyckpt.io.files` that an
            expansion reads, it is that file and the number of the item in the expansion.
    """

    stage: str
    epoch: int
    index: int
    row: Any = None

    def __repr__(self) -> str:
        row = "" if self.row is None else f", row={masked(repr(self.row))}"
        return f"Origin(stage={self.stage!r}, epoch={self.epoch}, index={self.index}{row})"


class Traced:
    """An item with its origins."""

    __slots__ = ("origins", "value")

    def __init__(self, value: Any, origins: Iterable[Origin]) -> None:
        self.value, self.origins = value, tuple(dict.fromkeys(origins))


def plain(item: Any) -> Any:
    """Return an item without its origins."""
    if isinstance(item, Traced):
        return item.value
    if type(item) is dict:
        return {name: plain(each) for name, each in item.items()}
    return type(item)(map(plain, item)) if type(item) in (list, tuple) else item


def parts(item: Any) -> Iterator[Any]:
    """Yield the elements of nested lists, tuples and dicts, in order."""
    if isinstance(item, (list, tuple, Mapping)):
        for each in item.values() if isinstance(item, Mapping) else item:
            yield from parts(each)
    else:
        yield item


def origins(item: Any) -> Iterator[Origin]:
    """Return the origins of an item and of its elements."""
    for each in parts(item):
        if isinstance(each, Traced):
            yield from each.origins


def reader_of(call: Call) -> Any:
    """Return the data of a source, if they can locate their items; otherwise None."""
    data = unguarded(call.arguments.get("data"))
    return data if is_reader(data) else None


@source_combinator(registered=False, unrecorded=("call",))
def traced_source(call: Call, stage: str) -> Machine[Any]:
    """Return a source whose items carry their origins."""
    machine = call.build(None)
    reader = reader_of(call)

    def traced(item: Any, epoch: int, index: int) -> Traced:
        row = None if reader is None else reader.locate(index)
        return Traced(item, [Origin(stage, epoch, index, row)])

    def step(position: Position) -> tuple[Position, Traced]:
        after, item = machine.step(position)
        return after, traced(item, *position[:2])

    def flow(position: Position) -> Flow[Traced]:
        epoch, begin = position[:2]
        items = machine.flow(position)
        numbered = enumerate(items, begin)
        return Flow((traced(item, epoch, index) for index, item in numbered), items.snapshot)

    return machine._replace(
        step=step,
        flow=flow,
        item=machine.skip and stepped_to(machine.skip, step),
        view=machine.view and _traced_view(machine.view, traced),
    )


def _traced_view(view: View[Any], traced: Callable[..., Traced]) -> View[Traced]:
    """Return items by their number in a growing list of (epoch, number there, table index)."""
    known: list[tuple[int, int, int]] = []

    def get(code: int) -> Traced:
        epoch, number, index = known[code]
        return traced(view.table.get(index), epoch, number)

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
    """Add the origins of the item that chose it."""

    def step(position: Position) -> tuple[Position, Traced]:
        after, item = upstream.step(position)
        choice = choosing.step(position[0][0])[1]
        return after, Traced(plain(item), [*origins(choice), *origins(item)])

    return stateless(upstream, rate=Rate(), step=step, skip=upstream.skip, length=upstream.length)


@combinator(registered=False, unrecorded=("call",))
def one_by_one(upstream: Machine[Any], call: Call) -> Machine[Any]:
    """Build a stage that computes its outputs from each item alone, given one at a time."""
    machine = call.build(upstream)

    def flow(position: Position) -> Flow[Traced]:
        outputs: Flow[Any] = Flow(iter(()), lambda: position)

        def items() -> Iterator[Traced]:
            nonlocal outputs
            last = None
            while True:
                here = outputs.snapshot()
                start = apart(machine, here)[0]
                if start == last:
                    raise PipelineError(
                        f"{call.name}: declared pointwise or itemwise, but "
                        "after one item it doesn't advance: it needs the next one too"
                    )
                last = start
                try:
                    after, item = upstream.step(start)
                except End:
                    outputs = machine.flow(here)
                    next(iter(outputs), None)
                    return
                alone = stateless(upstream, step=_shown(start, after, plain(item)))
                outputs = call.build(alone).flow(here)
                for output in outputs:
                    yield Traced(output, origins(item))

        return Flow(items(), lambda: outputs.snapshot())

    return _with_modes(machine, stateless(upstream, flow=flow))


def _shown(
    start: Position, after: Position, item: Any
) -> Callable[[Position], tuple[Position, Any]]:
    """Return the step of a machine over a single item."""

    def step(position: Position) -> tuple[Position, Any]:
        if position != start:
            raise End(position)
        return after, item

    return step


@combinator(registered=False, unrecorded=("call",))
def placed(upstream: Machine[Any], call: Call) -> Machine[Any]:
    """Yield upstream's items at the positions of a stage with one output per item."""
    machine = call.build(upstream)
    skip = machine.skip
    assert skip is not None

    def item(position: Position) -> Any:
        return upstream.step(position[0] if machine.owns else position)[1]

    return _with_modes(machine, stateless(upstream, step=step_by(skip, item)))


def _with_modes(machine: Machine[Any], made: Machine[Any]) -> Machine[Any]:
    """Return a machine whose items come from a different machine with the same positions."""
    item = machine.skip and stepped_to(machine.skip, made.step)
    return machine._replace(step=made.step, flow=made.flow, item=item, view=None)


def unknown(call: Call) -> PipelineError:
    """Return the error for a stage whose outputs have unknown origins."""
    return PipelineError(
        f"{call.name}: trace and seen can't find the items that its outputs are made of; pass "
        + (
            "@source_combinator keeps_items=True, if it passes items on unchanged"
            if call.combinator.is_source
            else "@combinator whichever is true of keeps_items=True, pointwise=True, "
            "itemwise=True, or the roles of its functions=, or a trace= function"
        )
    )

"""Origins as ints: a pipeline whose stages look at no item runs over these instead."""

from __future__ import annotations

from itertools import chain
from operator import index
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.flow import Position, Table, View
from lazyckpt.core.machine import End, Machine
from lazyckpt.core.prng import Indices, affine
from lazyckpt.core.stages import passing, stepped_to
from lazyckpt.core.views import viewing
from lazyckpt.decorators import combinator, source_combinator
from lazyckpt.errors import PipelineError
from lazyckpt.pipeline import Pipeline, Stage
from lazyckpt.provenance import Tracing

_BITS = 63
_MOST = 40  # bits of a place
_EPOCHS = 16  # bits of an epoch, at most; those above have a number of their own


class LooksAtItems(Exception):
    """What origins depend on is only known by reading."""


class CodedSource(NamedTuple):
    """A source whose items are codes: what origins call it, and its data."""

    stage: str
    data: Any


class Decoded(NamedTuple):
    """Columns of origins."""

    source: NDArray[np.int64]
    epoch: NDArray[np.int64]
    place: NDArray[np.int64]


class Codes:
    """Ints that stand for sources, epochs and places.

    From the highest bit on: a number of the source and the epoch's higher bits, the epoch's
    lower bits, the place.
    """

    def __init__(self) -> None:
        self.sources: list[CodedSource] = []
        self._places = 1  # bits
        self._known: dict[tuple[int, int], int] = {}

    def add(self, stage: str, data: Any, length: int) -> int:
        """The number of another source."""
        self._places = max(self._places, length.bit_length())
        self.sources.append(CodedSource(stage, data))
        return len(self.sources) - 1

    @property
    def _epochs(self) -> int:
        return min(_EPOCHS, (_BITS - self._places) // 2)

    def first(self, source: int, epoch: int) -> int:
        """The code of the first item of an epoch; those of the others follow."""
        bits = self._epochs
        key = source, epoch >> bits
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self._known)
            if number >> (_BITS - bits - self._places):
                raise PipelineError("seen: too many epochs at once; pass since=, a later state")
        return (number << bits | epoch & ((1 << bits) - 1)) << self._places

    def decoded(self, codes: NDArray[np.int64]) -> Decoded:
        """What codes stand for."""
        bits = self._epochs
        known = np.array([*self._known] or [(0, 0)], np.int64)
        places = codes & ((1 << self._places) - 1)
        epochs = codes >> self._places
        if len(known) == 1:
            source, high = known[0]
            epochs &= (1 << bits) - 1
            epochs |= high << bits
            return Decoded(np.full(len(codes), source), epochs, places)
        found = known[epochs >> bits]
        return Decoded(found[:, 0], found[:, 1] << bits | epochs & ((1 << bits) - 1), places)


@source_combinator(registered=False, unrecorded=("call", "codes"))
def coded_source(call: Call, codes: Codes, number: int) -> Machine[int]:
    """A source whose items are codes."""
    machine = call.build(None)
    jump = machine.skip
    assert jump is not None

    def step(position: Position) -> tuple[Position, int]:
        after, passed = jump(position, 1)
        if not passed:
            raise End(after)
        return after, codes.first(number, position[0]) + position[1]

    def ahead(position: Position, offsets: Indices) -> Indices:
        return affine(offsets, codes.first(number, position[0]) + position[1])

    starts = machine.view and machine.view.block_starts
    view: View[int] = View(Table(index, is_there=True), ahead, starts)
    return machine._replace(
        step=step,
        flow=viewing(jump, view),
        item=stepped_to(jump, step),
        view=machine.view and view,
    )


@combinator(keeps_items=True, registered=False)
def unchanged(upstream: Machine[Any]) -> Machine[Any]:
    """The items as they are."""
    return passing(upstream)


def _last(*args: Any) -> Any:
    return args[-1]


class Coding(Tracing):
    """One pipeline on its way to another, whose items are codes where the one has items.

    `LooksAtItems` is raised where a stage does so, or a source has no random access.
    """

    def __init__(self) -> None:
        super().__init__(reads=False)
        self.codes = Codes()

    def pipeline(self, chain: Chain, prefix: str) -> Pipeline[Any]:
        first, *rest = chain.calls
        found = self.source(first, f"{prefix}1")
        for call, machine in zip(rest, chain.machines[1:], strict=True):
            found = found | (unchanged() if _is_map(call, machine) else self.stage(call))
        return found

    def source(self, call: Call, stage: str) -> Pipeline[Any]:
        if call.chains:
            if {"selector", "control"} & {*call.functions.values()}:
                raise LooksAtItems
            return super().source(call, stage)
        machine = call.build(None)
        length = machine.length
        if machine.skip is None or type(length) is not int or length >> _MOST:
            raise LooksAtItems
        number = self.codes.add(stage, call.arguments.get("data"), length)
        return coded_source(call, self.codes, number)

    def stage(self, call: Call) -> Stage[Any, Any]:
        roles, known = call.functions, call.combinator
        if {*roles.values()} - {"item", "tap", "collate"}:
            raise LooksAtItems
        plain: dict[str, Any] = {
            name: None if role == "collate" else _last for name, role in roles.items()
        }
        if call.arguments.get("pad") is not None:
            plain["pad"] = []  # of no origin
        stage: Stage[Any, Any] = Stage((call.replaced(**plain),))
        if known.trace is not None:
            if known.trace(call, self) != Stage((call,)):
                raise LooksAtItems
            return stage
        if roles or ((known.keeps_items or known.functions) and not known.pointwise):
            return stage
        raise LooksAtItems


def _is_map(call: Call, machine: Machine[Any]) -> bool:
    """Whether each item is made of one, in its place, and the stage has no place of its own."""
    return call.combinator.pointwise and not machine.owns


def coded(pipeline: Chain) -> tuple[Pipeline[Any], Codes] | None:
    """The pipeline with codes as items; None where that needs reading."""
    coding = Coding()
    try:
        return coding.pipeline(pipeline, ""), coding.codes
    except LooksAtItems:
        return None


class Leaves(NamedTuple):
    """The codes in items, and of each the number of its item."""

    item: NDArray[np.int64]
    codes: NDArray[np.int64]


def leaves(items: list[Any] | NDArray[np.int64]) -> Leaves:
    """The codes in items, each once an item, in the order in which they stand there."""
    if isinstance(items, np.ndarray):
        return Leaves(np.arange(len(items)), items)
    if type(items[0]) is int:
        try:
            return Leaves(np.arange(len(items)), np.fromiter(items, np.int64, len(items)))
        except (TypeError, ValueError):  # there are others behind it
            pass
    try:
        flat = np.fromiter(chain.from_iterable(items), np.int64)
        sizes = np.fromiter(map(len, items), np.int64, len(items))
    except (TypeError, ValueError):  # not all are lists of codes
        nested = [_flat(item) for item in items]
        flat = np.fromiter(chain.from_iterable(nested), np.int64)
        sizes = np.fromiter(map(len, nested), np.int64, len(nested))
    return _unique(Leaves(np.repeat(np.arange(len(items)), sizes), flat))


def _flat(item: Any) -> list[int]:
    if isinstance(item, (list, tuple)):
        return [code for each in item for code in _flat(each)]
    return [] if item is None else [int(item)]  # None fills up, and is of no origin


def _unique(found: Leaves) -> Leaves:
    ordered = np.sort(found.codes)
    if (ordered[1:] != ordered[:-1]).all():
        return found
    order = np.lexsort((found.codes, found.item))  # stable: the first of those alike is first
    item, codes = found.item[order], found.codes[order]
    again = np.zeros(len(order), bool)
    again[1:] = (item[1:] == item[:-1]) & (codes[1:] == codes[:-1])
    kept = np.ones(len(order), bool)
    kept[order[again]] = False
    return Leaves(found.item[kept], found.codes[kept])

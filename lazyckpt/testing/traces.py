"""The items of a machine step by step, and a check that all modes yield the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Any

import numpy as np

from lazyckpt.combinators.machines.stacking import stack
from lazyckpt.core.checks import brief
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import End, Machine
from lazyckpt.core.prng import Indices
from lazyckpt.pipeline import Pipeline


def equal(a: Any, b: Any) -> bool:
    """Return whether two items are equal: by type and value, arrays element by element.

    Args:
        a: The first item.
        b: The second item.
    """
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return (
            type(a) is type(b)
            and a.dtype == b.dtype
            and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    if getattr(a, "shape", ()):  # tensors and frames
        is_like = a.shape == b.shape and getattr(a, "dtype", None) == getattr(b, "dtype", None)
        return is_like and bool(np.asarray((a == b) | ((a != a) & (b != b))).all())
    return a is b or bool(a == b) or (a != a and b != b)


class Trace:
    """The items and positions of an epoch by `step`, the reference for all modes."""

    def __init__(self, machine: Machine[Any], epoch: int, limit: int) -> None:
        self.machine = machine
        self.positions: list[Position] = [machine.init(epoch)]
        self.items: list[Any] = []
        self.end: Position = None
        self.ended = False
        while len(self.items) < limit:
            try:
                position, item = machine.step(self.positions[-1])
            except End as end:
                self.end, self.ended = end.position, True
                return
            self.positions.append(position)
            self.items.append(item)

    def step(self, number: int) -> tuple[Position, Any]:
        """Repeat the step of an item of the trace; the result has `End` if there is no item."""
        try:
            return self.machine.step(self.positions[number])
        except End as end:
            return end.position, End

    def cuts(self) -> list[int]:
        """Return every stopping point of a short trace, or about twenty of a long one."""
        last = len(self.items)
        return sorted({*range(0, last, max(1, last // 20)), max(0, last - 1), last})


def modes(pipeline: Pipeline[Any], limit: int) -> None:
    """`flow`, `skip`, `item`, `length`, the view and random access agree with `step`."""
    machine = pipeline.machine
    for epoch in (0, 1):
        trace = Trace(machine, epoch, limit)
        for cut in trace.cuts():
            _flows(machine, trace, cut)
            if machine.skip is not None:
                _skips(machine, trace, cut)
            if machine.view is not None:
                _views(machine, trace, cut)
        for position in trace.positions:
            assert machine.epoch(position) == epoch, f"epoch({position}) is not {epoch}"
        if trace.ended:
            assert machine.length in (None, len(trace.items)), (
                f"length is {machine.length}, there are {len(trace.items)} items"
            )
    if machine.skip is not None:
        assert machine.length is not None, "there is random access, and no length"
        trace = Trace(machine, 0, limit)
        for index in trace.cuts()[:-1]:
            same(f"pipeline[{index}]", pipeline[index], trace.items[index])
        if trace.ended:
            raises(IndexError, lambda: pipeline[len(trace.items)])


def stable(pipeline: Pipeline[Any], limit: int) -> None:
    """Two walks yield the same items; if not, other laws would fail too, with unclear messages."""
    change = _change(pipeline, limit)
    if change is None:
        return
    number, first, then = change
    calls = pipeline.calls
    parts: Iterable[Pipeline[Any]] = (Pipeline(calls[:count]) for count in range(1, len(calls) + 1))
    whose = next((f" of {part.calls[-1]!r}" for part in parts if _change(part, limit)), "")
    raise AssertionError(
        f"your step isn't pure: item {number}{whose} was {told(first)} in one walk, and "
        f"{told(then)} in the next; an item must depend only on the arguments of the step, "
        "not on a counter, an iterator or a random generator outside"
    )


def _change(pipeline: Pipeline[Any], limit: int) -> tuple[int, Any, Any] | None:
    """Return the first item in which two walks differ, with its two values."""
    one, other = (Trace(pipeline.machine, 0, limit).items for _ in range(2))
    pairs = zip_longest(one, other, fillvalue=End)
    return next(((n, a, b) for n, (a, b) in enumerate(pairs) if not equal(a, b)), None)


def _flows(machine: Machine[Any], trace: Trace, cut: int) -> None:
    flow = machine.flow(trace.positions[cut])
    stream = iter(flow)
    assert flow.snapshot() == trace.positions[cut], f"a fresh flow at cut {cut} has moved"
    for number in range(cut, len(trace.items)):
        item = next(stream, End)
        same(f"item {number} of the flow from cut {cut}", item, trace.items[number])
        same(f"position {number + 1} from cut {cut}", flow.snapshot(), trace.positions[number + 1])
    if trace.ended:
        assert next(stream, End) is End, f"the flow from cut {cut} goes past the end"
        same(f"the end of the flow from cut {cut}", flow.snapshot(), trace.end)


def _skips(machine: Machine[Any], trace: Trace, cut: int) -> None:
    assert machine.skip is not None
    alone: Any = machine.item
    last = len(trace.items)
    for target in trace.cuts():
        if target >= cut:
            found = machine.skip(trace.positions[cut], target - cut)
            same(f"skip from {cut} to {target}", found, (trace.positions[target], target - cut))
        if cut <= target < last:
            found = alone(trace.positions[cut], target - cut)
            same(f"single item {target} from {cut}", found, trace.items[target])
    if trace.ended:
        found = machine.skip(trace.positions[cut], last - cut + 7)
        same(f"skip from {cut} past the end", found, (trace.end, last - cut))


def _views(machine: Machine[Any], trace: Trace, cut: int) -> None:
    assert machine.view is not None
    table, ahead = machine.view.table, machine.view.ahead
    count = len(trace.items) - cut
    wanted = trace.items[cut:]
    orders: list[Indices] = [range(count), range(0, count, 2), np.arange(count)[::-1]]
    for offsets in orders:
        indices = ahead(trace.positions[cut], offsets)
        items = [wanted[i] for i in offsets]
        same(f"the view from cut {cut}", [table.get(int(i)) for i in indices], items)
        if table.rows is not None:
            same(f"the view's rows from cut {cut}", table.rows(indices), items)
        if table.spaced is not None and isinstance(indices, range) and indices.step > 0:
            same(f"the view's spaced items from cut {cut}", [*table.spaced(indices)], items)
        if table.stacked is not None and items:
            same(f"the view's stack from cut {cut}", table.stacked(indices), stack(items))


def same(what: str, found: Any, expected: Any) -> None:
    """Raise an `AssertionError` with the difference, unless two values are equal."""
    if not __debug__:
        raise RuntimeError("python -O leaves out the checks of lazyckpt.testing: run without -O")
    assert equal(found, expected), f"{what}: {told(found)}, expected {told(expected)}"


def told(item: Any) -> str:
    """Format an item for a message, or the end."""
    return "the end" if item is End else brief(item)


def raises(kind: type[Exception], action: Callable[[], object]) -> None:
    try:
        action()
    except kind:
        return
    raise AssertionError(f"expected {kind.__name__}")

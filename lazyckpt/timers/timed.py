"""Stages that measure themselves: the same machines, with timers around their functions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import repeat
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.flow import Flow, Position, Table, View
from lazyckpt.core.machine import Machine
from lazyckpt.core.registry import Combinator
from lazyckpt.core.sizes import item_bytes
from lazyckpt.timers.timings import Stage, StageTimer, Timing, own_timer, using

T = TypeVar("T")
_CALLS, _TRIALS = 100, 5  # calls of a timer to measure its cost, and repetitions
_SIZED, _FIRST = 64, 2  # measure the size of the first items, and then of every 64th
_END: Any = object()


class TimedCall(Call):
    """A stage that is measured in every process or thread."""

    __slots__ = ("_stage",)

    _stage: Stage

    def __init__(
        self,
        combinator: Combinator,
        arguments: dict[str, Any],
        site: str,
        covers: int,
        stage: Stage,
    ) -> None:
        super().__init__(combinator, arguments, site, covers)
        object.__setattr__(self, "_stage", stage)

    def replaced(self, **arguments: Any) -> Call:
        made = super().replaced(**arguments)
        return TimedCall(made.combinator, made.arguments, made.site, made.covers, self._stage)

    def _measured(self, machine: Machine[Any], *, gives_items: bool = True) -> Machine[Any]:
        return timed(machine, self._stage if gives_items else (self._stage[0], 1))

    def __reduce__(self) -> tuple[Any, ...]:
        public = self.combinator.public  # a function, pickled by reference
        return _timed_call, (public, self.arguments, self.site, self.covers, self._stage)


def _timed_call(public: Any, *arguments: Any) -> TimedCall:
    return TimedCall(public.combinator, *arguments)


def measuring(
    chain: Chain, number: Callable[[Call, Chain, int], Stage | None], depth: int = 0
) -> Chain:
    """Return the same pipeline, with stages that measure themselves.

    Args:
        chain: The pipeline.
        number: Function from a stage, its pipeline and the depth of that to the stage's number,
            or to None if the stage isn't measured. It is called for inner stages first.
        depth: Number of stages that the pipeline is nested in.
    """
    calls: list[Call] = []
    for call in chain.calls:
        inner = call
        if call.chains:
            inner = call.with_chains(lambda each: measuring(each, number, depth + 1))
        stage = number(call, chain, depth)
        calls.append(
            call
            if stage is None
            else TimedCall(call.combinator, inner.arguments, call.site, call.covers, stage)
        )
    return type(chain)(tuple(calls))


def timed(machine: Machine[T], stage: Stage) -> Machine[T]:
    """Return a machine with timers around the functions that other code calls."""
    item, view = machine.item, machine.view
    return machine._replace(
        flow=_timed_flow(machine.flow, stage),
        step=_timed(machine.step, stage, _one_behind),
        item=item and _timed(item, stage, _one),
        view=view and _timed_view(view, stage),
    )


def _timed_flow(flow: Callable[[Position], Flow[T]], stage: Stage) -> Callable[[Position], Flow[T]]:
    open_flow = _timed(flow, stage, None)

    def opened(position: Position) -> Flow[T]:
        found = open_flow(position)
        pick = found.pick and _timed(found.pick, stage, _picked)
        snapshot, taken = found.snapshot, found.taken
        if found.fn is None:
            return Flow(timed_items(found.pull, stage), snapshot, taken=taken, pick=pick)
        pending = _timed(found.fn, stage, _one)  # not called for items that are skipped
        items = timed_items(found.pull, (stage[0], 1))
        return Flow(items, snapshot, pending, taken, pick=pick)

    return opened


def timed_items(items: Iterator[T], stage: Stage) -> Iterator[T]:
    """Yield items, and charge the time of each to a stage."""
    while True:
        timer = own_timer()
        before, begun = timer.enter(stage), perf_counter()
        try:
            item = next(items, _END)
        finally:
            timing = timer.leave(before, stage, begun)
        if item is _END:
            return
        assert timing is not None
        timing.items += 1
        if timing.items % _SIZED == 0 or timing.sized < _FIRST:
            _add_size(timer, timing, [item], 1)
        yield item
        item = _END


def _timed(
    fn: Callable[..., T], stage: Stage, items: Callable[[T], list[Any]] | None
) -> Callable[..., T]:
    """Wrap a function: charge its time to a stage, and count the items that it returns."""

    def call(*arguments: Any) -> T:
        timer = own_timer()
        before, begun = timer.enter(stage), perf_counter()
        try:
            result = fn(*arguments)
        finally:
            timing = timer.leave(before, stage, begun)
        if items is not None and timing is not None:
            made = items(result)
            count = len(made)
            timing.items += count
            if timing.items % _SIZED < count or timing.sized < _FIRST:
                _add_size(timer, timing, made, count)
        return result

    return call


def _one(item: Any) -> list[Any]:
    return [item]


def _picked(result: tuple[int, list[Any]]) -> list[Any]:
    return result[1]


def _one_behind(result: tuple[Position, Any]) -> list[Any]:
    return [result[1]]


def _timed_view(view: View[T], stage: Stage) -> View[T]:
    table = view.table
    made: Table[T] = Table(
        table.get if table.is_in_memory else _timed(table.get, stage, _one),
        table.rows and _timed(table.rows, stage, _same),
        table.stacked and _stacked(table.stacked, stage),
        table.is_ours,
        table.spaced,
    )
    return view._replace(table=made, ahead=_timed(view.ahead, stage, None))


def _same(rows: list[Any]) -> list[Any]:
    return rows


def _stacked(fn: Callable[[Any], Any], stage: Stage) -> Callable[[Any], Any]:
    def stacked(indices: Any) -> Any:
        timer = own_timer()
        before, begun = timer.enter(stage), perf_counter()
        try:
            found = fn(indices)
        finally:
            timing = timer.leave(before, stage, begun)
        assert timing is not None
        timing.items += len(indices)
        if timing.calls % _SIZED == 0 or timing.sized < _FIRST * len(indices):
            _add_size(timer, timing, [found], 1)
            timing.sized += len(indices) - 1
        return found

    return stacked


def _add_size(timer: StageTimer, timing: Timing, items: list[Any], count: int) -> None:
    timing.size += item_bytes(items) * count
    timing.sized += count
    timer.rest()  # measuring sizes isn't charged to any stage


class TimerCosts(NamedTuple):
    """The cost of a timer in seconds: inside the time that it measures, and outside."""

    inside: float
    around: float

    def without(self, timing: Timing) -> float:
        """Return the measured seconds without the cost of timers."""
        return max(0.0, timing.seconds - timing.calls * self.inside - timing.inner * self.around)


def timer_costs() -> TimerCosts:
    """Measure the cost of a timer on this machine."""
    return min((_trial() for _ in range(_TRIALS)), key=sum)


def _trial() -> TimerCosts:
    timer, inner, outer = StageTimer(), (0, 0), (1, 0)
    with using(timer):
        before = timer.enter(outer)
        deque(timed_items(repeat(None, _CALLS), inner), 0)
        timer.leave(before, outer, 0.0)
    inside, around = timer.stages[inner].seconds, timer.stages[outer].seconds
    return TimerCosts(inside / _CALLS, around / _CALLS)

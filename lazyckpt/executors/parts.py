"""What a worker does: a chunk of a pipeline's items, or of what a stage makes of some items."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from operator import length_hint
from time import perf_counter
from typing import Any, NamedTuple

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine
from lazyckpt.core.stages import sourced
from lazyckpt.errors import InvalidState
from lazyckpt.failures.notes import Failure, traced
from lazyckpt.failures.skip_log import Met
from lazyckpt.failures.skipping import tally_of

HEAVY = 1 << 20  # bytes that an item is taken for, where there's no telling


class Outcome(NamedTuple):
    """What came of a task: items, and then perhaps an error or the end.

    It `is_torn` where the error is of sending the task or this, and no items
    came through, though some may have been good.
    """

    items: list[Any]
    failure: Failure | None = None
    reached: list[Any] | None = None  # by a stream: the position before the items, after each
    end: Position | None = None
    seconds: float = 0.0
    size: float = 0.0  # of an item, in bytes
    skipped: tuple[tuple[int, Met], ...] = ()  # by a stream: left out after so many items
    is_torn: bool = False


class Stale(Exception):
    """The workers that had the task are gone, or it is for one that had those before it."""


Part = Callable[[Any], Outcome]


class Walk:
    """Items of a pipeline: a task is (position, how many); without random access, (None, many).

    With random access any worker may do any task. A stream goes on from where
    it is; its first task says from where.
    """

    def __init__(self, chain: Chain, machine: Machine[Any] | None = None) -> None:
        self.chain = chain
        self.calls = chain.calls
        self._tally = tally_of(chain)
        self.machine = machine or chain.machine
        self.is_stream = self.machine.skip is None
        self._live: dict[Position, tuple[Flow[Any], Iterator[Any]] | None] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Walk, (self.chain,)

    def anew(self) -> Walk:
        """The same, for who shares no walk under way with who has this one."""
        return Walk(self.chain, self.machine)

    def __call__(self, task: tuple[Position, int]) -> Outcome:
        begun = perf_counter()
        position, count = task
        items: list[Any] = []
        skipped: list[tuple[int, Met]] = []
        reached: list[Any] | None = [] if self.is_stream else None
        end = failure = None
        try:
            found = self._live.pop(self._key(position), None)
            if found is None and position is None:  # a new worker, which goes on from nowhere
                raise Stale
            flow, stream = found or self._opened(position)
            if reached is None:
                items.extend(islice(stream, count))  # keeps what comes before an error
            else:
                reached.append(snapshot(flow))
                for item in islice(stream, count):
                    self._count(skipped, len(items))
                    items.append(item)
                    reached.append(snapshot(flow))
            if len(items) == count:
                self._live.clear()
                self._live[None if self.is_stream else flow.snapshot()] = flow, stream
            else:
                self._count(skipped, len(items))
                end = snapshot(flow)
        except BaseException as error:
            failure = traced(error, self.calls)
        seconds = perf_counter() - begun
        try:
            return Outcome(items, failure, reached, end, seconds, weight(items), tuple(skipped))
        finally:
            del failure  # its traceback has this frame, which would be a cycle

    def _count(self, skipped: list[tuple[int, Met]], place: int) -> None:
        """Note what was left out since this was last asked."""
        if self._tally is not None and (found := self._tally.told()).spans:
            skipped.append((place, found))

    def _key(self, position: Position) -> Position:
        """Under what is kept that stands at a position: a stream that a stopped worker left too."""
        live = self._live.get(None)
        return None if live is not None and snapshot(live[0]) == position else position

    def _opened(self, position: Position) -> tuple[Flow[Any], Iterator[Any]]:
        if self._tally is not None:
            self._tally.told()  # before an error; it comes again
        flow = self.machine.flow(position)
        return flow, iter(flow)


class Each:
    """What pointwise stages make of items: a task is (position, its epoch upstream, items)."""

    def __init__(self, calls: tuple[Call, ...]) -> None:
        self.calls = calls

    def __reduce__(self) -> tuple[Any, ...]:
        return Each, (self.calls,)

    def __call__(self, task: tuple[Position, int, list[Any]]) -> Outcome:
        begun = perf_counter()
        position, epoch, items = task
        made: list[Any] = []
        failure = None
        try:
            made.extend(folded(self.calls, fed(items, epoch)).flow(position))
        except BaseException as error:
            failure = traced(error, self.calls)
        size = weight(made) + weight(items)
        try:
            return Outcome(made, failure, None, None, perf_counter() - begun, size)
        finally:
            del failure


def folded(calls: tuple[Call, ...], upstream: Machine[Any] | None) -> Machine[Any]:
    """The machine of some stages on top of another."""
    for call in calls:
        upstream = call.build(upstream)
    assert upstream is not None
    return upstream


def fed(
    items: list[Any],
    epoch: int,
    positions: list[Position] | None = None,
    end: Position | None = None,
) -> Machine[Any]:
    """A machine of items at hand, entered at the first of them.

    - `epoch`: that of all of them
    - `positions`: before the first item and after each; a worker doesn't know them
    - `end`: where upstream has ended, if it has
    """
    places = positions or [None] * (len(items) + 1)

    def flow(position: Position) -> Flow[Any]:
        left = iter(items)
        return Flow(left, lambda: places[len(items) - length_hint(left)])

    def skip(position: Position, n: int) -> tuple[Position, int]:
        if n > len(items):
            return end, len(items)
        return places[n], n

    source = sourced("items", flow=flow, skip=skip)
    return source._replace(init=lambda _: places[0], epoch=lambda _: epoch)


def snapshot(flow: Flow[Any]) -> Any:
    """The position, or the error that asking for it is, which is raised only when it's wanted."""
    try:
        return flow.snapshot()
    except InvalidState as error:
        return error


def known(found: Any) -> Position:
    """A position that was taken by `snapshot`."""
    if isinstance(found, InvalidState):
        raise found
    return found


def weight(items: list[Any]) -> float:
    """About how many bytes an item takes: that of the first, or of the last if that is more."""
    try:
        return max(_weight(items[0]), _weight(items[-1])) if items else 0
    except Exception:  # of attributes that a class makes up
        return HEAVY


def _weight(item: Any, depth: int = 0) -> float:
    kind = type(item)
    if kind in (int, float, bool, complex, str, bytes, bytearray, type(None), range):
        return sys.getsizeof(item)
    if depth > 8 or getattr(getattr(item, "dtype", None), "hasobject", False):
        return HEAVY
    size = getattr(item, "nbytes", None)  # of arrays, tensors, NumPy's numbers
    if isinstance(size, int):
        return size + 128
    if isinstance(item, (list, tuple, set, frozenset, dict, deque)):
        values = item.values() if isinstance(item, dict) else item
        some = [_weight(value, depth + 1) for value in islice(values, 8)]
        return sys.getsizeof(item) + (sum(some) / len(some) * len(item) if some else 0)
    if getattr(kind, "__dict__", None) is not None and hasattr(item, "__dict__"):
        return _weight(vars(item), depth + 1)
    return HEAVY

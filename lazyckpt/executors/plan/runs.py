"""Runs of items, of each of which stages make any number: by workers, run by run.

What such stages make of an item depends on nothing before it. So a worker can
begin anywhere upstream, where that has random access; it opens a file, splits,
parses and filters it, and sends what came of it in parts of bounded size.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import islice
from math import inf
from time import perf_counter
from typing import Any, NamedTuple

from lazyckpt.core.call import Call
from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import Machine
from lazyckpt.errors import InvalidState, SourceChanged
from lazyckpt.executors.plan.handlers import Outcome, build_machine, item_bytes
from lazyckpt.executors.plan.positions import try_snapshot
from lazyckpt.executors.plan.tasks import ChunkSizer, Settled, Task, TaskGenerator, Tasks, always
from lazyckpt.failures.notes import as_failure

_PART_SECONDS = 0.1  # what making a part may take, beyond its last item
_PART_BYTES = 1 << 20  # what it may fill
_RUN_BYTES = 1 << 24  # the same, where another worker would have to begin anew
_LOOKS = 16  # times as many items, when their size is looked at again
_OPEN = 16  # flows that a worker keeps open
_ANY = 1 << 60


class ItemRun(NamedTuple):
    """A task: to make what comes of items upstream.

    Attributes:
        position: Where to begin.
        upstream: How many items upstream that is, with the one that the position is amid.
        most: How many items a part may have.
        in_parts: Whether its worker is asked for the next part, so that parts may be small.
    """

    position: Position
    upstream: int
    most: int = _ANY
    in_parts: bool = True


class Layers:
    """Item-wise stages on a machine with random access, and whose part of a position is whose.

    Of the stages those that keep a part of their own are layers. A layer's place
    before an item is that of what is below behind the item before, in whatever run
    that was.
    """

    def __init__(self, calls: tuple[Call, ...], seekable: int) -> None:
        self.upstream = build_machine(calls[:seekable], None)
        self._calls = calls[seekable:]
        self._owning: list[Machine[Any]] = []
        machine = self.upstream
        for call in self._calls:
            machine = call.build(machine)
            if machine.owns:
                self._owning.append(machine)
        # What is below the others has random access, and there each place has one position.
        self._noted = [n for n, each in enumerate(self._owning) if each.upstream.skip is None]

    def place(self, position: Position) -> Position:
        """Where upstream is: before the item that the position is amid, or behind the last one."""
        for _ in self._owning:
            position = position[0]
        return position

    def begin(
        self, place: Position, start: Position | None = None, taken: Collection[int] = ()
    ) -> Position:
        """The position where nothing has come of the item at a place upstream.

        With a `start` the layers that have taken no item since then are as they were there.
        """
        epoch, position = self.upstream.epoch(place), place
        parts = [] if start is None else self._parts(start)
        for layer, machine in enumerate(self._owning):
            is_kept = parts and layer in self._noted and layer not in taken
            own = parts[layer] if is_kept else machine.init(epoch)[1:]
            position = (position, *own)
        return position

    def _parts(self, position: Position) -> list[tuple[Any, ...]]:
        """The own part of each layer."""
        found = []
        for _ in self._owning:
            position, *own = position
            found.append(tuple(own))
        return found[::-1]

    def below(self, position: Position) -> dict[int, Position]:
        """By layer the place of what is below."""
        found = {}
        for layer in range(len(self._owning) - 1, -1, -1):
            found[layer] = position = position[0]
        return {layer: found[layer] for layer in self._noted}

    def is_amid(self, position: Position) -> bool:
        """Whether something has come of the item at its place."""
        return bool(position != self.begin(self.place(position)))

    def limited(self, count: int) -> tuple[Machine[Any], Callable[[], int], dict[int, Position]]:
        """The machine of so many items upstream.

        Returns:
            It; how many items it has not taken; and by layer the place of what is
            below, behind the item that was taken last.
        """
        upstream, behind = self.upstream, dict[int, Position]()
        taken: Callable[[], int] = int

        def flow(position: Position) -> Flow[Any]:
            nonlocal taken
            found = upstream.flow(position)
            items, taken = counted(islice(found, count))
            return Flow(items, found.snapshot, taken=taken)

        machine, layer = upstream._replace(flow=flow, view=None), 0
        for call in self._calls:
            below, machine = machine, call.build(machine)
            if machine.owns:
                if layer in self._noted:
                    machine = call.build(below._replace(flow=_noting(below, behind, layer)))
                layer += 1
        return machine, lambda: count - taken(), behind

    def settled(
        self, position: Position, begin: Position, behind: Mapping[int, Position]
    ) -> Position:
        """A position of a run as it is where the run before was read by the same flow."""
        if isinstance(position, InvalidState):
            return position
        return self._settled(position, begin, behind, len(self._owning) - 1)

    def behind(
        self, found: Mapping[int, Position], begin: Position, before: Mapping[int, Position]
    ) -> dict[int, Position]:
        """What `limited` has noted of a run, settled, where that of the one before is known."""
        begins = self.below(begin)
        return {
            layer: self._settled(each, begins[layer], before, layer - 1)
            for layer, each in found.items()
        }

    def _settled(
        self, position: Position, begin: Position, behind: Mapping[int, Position], layer: int
    ) -> Position:
        if layer < 0:
            return position
        below, *own = position
        if below == begin[0]:
            return behind.get(layer, below), *own
        return self._settled(below, begin[0], behind, layer - 1), *own


def _noting(
    machine: Machine[Any], behind: dict[int, Position], layer: int
) -> Callable[[Position], Flow[Any]]:
    """The flow of a machine, which notes where it is whenever another item is asked for."""

    def flow(position: Position) -> Flow[Any]:
        found = machine.flow(position)

        def items() -> Iterator[Any]:
            for item in found:
                yield item
                behind[layer] = found.snapshot()

        return Flow(items(), found.snapshot)

    return flow


class RunReader:
    """Makes what comes of a run of items; what is left of it, with the next task."""

    def __init__(self, calls: tuple[Call, ...], seekable: int) -> None:
        self.calls, self._seekable = calls, seekable
        self._layers = Layers(calls, seekable)
        self._open: OrderedDict[tuple[Position, int], _Opened] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        upstream = self._layers.upstream
        upstream.check(upstream.init(0))  # that the data are those it will be made of
        return RunReader, (self.calls, self._seekable)

    def fresh(self) -> RunReader:
        return RunReader(self.calls, self._seekable)

    def __call__(self, run: ItemRun, items: list[Any] | None = None) -> Outcome:
        begun = perf_counter()
        items = [] if items is None else items
        positions: list[Any] = []
        behind: dict[int, Position] = {}
        failure, left = None, 0
        try:
            opened = self._open.pop((run.position, run.upstream), None) or self._opened(run)
            positions.append(try_snapshot(opened.flow))
            behind = opened.behind
            if _is_cut(opened, items, positions, run, begun):
                left = opened.left() + self._layers.is_amid(positions[-1])
                self._keep((positions[-1], left), opened)
            elif missing := opened.left():
                raise SourceChanged(
                    f"{missing} more items were expected: a source has become shorter"
                )
        except BaseException as error:
            failure = as_failure(error, self.calls)
        seconds = perf_counter() - begun
        try:
            size = item_bytes(items)
            return Outcome(
                items, failure, positions, None, seconds, size, left=left, behind={**behind}
            )
        finally:
            del failure  # its traceback has this frame, which would be a cycle

    def _opened(self, run: ItemRun) -> _Opened:
        machine, left, behind = self._layers.limited(run.upstream)
        flow = machine.flow(run.position)
        return _Opened(flow, iter(flow), left, behind)

    def _keep(self, key: tuple[Position, int], opened: _Opened) -> None:
        if key[1]:
            self._open[key] = opened
        while len(self._open) > _OPEN:
            self._open.popitem(last=False)


class _Opened(NamedTuple):
    """A run that is being read.

    Attributes:
        flow: Its flow.
        items: What is left of that.
        left: How many items upstream that is.
        behind: As of `Layers.limited`.
    """

    flow: Flow[Any]
    items: Iterator[Any]
    left: Callable[[], int]
    behind: dict[int, Position]


def _is_cut(
    opened: _Opened, items: list[Any], positions: list[Any], run: ItemRun, begun: float
) -> bool:
    """Read items until a part is full; whether it is that, and not the end."""
    fitting, look = run.most, 1
    deadline = begun + _PART_SECONDS if run.in_parts else inf
    fill = _PART_BYTES if run.in_parts else _RUN_BYTES
    for item in opened.items:
        items.append(item)
        positions.append(try_snapshot(opened.flow))
        if len(items) >= look:
            look *= _LOOKS
            fitting = min(run.most, int(fill / item_bytes(items)))
        is_full = len(items) >= fitting or perf_counter() >= deadline
        if is_full and not isinstance(positions[-1], InvalidState):  # from which nobody goes on
            return True
    return False


def run_tasks(layers: Layers, *, in_parts: bool) -> TaskGenerator:
    """Tasks for a `RunReader`: each begins anew at an item upstream.

    Args:
        layers: The stages.
        in_parts: Whether the worker of one part makes the next one too.
    """
    return lambda position, sizer: _Runs(layers, position, in_parts).tasks(position, None, sizer)


class _Runs:
    """The runs from a position on, whose positions become those of one flow over all of them."""

    def __init__(self, layers: Layers, position: Position, in_parts: bool) -> None:
        self._layers, self._start, self._in_parts = layers, position, in_parts
        self._behind = layers.below(position)
        self._is_empty = True  # as long as no item has come

    def tasks(self, position: Position, begin: Position | None, sizer: ChunkSizer) -> Tasks:
        """The tasks from a position on, which but for the first is where a run begins."""
        layers = self._layers
        place, skip = layers.place(position), layers.upstream.skip
        assert skip is not None
        while True:
            count = sizer.size
            if sizer.tail > 1:
                count = sizer.share(skip(place, sizer.tail * count)[1])
            place, passed = skip(place, count)
            after = layers.begin(place)
            if passed:
                most = 1 if sizer.is_single else _ANY
                run = ItemRun(position, passed, most, self._in_parts)
                settle = partial(self._settle, begin, place)
                following = partial(self.tasks, after, after)
                yield Task(run, None, passed, settle=settle, following=following)
            if passed < count:
                yield Task(None, always(after))
                return
            position = begin = after

    def _settle(self, begin: Position | None, place: Position, outcome: Outcome) -> Settled:
        """See `Task.settle`; a run begins and ends at these places."""
        layers, found = self._layers, outcome.positions or []
        noted = outcome.behind
        if begin is not None:
            noted = layers.behind(noted, begin, self._behind)
            found = [layers.settled(each, begin, self._behind) for each in found]
        self._is_empty = self._is_empty and not outcome.items
        if outcome.left or outcome.failure is not None:
            return Settled(found)
        self._behind = {**self._behind, **noted}
        if self._is_empty:  # the item that the start is amid may be in a later run
            start = layers.begin(place, self._start, {*outcome.behind})
            if start != layers.begin(place):
                self._start = start
                return Settled(found, partial(self.tasks, start, start))
        return Settled(found)

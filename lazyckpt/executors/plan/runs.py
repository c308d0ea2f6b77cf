"""Runs of input items: workers apply stages that yield any number of outputs per input.

The outputs of an input don't depend on the inputs before it. So with random access upstream, a
worker can start at any input: it opens a file, splits, parses and filters it, and sends the
outputs in parts of bounded size.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from math import inf
from time import perf_counter
from typing import Any, NamedTuple

from lazyckpt.core.call import Call
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import Share
from lazyckpt.core.sizes import item_bytes
from lazyckpt.core.stages import closing
from lazyckpt.errors import SourceChanged
from lazyckpt.executors.plan.handlers import PART_SECONDS, Handler
from lazyckpt.executors.plan.layers import Layers
from lazyckpt.executors.plan.limited_runs import LimitedRun
from lazyckpt.executors.plan.tasks import (
    ANY,
    POSITION_BYTES,
    ChunkSizer,
    Task,
    TaskGenerator,
    Tasks,
)
from lazyckpt.failures.marks import without_marks

PART_BYTES = 1 << 20  # size limit of a part
_RUN_BYTES = 1 << 24  # size limit if a different worker would have to start the run again
_LOOKS = 16  # factor by which the number of items grows before their size is measured again
_OPEN = 16  # flows that a worker keeps open


class ItemRun(NamedTuple):
    """A task: compute the outputs of a number of input items.

    Attributes:
        position: Position to start from.
        upstream: Number of input items, including the item in progress at the position.
        most: The most outputs that a part may have.
        in_parts: If True, the same worker is asked for the next part, so parts may be small.
    """

    position: Position
    upstream: int
    most: int = ANY
    in_parts: bool = True

    def rest(self, position: Position, left: int, most: int) -> ItemRun:
        """Return the task for the last `left` input items, of at most `most` outputs."""
        return self._replace(position=position, upstream=left, most=most)


class RunReader(Handler):
    """Computes the outputs of a run, part by part; the next task continues the run."""

    def __init__(self, calls: tuple[Call, ...], seekable: int, *, is_last: bool) -> None:
        self.calls, self._seekable, self._is_last = calls, seekable, is_last
        self._layers = Layers(calls, seekable)
        self._open: OrderedDict[tuple[Position, int], LimitedRun] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        upstream = self._layers.upstream
        upstream.check(upstream.init(0))  # before pickling: the source's data haven't changed
        return partial(RunReader, is_last=self._is_last), (self.calls, self._seekable)

    def fresh(self) -> RunReader:
        return RunReader(self.calls, self._seekable, is_last=self._is_last)

    def close_flows(self) -> None:
        self._open.clear()
        closing(self._layers.upstream)()

    def share(self, run: ItemRun) -> Share:
        return self._layers.upstream.share

    def name(self, run: ItemRun) -> tuple[Any, ...]:
        return run

    def make(self, run: ItemRun, items: list[Any], known: dict[str, Any], /) -> None:
        begun = perf_counter()
        opened = self._open.pop((run.position, run.upstream), None)
        if opened is None:
            opened = LimitedRun(self._layers, run.position, run.upstream, is_last=self._is_last)
        opened.begin_part()
        known.update(positions=opened.positions, skipped=opened.skipped)
        if _is_cut(opened, items, run, begun):
            known["left"] = left = opened.left()
            if left:
                self._open[opened.positions.last, left] = opened
                while len(self._open) > _OPEN:
                    self._open.popitem(last=False)
        elif missing := opened.missing():
            raise SourceChanged(f"{missing} more items were expected: a source has become shorter")


def _is_cut(opened: LimitedRun, items: list[Any], run: ItemRun, begun: float) -> bool:
    """Read items until a part is full; return whether it is, or False at the end of the run."""
    fitting, look = run.most, 1
    fill, deadline = _RUN_BYTES, inf
    if run.in_parts:
        fill, deadline = PART_BYTES, begun + PART_SECONDS
    while opened.read(items, max(len(items) + 1, min(fitting, look)), deadline):
        made = len(items)
        if made >= look:
            look *= _LOOKS
            fitting = min(run.most, int(fill / (item_bytes(items) + POSITION_BYTES)))
        is_full = made >= fitting or perf_counter() > deadline
        if is_full and opened.can_be_cut:
            return True
    return False


def run_tasks(layers: Layers, *, in_parts: bool) -> TaskGenerator:
    """Return a generator of tasks for a `RunReader`: each starts at an input item.

    Args:
        layers: The stages.
        in_parts: If True, the worker of a part also computes the next part.
    """
    skip = layers.upstream.skip
    assert skip is not None

    def generate(position: Position, sizer: ChunkSizer) -> Tasks:
        if sizer.fixed and layers.depth:  # an input may have as many outputs as a file has rows
            sizer.size = 1
        position, _ = without_marks(position)
        anchor = layers.anchor(position)
        while True:
            count = sizer.count
            anchor, passed = skip(anchor, count)
            after = layers.begin(anchor)
            if passed:
                yield Task(
                    ItemRun(position, passed, sizer.most, in_parts), passed, after, is_run=True
                )
            if passed < count:
                yield Task(None, after=after, is_run=True)
                return
            position = after

    return generate

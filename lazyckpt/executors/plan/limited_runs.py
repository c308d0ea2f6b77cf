"""A run of items upstream, as a worker reads it part by part."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from math import inf
from time import perf_counter
from typing import Any

from lazyckpt.core.flow import Flow, Position, counted, next_walk
from lazyckpt.errors import InvalidState
from lazyckpt.executors.plan.handlers import build_machine
from lazyckpt.executors.plan.layers import Layers
from lazyckpt.executors.plan.reading import Reading
from lazyckpt.failures.skipping import apart


class LimitedRun(Reading):
    """A run of so many items upstream, as it is read."""

    def __init__(self, layers: Layers, position: Position, count: int, *, is_last: bool) -> None:
        """Begin with it.

        Args:
            layers: The stages.
            position: Where it begins.
            count: How many items upstream it has.
            is_last: Whether no stage comes behind these, which may ask for `befores`.
        """
        self._upstream, self._count = layers.upstream, count
        self._is_amid = layers.depth > 0  # of an item, once one was made
        self._taken: Callable[[], int] = int
        calls, skip_log = apart(layers.calls)
        limited = layers.upstream._replace(flow=self._limited, item=None, view=None)
        flow = build_machine(calls, limited).flow(position)
        super().__init__(flow, skip_log, has_befores=not is_last)

    @property
    def can_be_cut(self) -> bool:
        """Whether another run can go on from where this is."""
        return not isinstance(self.positions.last, InvalidState)

    def read(self, items: list[Any], count: int, deadline: float = inf) -> bool:
        """Read on while items come in lists, which takes one position for each of these."""
        flow = self.flow
        while self._skip_log is None and flow.has_blocks:
            begun = len(items)
            items.extend(islice(flow.block, count - begun))
            if made := len(items) - begun:
                *place, reached = position = flow.snapshot()
                if self._before is not None:
                    self._note_before(begun + 1, (*place, reached - made))
                self.positions.note(len(items), position)
                self._last = position
                if len(items) == count or perf_counter() > deadline:
                    return True
            if next_walk(flow) is None:
                self._stream = iter(flow)  # which changes where blocks run a user's code
                break
        return super().read(items, count, deadline)

    def left(self) -> int:
        """How many items are left to another part, once this one is cut."""
        return self.missing() + self._is_amid

    def missing(self) -> int:
        """How many items have not been taken."""
        return self._count - self._taken()

    def _limited(self, position: Position) -> Flow[Any]:
        found = self._upstream.flow(position)
        items, self._taken = counted(islice(found, self._count))
        return Flow(items, found.snapshot, taken=self._taken)

"""A run of input items, which a worker reads part by part."""

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
    """Reads the outputs of a number of input items."""

    def __init__(self, layers: Layers, position: Position, count: int, *, is_last: bool) -> None:
        """Open the run.

        Args:
            layers: The stages.
            position: Position to start from.
            count: Number of input items.
            is_last: If True, no stage follows these; a later stage may ask for `befores`.
        """
        self._upstream, self._count = layers.upstream, count
        self._is_amid = layers.depth > 0  # after any output, an input item is in progress
        self._taken: Callable[[], int] = int
        calls, skip_log = apart(layers.calls)
        limited = layers.upstream._replace(flow=self._limited, item=None, view=None)
        flow = build_machine(calls, limited).flow(position)
        super().__init__(flow, skip_log, has_befores=not is_last)

    @property
    def can_be_cut(self) -> bool:
        """Whether a new run can continue from the current position."""
        return not isinstance(self.positions.last, InvalidState)

    def read(self, items: list[Any], count: int, deadline: float = inf) -> bool:
        """Read items; as long as they come in blocks, take one position per block."""
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
                self._stream = iter(flow)  # it differs once blocks run a user's code
                break
        return super().read(items, count, deadline)

    def left(self) -> int:
        """Return the number of input items left for the next part, if this part ends here."""
        return self.missing() + self._is_amid

    def missing(self) -> int:
        """Return the number of input items that haven't been read."""
        return self._count - self._taken()

    def _limited(self, position: Position) -> Flow[Any]:
        found = self._upstream.flow(position)
        items, self._taken = counted(islice(found, self._count))
        return Flow(items, found.snapshot, taken=self._taken)

"""Read a flow ahead, part by part, and note the positions of each part."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from math import inf
from time import perf_counter
from typing import Any

from lazyckpt.core.flow import Flow, Position
from lazyckpt.errors import InvalidState
from lazyckpt.executors.plan.positions import Positions, try_snapshot
from lazyckpt.failures.skip_log import SkipLog, SkipRecord


class Reading:
    """Reads a flow, part by part.

    Attributes:
        flow: The flow that yields the items.
        positions: The positions of this part's items.
        skipped: The records skipped in this part, each with the number of items before it.
    """

    def __init__(
        self,
        flow: Flow[Any],
        skip_log: SkipLog | None,
        *,
        has_befores: bool = False,
        is_strict: bool = False,
        suffices: Callable[[], bool] | None = None,
    ) -> None:
        """Prepare to read a flow.

        Args:
            flow: The flow that yields the items.
            skip_log: Log of the records that the flow skips.
            has_befores: If True, also note the position just before each item.
            is_strict: If True, an error of taking a position is raised at its item. Otherwise
                the error is kept in place of the position, which may never be needed.
            suffices: Asked after each item; if it returns True, the part ends.
        """
        if has_befores and flow.before is None and flow.noting is not None:
            flow = flow.noting()
        self.flow, self._skip_log = flow, skip_log
        self._stream = iter(flow)
        self._is_strict, self._suffices = is_strict, suffices
        self._before = flow.before if has_befores else None
        self._last: Position = None  # after the previous item; None before the first

    def begin_part(self) -> None:
        """Start a part, with no items, at the current position."""
        self.positions = Positions(try_snapshot(self.flow))
        self.skipped: list[tuple[int, SkipRecord]] = []

    def read(self, items: list[Any], count: int, deadline: float = inf) -> bool:
        """Add items until there are `count`, or until the deadline; return False at the end."""
        goes_on = self._read(items, count, deadline)
        if not goes_on:
            self._add_skipped(len(items))
        return goes_on

    def _read(self, items: list[Any], count: int, deadline: float) -> bool:
        flow, note, before = self.flow, self.positions.note, self._before
        is_skipping = self._skip_log is not None
        is_timed, suffices = deadline != inf, self._suffices
        for number, item in enumerate(islice(self._stream, count - len(items)), len(items) + 1):
            if is_skipping:
                self._add_skipped(number - 1)
            items.append(item)
            if before is not None:
                self._note_before(number, before())
            try:
                position = self._last = flow.snapshot()
            except InvalidState as error:
                note(number, error)
                if self._is_strict:
                    raise
            else:
                note(number, position)
            if (is_timed and perf_counter() > deadline) or (suffices is not None and suffices()):
                return True
        return len(items) == count

    def _note_before(self, number: int, position: Position) -> None:
        """Note the position just before an item, if it isn't the one after the previous item."""
        if position != self._last:
            self.positions.befores[number] = position

    def _add_skipped(self, place: int) -> None:
        if self._skip_log is not None and (found := self._skip_log.drain()).spans:
            self.skipped.append((place, found))

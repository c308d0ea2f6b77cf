"""A flow as it is read ahead, part by part, and what is known of each part."""

from __future__ import annotations

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
        flow: Gives the items.
        positions: Those of this part's items.
        skipped: What was left out of this part, and after how many items.
    """

    def __init__(
        self,
        flow: Flow[Any],
        skip_log: SkipLog | None,
        *,
        is_counted: bool = False,
        has_befores: bool = False,
        is_strict: bool = False,
    ) -> None:
        """Note how the flow is to be read.

        Args:
            flow: Gives the items.
            skip_log: Where what is left out is logged.
            is_counted: Whether positions are found by counting: only the first and the last
                of a part are noted.
            has_befores: Whether to note the positions just before items.
            is_strict: Whether a position that can't be taken is an error of its item. Else that
                is kept, for nobody may ever ask for it.
        """
        if has_befores and flow.before is None and flow.noting is not None:
            flow = flow.noting()
        self.flow, self._skip_log = flow, skip_log
        self._stream = iter(flow)
        self._is_counted, self._is_strict = is_counted, is_strict
        self._before = flow.before if has_befores else None
        self._last: Position = None  # after the item before, where this had one

    def begin_part(self) -> None:
        """Begin with no items, from where this is: before each part."""
        self.positions = Positions(try_snapshot(self.flow))
        self.skipped: list[tuple[int, SkipRecord]] = []

    def read(self, items: list[Any], count: int, deadline: float = inf) -> bool:
        """Add to this part's items until there are so many, or it is late; False at the end."""
        if self._is_counted and deadline == inf:
            items.extend(islice(self._stream, count - len(items)))  # keeps those before an error
            goes_on = len(items) == count
        else:
            goes_on = self._read_singly(items, count, deadline)
        if not goes_on:
            self._add_skipped(len(items))
        elif self._is_counted:  # not at the end, where the stream has another place
            self.positions.note(len(items), try_snapshot(self.flow))
        return goes_on

    def _read_singly(self, items: list[Any], count: int, deadline: float) -> bool:
        flow, note, before = self.flow, self.positions.note, self._before
        is_skipping, is_noted = self._skip_log is not None, not self._is_counted
        is_timed = deadline != inf
        for number, item in enumerate(islice(self._stream, count - len(items)), len(items) + 1):
            if is_skipping:
                self._add_skipped(number - 1)
            items.append(item)
            if is_noted:
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
            if is_timed and perf_counter() > deadline:
                return True
        return len(items) == count

    def _note_before(self, number: int, position: Position) -> None:
        """Note the position just before an item, if it isn't the one after the item before."""
        if position != self._last:
            self.positions.befores[number] = position

    def _add_skipped(self, place: int) -> None:
        if self._skip_log is not None and (found := self._skip_log.drain()).spans:
            self.skipped.append((place, found))

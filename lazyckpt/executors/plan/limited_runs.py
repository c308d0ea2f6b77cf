"""A run of items upstream, as a worker reads it part by part."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.iterators import WALKS
from lazyckpt.errors import InvalidState
from lazyckpt.executors.plan.handlers import Outcome, build_machine
from lazyckpt.executors.plan.layers import Layers
from lazyckpt.executors.plan.positions import Noted, try_snapshot
from lazyckpt.failures.skip_log import SkipRecord
from lazyckpt.failures.skipping import apart


class LimitedRun:
    """A run of so many items upstream, as it is read."""

    def __init__(self, layers: Layers, position: Position, count: int, *, is_last: bool) -> None:
        """Begin with it.

        Args:
            layers: The stages.
            position: Where it begins.
            count: How many items upstream it has.
            is_last: Whether no stage comes behind these, which may ask for `befores`.
        """
        self._upstream, self._count, self._is_last = layers.upstream, count, is_last
        self._is_amid = layers.depth > 0  # of an item, once one was made
        self._taken: Callable[[], int] = int
        calls, self._skip_log = apart(layers.calls)
        limited = layers.upstream._replace(flow=self._limited, view=None)
        self._flow: Flow[Any] = build_machine(calls, limited).flow(position)
        self._items = iter(self._flow)
        self._last: Position = None  # after the item before, where this run had one
        self._begin_part(try_snapshot(self._flow))

    def _begin_part(self, position: Position) -> None:
        self._positions = Noted(position)
        self._befores: dict[int, Position] = {}
        self._skipped: list[tuple[int, SkipRecord]] = []

    @property
    def can_be_cut(self) -> bool:
        """Whether another run can go on from where this is."""
        return not isinstance(self._positions[-1], InvalidState)

    def read(self, items: list[Any], count: int) -> bool:
        """Add so many items to a part; whether they came."""
        wanted = len(items) + count
        if self._skip_log is None:
            self._read_blocks(items, wanted)
        self._read_singly(items, wanted)
        return len(items) == wanted

    def _read_blocks(self, items: list[Any], wanted: int) -> None:
        """Read on while items come in lists, which takes one position for each of these."""
        flow = self._flow
        while flow.has_blocks and flow.blocks is not None:
            begun = len(items)
            items.extend(islice(flow.block, wanted - begun))
            if made := len(items) - begun:
                *place, reached = position = flow.snapshot()
                self._note_before(begun + 1, (*place, reached - made))
                self._positions.note(len(items), position)
                self._last = position
                if len(items) == wanted:
                    return
            if (block := next(flow.blocks, None)) is None:
                return
            if type(block) in WALKS:
                flow.block = block
            else:
                flow.put_back(block)
                self._items = iter(flow)

    def _read_singly(self, items: list[Any], wanted: int) -> None:
        flow, note, is_skipping = self._flow, self._positions.note, self._skip_log is not None
        before = None if self._is_last else flow.before
        for number, item in enumerate(islice(self._items, wanted - len(items)), len(items) + 1):
            if is_skipping:
                self._add_skipped(len(items))
            items.append(item)
            if before is not None:
                self._note_before(number, before())
            try:
                position = self._last = flow.snapshot()
            except InvalidState as error:  # that a state is asked for may never be
                position = error
            note(number, position)

    def _note_before(self, number: int, position: Position) -> None:
        """Note the position just before an item, if it isn't the one after the item before."""
        if not self._is_last and position != self._last:
            self._befores[number] = position

    def end_part(self, items: list[Any], *, is_cut: bool) -> Outcome:
        """Return the outcome of a part, after which another may begin if it `is_cut`."""
        if not is_cut:
            self._add_skipped(len(items))
        positions, befores, skipped = self._positions, self._befores, tuple(self._skipped)
        self._begin_part(positions[-1])
        left = self.missing() + self._is_amid if is_cut else 0
        return Outcome(items, None, positions, skipped=skipped, befores=befores, left=left)

    def _add_skipped(self, place: int) -> None:
        if self._skip_log is not None and (found := self._skip_log.drain()).spans:
            self._skipped.append((place, found))

    def missing(self) -> int:
        """How many items have not been taken."""
        return self._count - self._taken()

    def _limited(self, position: Position) -> Flow[Any]:
        found = self._upstream.flow(position)
        items, self._taken = counted(islice(found, self._count))
        return Flow(items, found.snapshot, taken=self._taken)

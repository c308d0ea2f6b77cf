"""The stream under `StreamWrapper`: passes that a function opens, cut in epochs."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from lazyckpt.combinators.flat_map import flat_map
from lazyckpt.combinators.source import source
from lazyckpt.combinators.unfold import once
from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import Machine, entered, within
from lazyckpt.core.stages import sourced
from lazyckpt.decorators import source_combinator
from lazyckpt.errors import StateMismatch
from lazyckpt.pipeline import Pipeline

_DIGITS = 13  # of a digest, which every JSON reader keeps as an int


class Passes:
    """A function that opens passes, and the one that is open, which the next epoch goes on with.

    - `made`: gives the position after the last batch made
    """

    def __init__(self, stream_fn: Callable[[], Iterable[Any]]) -> None:
        self._stream_fn = stream_fn
        self.made: Callable[[], Position] | None = None
        self.open: _Pass | None = None

    def at(self, number: int, place: list[Any]) -> _Pass:
        """A pass, from its beginning or from a place within."""
        found, self.open = self.open, None
        is_read = found is not None and getattr(found.reader(), "gi_running", False)  # elsewhere
        if found is None or is_read or [number, *place] != found.place():
            pipeline = _readable(self._stream_fn())
            check = int(pipeline.digest[:_DIGITS], 16)
            if place and place[0] != check:
                raise StateMismatch(
                    "the state belongs to another stream than stream_fn gives: "
                    f"to one of another length, or of other stages than {pipeline!r}"
                )
            position = place[1] if place else pipeline.machine.init(number)
            found = _Pass(number, check, entered(pipeline.machine, position))
        self.open = found
        return found


class _Pass:
    """A pass, its iterator, and the generator that reads from that."""

    def __init__(self, number: int, check: int, flow: Flow[Any]) -> None:
        self._number, self._check, self._flow = number, check, flow
        self.items = iter(flow)
        self.reader: Callable[[], Any] = lambda: None

    def place(self) -> list[Any]:
        return [self._number, self._check, self._flow.snapshot()]


def _readable(found: Any) -> Pipeline[Any]:
    """What `stream_fn` gave, as a pipeline: with random access where that means the same."""
    if isinstance(found, Pipeline):
        return found
    kind = type(found)
    is_sequence = isinstance(found, (Sequence, np.ndarray)) or not hasattr(kind, "__iter__")
    is_indexed = hasattr(kind, "__len__") and hasattr(kind, "__getitem__")
    if is_sequence and is_indexed and not isinstance(found, str):
        return source(found)
    return once(found) | flat_map(chain)  # which asks it for items when the first is asked for


@source_combinator(
    registered=False, describe=lambda passes, size, name: {"epoch_size": size, "name": name}
)
def stream_epochs(passes: Passes, size: int, name: str | None) -> Machine[Any]:
    """Pass after pass in epochs of `size` batches; one pass an epoch, if that is 0.

    State: the pass, a count of the epoch's batches, and within the pass a checksum of
    what it is of, and the place in it.
    """
    most = size or sys.maxsize

    def check(*place: Any) -> None:
        if place:
            checksum, _ = place
            within("StreamWrapper", checksum)

    def flow(position: Position) -> Flow[Any]:
        # The position before the pass at hand, that pass, and how many batches it gave: one
        # value, as another thread may look on.
        now: tuple[Position, _Pass | None, Callable[[], int]] = position, None, int

        def items() -> Iterator[Any]:
            nonlocal now
            number, given, *place = position
            passes.made = reached
            while given < most:
                found = passes.at(number, place)
                found.reader = reader
                some, count = counted(islice(found.items, most - given))
                now = reached(), found, count
                try:
                    yield from some
                except GeneratorExit:
                    raise
                except BaseException:  # an iterator that has raised looks like one that has ended
                    passes.open = None
                    raise
                if not size:
                    return
                if not place and not count():
                    now = (number, given), None, int
                    return
                number, given, place = number + 1, given + count(), []

        def reached() -> Position:
            before, found, count = now
            if found is None or not (given := count()):
                return before
            number, *place = found.place()
            return number, before[1] + given, *place

        pull = items()
        reader = weakref.ref(pull)  # the pass would else hold what reads it, and that the pass
        return Flow(pull, reached)

    return sourced("StreamWrapper", check=check, most=most, flow=flow)


def next_start(size: int, position: Position) -> Position:
    """Where the next epoch of so many batches begins, after one that ended at a position."""
    number, given, *place = position
    return (number, 0, *place) if 0 < size == given else (number + 1, 0)

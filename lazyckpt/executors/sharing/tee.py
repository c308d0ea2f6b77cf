"""Items of a stream that is read once for several ranks, each at its own pace."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import inf
from time import monotonic
from typing import Any, NamedTuple

from lazyckpt.core.call import Call
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine
from lazyckpt.core.sizes import item_bytes
from lazyckpt.errors import PipelineError
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.tasks import SHARED_BYTES
from lazyckpt.executors.pools.progress import say_alive
from lazyckpt.failures.notes import Failure, as_failure
from lazyckpt.failures.skip_log import SkipLog, SkipRecord

_READ_SECONDS = 20e-3  # time to read per turn, since each turn wakes all ranks
_TICK = 0.25  # seconds between two messages that a waiting rank is alive


class _Held(NamedTuple):
    """An item, to which the stream's function isn't applied yet.

    Attributes:
        item: The item.
        after: The position after it.
        skipped: The records skipped before it.
        total: The bytes of the stream's items up to and with this one.
    """

    item: Any
    after: Position
    skipped: SkipRecord
    total: float = 0.0


class _Stream:
    """The items from a position on that some ranks have still to pass.

    Attributes:
        number: How many streams the ranks have read before.
        begin: Its first position.
        reached: The number of items that each rank has passed.
        held: The items that some rank has still to pass.
        passed: The number of items before those.
        total: The bytes of all items read.
        dropped: The bytes of the items before those held.
        end: The end, once it is reached: the position and the records skipped before it.
        failure: The error after the items, if there is one.
    """

    def __init__(self, number: int, begin: Position) -> None:
        self.number, self.begin = number, begin
        self.flow: Flow[Any] | None = None
        self.reached: dict[int, int] = {}
        self.held: list[_Held] = []
        self.passed = 0
        self.total = self.dropped = 0.0
        self.end: _Held | None = None
        self.failure: Failure | None = None

    @property
    def is_over(self) -> bool:
        return self.end is not None or self.failure is not None

    def ahead(self, given: int) -> float:
        """Return how many bytes a rank that has passed so many items is ahead of the slowest."""
        number = given - self.passed
        return self.held[number - 1].total - self.dropped if number > 0 else 0.0

    def drop(self, given: int) -> None:
        """Drop the items before a number of items."""
        self.dropped += self.ahead(given)
        del self.held[: given - self.passed]
        self.passed = given

    def read(
        self,
        count: int,
        machine: Machine[Any],
        calls: tuple[Call, ...],
        skip_log: SkipLog | None,
        seconds: float,
        tell: Callable[[], None],
    ) -> None:
        """Read at least `count` more items, or to the end, in the only thread that reads.

        Call `tell` once these are there: reading on may wait for ranks that wait for them.
        """
        drain = SkipRecord if skip_log is None else skip_log.drain
        deadline = monotonic() + seconds
        try:
            if self.flow is None:
                drain()  # of a stream that was given up; they are skipped again
                self.flow = machine.flow(self.begin)
            flow = self.flow
            for item in flow.pull:
                self.total += item_bytes([item])
                self.held.append(_Held(item, flow.snapshot(), drain(), self.total))
                count -= 1
                if not count:
                    tell()
                is_full = self.total - self.dropped >= SHARED_BYTES
                if count <= 0 and (is_full or monotonic() >= deadline):
                    return
            self.end = _Held(None, flow.snapshot(), drain())
        except BaseException as error:
            self.failure = as_failure(error, calls)


class Tee:
    """Reads a stream for several ranks, in a thread that starts when a rank needs an item.

    Ranks open the same flows in the same order. The stream of a later flow begins once all ranks
    are done with the one before, so that the nodes of a job read in the same order.
    """

    def __init__(
        self,
        machine: Machine[Any],
        calls: tuple[Call, ...],
        ranks: Iterable[int],
        skip_log: SkipLog | None,
        look_after: Callable[[list[int]], None],
        start: Callable[[Callable[[], None]], bool],
        *,
        reads_ahead: bool,
    ) -> None:
        """Prepare to read.

        Args:
            machine: The machine of the stream.
            calls: Its stages.
            ranks: The ranks that read it.
            skip_log: The log of records that it skips.
            look_after: Notes which of some awaited ranks are lost.
            start: Calls a function in a thread of its own; returns False if none can start.
            reads_ahead: Whether to read items that no rank waits for yet.
        """
        self._seconds = _READ_SECONDS if reads_ahead else 0.0
        self._machine, self._calls, self._skip_log = machine, calls, skip_log
        self._look_after, self._start = look_after, start
        self._changed = threading.Condition()
        self._opened = dict.fromkeys(ranks, 0)  # flows, by rank
        self._done = dict(self._opened)  # of these, how many the rank needs no longer
        self._streams: dict[int, _Stream] = {}
        self._is_reading = False
        self._are_ahead = False  # whether ranks may wait for slower ones
        self._closed: BaseException | None = None

    def machine(self, rank: int, skip_log: SkipLog | None) -> Machine[Any]:
        """Return the machine of a rank, which records skipped items in its own log."""
        flow = partial(self._flow, rank, skip_log)
        return self._machine._replace(flow=flow, item=None, view=None)

    def lacks(self, rank: int, count: int) -> bool:
        """Return whether a rank has to wait for the last of so many further items."""
        with self._changed:
            stream = self._streams.get(self._opened[rank] - 1)
            if stream is None or stream.is_over:
                return False
            there = stream.passed + len(stream.held)
            return there < stream.reached.get(rank, 0) + count

    def behind(self, rank: int) -> list[tuple[int, float]]:
        """Return how far each rank is that still needs items which a given rank has passed."""
        with self._changed:
            reached = self._reached(rank)
            return [found for each in self._done if (found := self._reached(each)) < reached]

    def _reached(self, rank: int) -> tuple[int, float]:
        """Return a rank's stream, as a number, and how many items of it the rank has passed."""
        number = self._opened[rank] - 1
        stream = self._streams.get(number)
        return number, inf if stream is None else stream.reached.get(rank, 0)

    def leave(self, rank: int) -> None:
        """Wait for a rank no longer."""
        with self._changed:
            self._done.pop(rank, None)
            self._forget_done()

    def close(self, error: BaseException) -> None:
        """End all flows, with an error."""
        with self._changed:
            self._closed = error
            self._streams.clear()
            self._changed.notify_all()

    def _open(self, rank: int, position: Position) -> _Stream:
        with self._changed:
            if rank not in self._done:  # it has left
                raise TaskLost
            number = self._done[rank] = self._opened[rank]
            self._opened[rank] += 1
            stream = self._streams.get(number)
            if stream is None:
                stream = self._streams[number] = _Stream(number, position)
            if stream.begin != position:
                raise PipelineError(
                    f"shared: rank {rank} reads from {position}, and other ranks of its node from "
                    f"{stream.begin}: all ranks open the same pipelines, and begin anew together"
                )
            self._forget_done()
            return stream

    def _flow(self, rank: int, skip_log: SkipLog | None, position: Position) -> Flow[Any]:
        stream = self._open(rank, position)
        now, given = position, 0

        def pick(count: int, index: int) -> tuple[int, list[Any]]:
            nonlocal now, given
            found, own, now = self._passed(stream, rank, given, count, index, skip_log)
            given += found
            assert stream.flow is not None
            fn = stream.flow.fn
            return found, own if fn is None else [fn(item) for item in own]

        def pull() -> Iterator[Any]:
            while own := pick(1, 0)[1]:
                yield from own

        return Flow(pull(), lambda: now, pick=pick)

    def _passed(
        self, stream: _Stream, rank: int, given: int, count: int, index: int, log: SkipLog | None
    ) -> tuple[int, list[Any], Position]:
        """Have a rank pass the next items.

        Returns:
            How many there are, a list with the item at `index`, and the position after all.
        """
        self._await(stream, rank, given, count)
        with self._changed:
            begin = given - stream.passed
            held = stream.held[begin : begin + count]
            found, own = len(held), [each.item for each in held[index : index + 1]]
            stream.reached[rank] = given + found
            if found < count and rank in self._done:
                self._done[rank] = stream.number + 1
                self._forget_done()
            if found < count and stream.failure is not None:
                error = stream.failure.error
                raise TaskLost if isinstance(error, TaskLost) else stream.failure
            if found < count and stream.end is not None:
                held.append(stream.end)
        if log is not None and self._skip_log is not None:
            for each in held:
                if each.skipped.spans:
                    log.record(each.skipped)
            log.lose(self._skip_log.lost)
        return found, own, held[-1].after

    def _await(self, stream: _Stream, rank: int, given: int, count: int) -> None:
        """Wait until there are so many items after the first `given` ones, or read them."""
        while True:
            with self._changed:
                if self._closed is not None:
                    raise TaskLost if isinstance(self._closed, TaskLost) else self._closed
                stream.reached[rank] = given
                self._drop(stream)
                missing = given + count - stream.passed - len(stream.held)
                if missing <= 0 or stream.is_over:
                    return
                late = self._late(stream, ahead=stream.ahead(given) > SHARED_BYTES)
                reads_here = False
                if not self._is_reading and not late:
                    self._is_reading = True
                    reads_here = not self._start(partial(self._read, stream, missing))
                self._are_ahead = self._are_ahead or bool(late)
                has_changed = reads_here or self._changed.wait(_TICK)
            if reads_here:
                self._read(stream, missing)
            if late and not has_changed:
                self._look_after(late)
            say_alive()  # where this is a process of which others wait for items

    def _read(self, stream: _Stream, count: int) -> None:
        try:
            stream.read(
                count, self._machine, self._calls, self._skip_log, self._seconds, self._tell
            )
        finally:
            with self._changed:
                self._is_reading = False
                self._changed.notify_all()

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _late(self, stream: _Stream, *, ahead: bool) -> list[int]:
        """Return the ranks to wait for before reading; the slowest ones if `ahead`."""
        late = [each for each, done in self._done.items() if done < stream.number]
        if ahead and not late:
            return [n for n in self._left(stream) if stream.reached.get(n, 0) == stream.passed]
        return late

    def _left(self, stream: _Stream) -> list[int]:
        """Return the ranks that still need items of a stream."""
        return [each for each, done in self._done.items() if done <= stream.number]

    def _forget_done(self) -> None:
        """Forget the streams that no rank needs, with their errors, whose frames hold runs."""
        for number in [each for each in self._streams if not self._left(self._streams[each])]:
            del self._streams[number]
        self._changed.notify_all()

    def _drop(self, stream: _Stream) -> None:
        """Drop the items that all ranks have passed."""
        late = self._left(stream)
        passed = min((stream.reached.get(each, 0) for each in late), default=0)
        if passed > stream.passed:
            stream.drop(passed)
            if self._are_ahead:
                self._are_ahead = False
                self._changed.notify_all()

"""Who makes the items of a part of a pipeline: workers, or the process that reads them.

What costs less to make than to send is made where it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import thread_time
from typing import Any, TypeVar

from lazyckpt.executors.plan.costs import with_cost
from lazyckpt.executors.plan.handlers import Handler, Outcome
from lazyckpt.executors.pools.pool import PendingTask

T = TypeVar("T")

_ITEMS = 256  # after which the costs of making and of sending are compared, twice
_CHUNKS = 3  # of them, at least
_MARGIN = 2.0  # times what sending costs, from which on workers make items again


class MadeHere(PendingTask):
    """A task that is done where its outcome is asked for."""

    __slots__ = ("payload",)

    def __init__(self, payload: Any, size: int) -> None:
        super().__init__(0, None, size)
        self.payload = payload


class Placement:
    """Decides, a chunk at a time, where the next one is made.

    Attributes:
        is_here: Whether that is this process.
    """

    def __init__(self, made_by: Callable[[], Handler] | None = None) -> None:
        """Leave the first chunks to workers.

        Args:
            made_by: Gives what does tasks here; None where they have to stay with workers.
        """
        self.is_here = False
        self._made_by = made_by
        self._handler: Handler | None = None
        self._needed = _ITEMS
        self._is_less = False  # whether making took less, when they were compared last
        self._items = 0
        self._making: list[float] = []  # seconds an item, of each chunk: some have to wait
        self._sending = self._cost = 0.0  # seconds, at both ends, and those of an item

    def submit(self, payload: Any, size: int) -> MadeHere:
        """A task to be done here."""
        return MadeHere(payload, size)

    def result(self, pending: MadeHere) -> Outcome:
        """Do a task. An interrupt is raised at once, before the items that were made."""
        assert self._made_by is not None
        self._handler = self._handler or self._made_by()
        outcome, making = with_cost(self._handler, pending.payload)
        failure = outcome.failure
        if failure is not None and not isinstance(failure.error, Exception):
            try:
                raise failure.error
            finally:
                del failure, outcome  # its traceback has this frame, which would be a cycle
        pending.outcome = outcome = outcome._replace(making=making)
        return outcome

    def received(self, work: Callable[[], T]) -> T:
        """Do what it takes to have items made elsewhere, and note what that costs."""
        if self._made_by is None:
            return work()
        begun = thread_time()  # without the time that it waits
        try:
            return work()
        finally:
            self._sending += thread_time() - begun

    def observe(self, items: int, outcome: Outcome) -> None:
        """Decide anew, once there are enough items of who makes them now."""
        if self._made_by is None or not items:
            return
        self._items += items
        self._making.append(outcome.making / items)
        self._sending += outcome.sending
        if self.is_here:
            self._go_back_if_costly()
        elif self._items >= self._needed and len(self._making) >= _CHUNKS:
            was_less, self._cost = self._is_less, self._sending / self._items
            self._is_less = median(self._making) <= self._cost
            self.is_here = was_less and self._is_less
            self.forget()

    def _go_back_if_costly(self) -> None:
        if len(self._making) >= _CHUNKS:
            if median(self._making) > _MARGIN * self._cost:
                self.is_here = self._is_less = False
                self._needed *= 2  # so that it does not go to and fro
            self.forget()

    def forget(self) -> None:
        """Measure anew."""
        self._items, self._sending = 0, 0.0
        self._making.clear()

    def close(self) -> None:
        """Close what tasks have left open here."""
        self._handler = None

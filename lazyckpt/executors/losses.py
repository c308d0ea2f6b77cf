"""What becomes of an item at which a worker died or hung."""

from __future__ import annotations

from lazyckpt.core.call import Call
from lazyckpt.executors.pools.pool import PendingTask, WorkerPool
from lazyckpt.failures.notes import Failure, add_note
from lazyckpt.failures.watching import guarded_in

_FIRST_SPAN = 64  # items
_MOST_TRIES = 8  # of an item that others, of joined pipelines, may have lost their workers at


class LostItem(Exception):
    """In place of the item at which a worker was lost, behind those before it.

    Attributes:
        failure: What is raised, unless the item is tried again.
    """

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class Losses:
    """How often workers were lost at the next item, and which calls of its task are left out.

    Who reads ahead, before it gives an item, may have died at a later one. So behind an
    item that could be made alone some more are made without that, and twice as many if
    the later one wasn't among them.

    Attributes:
        errors: What is raised in place of those calls, by number.
    """

    def __init__(self, pool: WorkerPool, calls: tuple[Call, ...], *, may_read_ahead: bool) -> None:
        self._retries, self._may_read_ahead = pool.retries, may_read_ahead
        self._can_leave_out = pool.retries is not None and bool(guarded_in(calls))
        self._count = self._tries = 0
        self._in_order, self._span = 0, _FIRST_SPAN
        self.errors: dict[int, Exception] = {}

    @property
    def is_retrying(self) -> bool:
        """Whether the next item is to be made alone."""
        return self._tries > 0

    def is_in_order(self, size: int) -> bool:
        """Whether a task of so many items is to be made without looking ahead."""
        self._in_order -= min(size, self._in_order)
        return self._in_order > 0

    def keep_order(self, size: int) -> None:
        """Have the next items made without looking ahead."""
        if self._retries is not None and self._may_read_ahead:
            self._in_order = max(self._in_order, size + 1)

    def end(self) -> None:
        """Note that an item was made."""
        if self._tries and not self.errors:
            self.keep_order(self._span)
            self._span *= 2
        self._count = self._tries = 0
        self.errors = {}

    def is_tried_again(self, failure: Failure, pending: PendingTask | None) -> bool:
        """Whether an item is made again, perhaps with another call of it left out.

        To leave one out it has to be known, and so have been watched at least once.

        Args:
            failure: What is raised if it isn't.
            pending: The lost task, where the item was the only one of it.
        """
        if self._retries is None:
            return False
        self._count += 1
        self._tries += 1
        if self._count <= max(self._retries, self._can_leave_out):
            return True
        self._span = _FIRST_SPAN
        if self._can_leave_out and pending is not None and pending.called and pending.lost:
            self._count = 0
            self.errors = {**self.errors, pending.called: pending.lost}
            return True
        if self._can_leave_out and self._tries < _MOST_TRIES:
            return True
        if self._retries:
            add_note(failure.error, f"lazyckpt: it was tried {self._tries} times")
        self._count = self._tries = 0
        self.errors = {}
        return False

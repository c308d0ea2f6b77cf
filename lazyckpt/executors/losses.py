"""Recovery from a worker that died or hung at an item."""

from __future__ import annotations

from lazyckpt.core.call import Call
from lazyckpt.executors.plan.tasks import ANY, Task
from lazyckpt.executors.pools.pool import PendingTask
from lazyckpt.failures.notes import Failure, add_note, places_of_functions
from lazyckpt.failures.watching import guarded_in

_FIRST_SPAN = 64  # items
_MOST_TRIES = 8  # tries of an item, if items of other joined pipelines may have caused the losses


class Losses:
    """The recovery of items at which a worker died or hung.

    The items before the lost one are computed again first. Then the lost item is computed
    alone, up to `retries` times. If that fails, the call that killed the worker is skipped, or
    the error of the loss is raised if no call may be skipped.

    A worker that reads ahead may have died at a later item. So after an item that could be
    computed alone, 64 more items are computed without reading ahead. The number doubles each
    time the lost item wasn't among them.

    Attributes:
        errors: The errors to raise in place of calls of the next item, by the number of the
            call; None unless the item is being tried again.
    """

    def __init__(
        self, retries: int | None, calls: tuple[Call, ...], *, may_read_ahead: bool
    ) -> None:
        """Begin with no losses.

        Args:
            retries: The pool's `retries`.
            calls: The stages that the pool's workers run.
            may_read_ahead: If True, a worker computes items before they are needed.
        """
        self._retries, self._calls = retries, calls
        self._may_read_ahead = may_read_ahead and retries is not None
        self._can_leave_out = retries is not None and bool(guarded_in(calls))
        self._failure: Failure | None = None
        self._before = 0  # items that come before the one at which a worker was lost
        self._culprit: dict[int, Exception] = {}  # the call under way at the loss, as in `errors`
        self._tries = self._singles = 0
        self._in_order, self._span = 0, _FIRST_SPAN
        self.errors: dict[int, Exception] | None = None

    @property
    def is_recovering(self) -> bool:
        """Whether tasks are done one at a time."""
        return self._failure is not None or self.errors is not None

    @property
    def is_next(self) -> bool:
        """Whether a worker was lost at the next item."""
        return self._failure is not None and not self._before

    @property
    def most(self) -> int:
        """The most items that the next task may have."""
        if self.errors is not None or self._singles:
            return 1
        return self._before or ANY

    def is_careful(self, size: int) -> bool:
        """Count the next task, of `size` items; return whether to do it without reading ahead."""
        if self.errors is not None:
            return True
        self._in_order -= min(size, self._in_order)
        return self._in_order > 0

    def use_single_items(self, count: int) -> None:
        """Compute the next `count` items one by one."""
        self._singles = count

    def add(self, error: Exception, task: Task, pending: PendingTask) -> None:
        """Note that a worker was lost at a task."""
        made = pending.made
        self._failure = Failure(error, "" if made is None else places_of_functions(self._calls))
        self._before, self._culprit = made or 0, {}
        if self._before >= (task.payload.most if task.is_run else task.size):
            self._before = 0  # it died while sending them
        if task.is_single and pending.called and pending.lost:
            self._culprit = {pending.called: pending.lost}
        if self._before:
            self._keep_order(self._before)

    def made(self, used: int, items: int) -> None:
        """Note that a task was done, with the numbers of its inputs and outputs."""
        if self.errors == {}:  # a worker has survived the item
            self._keep_order(self._span)
            self._span *= 2
        self._tries, self.errors = 0, None
        self._before -= min(items, self._before)
        self._singles -= min(used, self._singles)

    def try_again(self) -> None:
        """Compute the next item alone, or raise the error of the loss."""
        failure, self._failure = self._failure, None
        assert failure is not None
        try:
            if not self._is_tried_again(failure):
                raise failure
        finally:
            del failure  # its traceback refers to this frame: a reference cycle

    def _is_tried_again(self, failure: Failure) -> bool:
        """Return whether to compute the next item again, perhaps without one more of its calls.

        A call can only be skipped if it is known, so the item was watched at least once.
        """
        if self._retries is None:
            return False
        self._tries += 1
        self.errors = self.errors or {}
        if self._tries <= max(self._retries, self._can_leave_out):
            return True
        self._span = _FIRST_SPAN
        if self._can_leave_out and self._culprit:
            self._tries = 0
            self.errors |= self._culprit
            return True
        if self._can_leave_out and self._tries < _MOST_TRIES:
            return True
        if self._retries:
            add_note(failure.error, f"lazyckpt: tried {self._tries} times")
        return False

    def _keep_order(self, count: int) -> None:
        """Compute the next `count` items without reading ahead."""
        if self._may_read_ahead:
            self._in_order = max(self._in_order, count + 1)

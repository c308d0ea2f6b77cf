"""What it costs to make items, and to send them."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import Any

from lazyckpt.executors.plan.handlers import Outcome

try:
    from resource import RUSAGE_THREAD, getrusage
except ImportError:  # where no thread's own waits are counted

    def times_waited() -> int | None:
        """None: it can't be told how often this thread has waited."""
        return None

else:

    def times_waited() -> int | None:
        """How often this thread has waited for something."""
        return getrusage(RUSAGE_THREAD).ru_nvcsw


def with_cost(handler: Callable[..., Outcome], *task: Any) -> tuple[Outcome, float]:
    """What comes of a task, and how long the processor took; all of the time, if it had to wait.

    So what other processes do meanwhile makes no item look costly.
    """
    waited, begun = times_waited(), thread_time()
    outcome = handler(*task)
    took = thread_time() - begun
    is_own = waited is not None and times_waited() == waited
    return outcome, took if is_own else outcome.seconds

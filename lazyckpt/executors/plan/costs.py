"""What it costs to make items, and to send them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from itertools import count
from time import thread_time
from typing import Any

from lazyckpt.executors.plan.handlers import Outcome

_unknown = count(-1, -1)
_usage: Callable[[], Any] | None = None
with suppress(ImportError, AttributeError):  # where no thread's own is known
    _resource = import_module("resource")
    _usage = lambda: _resource.getrusage(_resource.RUSAGE_THREAD)  # noqa: E731
    _usage()


def times_waited() -> int:
    """How often this thread has waited for something; where that is not counted, always more."""
    return (_usage is not None and _usage().ru_nvcsw) or next(_unknown)


def with_cost(work: Callable[[], Outcome]) -> Outcome:
    """What comes of a task, and how long the processor took; all of the time, if it had to wait.

    So what other processes do meanwhile makes no item look costly.
    """
    waited, begun = times_waited(), thread_time()
    outcome = work()
    took = thread_time() - begun
    return outcome._replace(making=took if times_waited() == waited else outcome.seconds)

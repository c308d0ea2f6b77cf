"""Choose how worker processes start."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path

from lazyckpt.errors import PipelineError

_TASKS = Path("/proc/self/task")  # on Linux, a folder with an entry per thread
_JEMALLOC = "jemalloc_bg_thd"  # a thread of pyarrow's allocator, which is prepared for forks


def choose_start_method(wanted: str | None) -> str:
    """Return the wanted start method, or the default.

    Raises:
        PipelineError: If the platform lacks the start method, or if this process can't fork
            workers because it is daemonic.
    """
    there = []
    has_interpreter = sys.executable and not getattr(sys, "frozen", False)  # else it is the program
    if hasattr(socket, "send_fds") and has_interpreter:
        # Frameworks of macOS crash in forked processes.
        there = ["spawn", "forkserver"] if sys.platform == "darwin" else ["forkserver", "spawn"]
    if hasattr(os, "fork"):
        there.append("fork")
    found = wanted or next(iter(there), None)
    if found not in there:
        remedy = f"only {' and '.join(map(repr, there))}" if there else "use threads(...)"
        raise PipelineError(f"processes: this platform has no start_method={found!r}, {remedy}")
    if found == "fork" and multiprocessing.current_process().daemon:
        raise PipelineError(
            "processes: this process is daemonic, like a worker of torch's DataLoader or of a "
            "multiprocessing.Pool, and can't fork workers; leave start_method out"
        )
    return found


def warn_of_threads() -> None:
    """Warn of other threads, just after a fork: those that libraries stop for it are stopped."""
    me = threading.current_thread()
    names = [each.name for each in threading.enumerate() if each is not me]
    if (native := count_threads() - 1 - len(names)) > 0:
        names.append(f"{native} of native code")
    if names:
        warnings.warn(
            f"processes: workers were forked while other threads ran ({', '.join(names)}); if one "
            "of them holds a lock that a worker needs, that worker hangs. Without "
            "start_method='fork' workers start clean",
            RuntimeWarning,
            stacklevel=2,
        )


def count_threads() -> int:
    """Return the number of threads of this process; on Linux with those of native code."""
    found = 0
    for path in _TASKS.glob("*/comm"):
        with suppress(OSError):  # it has ended
            found += path.read_text("utf-8").strip() != _JEMALLOC
    return max(threading.active_count(), found)

"""Fork safely in a process with threads: lazyckpt's threads pause; others cause a warning.

A forked process has none of its parent's threads, but all of their locks, some of them taken.
So lazyckpt's threads are marked as `working` while they call a user's functions, but not while
they wait. A fork waits until no thread is working, and lets none begin. Only one thread forks
at a time, as fork handlers of other packages may not support concurrent forks (filelock's
raises an error).
"""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import monotonic, sleep

_PATIENCE = 0.5  # seconds that a fork waits for working threads
_TICK = 1e-3  # seconds between two checks

own_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()

# Sets instead of locks: adding is atomic, and a forked process finds no lock taken.
_working: set[int] = set()  # lazyckpt's working threads, by `get_ident`
_forking: set[int] = set()  # threads that fork
_is_said = False


def _forget_all() -> None:
    _working.clear()
    _forking.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


@contextmanager
def working() -> Iterator[None]:
    """Return a context in which a thread of lazyckpt calls a user's functions."""
    me = threading.get_ident()
    _begin(me)
    try:
        yield
    finally:
        _working.discard(me)


def resting() -> AbstractContextManager[None]:
    """Return a context in which this thread only waits, perhaps inside `working`."""
    me = threading.get_ident()
    return _resting(me) if me in _working else nullcontext()


@contextmanager
def _resting(me: int) -> Iterator[None]:
    _working.discard(me)
    try:
        yield
    finally:
        _begin(me)


def _begin(me: int) -> None:
    _working.add(me)
    while not _forking <= {me}:  # checked after adding to `_working`, as a fork does the reverse
        _working.discard(me)
        sleep(_TICK)
        _working.add(me)


@contextmanager
def forking(*, tell: bool) -> Iterator[None]:
    """Return a context in which this thread may fork.

    Args:
        tell: If True, warn once about other threads, which may hold locks.
    """
    me = threading.get_ident()
    with resting():
        try:
            _await_turn(me)
            if tell:
                _tell()
            with warnings.catch_warnings():
                # Python's own warning, from 3.12 on, about any other thread.
                warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
                yield
            _forking.discard(me)
        finally:  # done twice, as a signal handler may raise just before either
            _forking.discard(me)


def _await_turn(me: int) -> None:
    """Wait until only this thread forks, and no thread is working.

    This is a function because from Python 3.13 on, the jump back of a loop may lie outside of
    the `try` around the loop: an interrupt at the jump would not be caught.
    """
    _forking.add(me)
    while _forking != {me}:
        if min(_forking) != me:  # so that one of several waiting threads continues
            _forking.discard(me)
        sleep(_TICK)
        _forking.add(me)
    deadline = monotonic() + _PATIENCE
    while _working and monotonic() < deadline:
        sleep(_TICK)


def _tell() -> None:
    global _is_said
    rest = {threading.main_thread(), threading.current_thread(), *own_threads}
    found = [t.name for t in threading.enumerate() if t not in rest or t.ident in _working]
    if not found or _is_said:
        return
    _is_said = True
    warnings.warn(
        f"processes: workers are forked while other threads run ({', '.join(found)}); if one of "
        "them holds a lock that a worker needs, that worker hangs. "
        "start_method='forkserver' is safe; start_method='fork' forks without this warning",
        RuntimeWarning,
        stacklevel=2,
    )

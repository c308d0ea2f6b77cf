"""Forks beside threads: those of ours rest meanwhile, and of others the user is told.

A forked process has none of its parent's threads, and all of their locks, taken
as they were. So a thread of ours `works` where it calls a user's functions, and
not where it only waits; a fork waits until none does, and lets none begin. One thread
forks at a time, as what others have done at a fork may bear no other (filelock's raises).
"""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import monotonic, sleep

_PATIENCE = 0.5  # seconds that a fork waits for what is being made
_TICK = 1e-3  # seconds between two looks whether it is made

own_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()

# Sets, and no locks: adding to them is atomic, and a forked process finds nothing taken.
_working: set[int] = set()  # threads of ours, by `get_ident`
_forking: set[int] = set()  # threads that fork
_is_said = False


def _forget_all() -> None:
    _working.clear()
    _forking.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


@contextmanager
def working() -> Iterator[None]:
    """Call functions of a user's, in a thread of ours."""
    me = threading.get_ident()
    _begin(me)
    try:
        yield
    finally:
        _working.discard(me)


def resting() -> AbstractContextManager[None]:
    """Wait, perhaps within a `working` of this thread's."""
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
    while not _forking <= {me}:  # looked at after that, as a fork looks at it in turn
        _working.discard(me)
        sleep(_TICK)
        _working.add(me)


@contextmanager
def forking(*, tell: bool) -> Iterator[None]:
    """Fork beside threads.

    Args:
        tell: Whether to warn, once, of threads that may hold a lock.
    """
    me = threading.get_ident()
    with resting():
        try:
            _await_turn(me)
            if tell:
                _tell()
            with warnings.catch_warnings():
                # Python's own, from 3.12 on, of threads whether they hold a lock or not.
                warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
                yield
            _forking.discard(me)
        finally:  # done twice, as a signal's handler may raise just before either
            _forking.discard(me)


def _await_turn(me: int) -> None:
    """Wait until this thread alone forks, and none works.

    In a function, as a loop's jump back may be outside of the `try` around it, from
    Python 3.13 on: an interrupt there would be none of that `try`'s.
    """
    _forking.add(me)
    while _forking != {me}:
        if min(_forking) != me:  # so that one of several that wait goes on
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
        "start_method='forkserver' is safe, start_method='fork' is this without the warning",
        RuntimeWarning,
        stacklevel=2,
    )

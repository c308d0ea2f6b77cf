"""Locks: one that is free in a forked process, and the kernel's, between processes.

Windows has no `fcntl`. There the kernel's are not taken: what is written is whole or not there
all the same, but processes may do the same work twice, and must not share a folder that `convert`
or a cache of ranges writes to.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import IO, Any, Protocol
from weakref import WeakSet

try:
    _FCNTL: Any = import_module("fcntl")
except ImportError:
    _FCNTL = None


class ForkLock:
    """A lock for what a fork leaves whole, such as a dict."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        renewed_in_forks.add(self)

    def renew(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class _Renewed(Protocol):
    def renew(self) -> None: ...


renewed_in_forks: WeakSet[_Renewed] = WeakSet()  # what a fork makes anew


def _renew_all() -> None:
    for each in renewed_in_forks:
        each.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


def lock(file: int | IO[Any], *, waits: bool = True) -> None:
    """Take the lock of an open file, which ends with the process.

    Raises:
        BlockingIOError: Another has it, and this one doesn't wait.
    """
    if _FCNTL is not None:
        _FCNTL.flock(file, _FCNTL.LOCK_EX | (0 if waits else _FCNTL.LOCK_NB))


def unlock(file: int | IO[Any]) -> None:
    """Give the lock back, also in the name of a process that was forked meanwhile."""
    if _FCNTL is not None:
        _FCNTL.flock(file, _FCNTL.LOCK_UN)


@contextmanager
def folder_lock(folder: str, *, waits: bool = True) -> Iterator[None]:
    """Hold the lock of a folder; errors as of `lock`."""
    if _FCNTL is None:
        yield
        return
    held = os.open(folder, os.O_RDONLY)
    try:
        lock(held, waits=waits)
        try:
            yield
        finally:
            unlock(held)
    finally:
        os.close(held)

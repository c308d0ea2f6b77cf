"""The kernel's locks, between processes.

Nothing is wrong without them, which Windows and some file systems don't have: what is
written is written beside its place and renamed, so it is whole or not there. Processes may then do
the same work twice, and a cache of ranges may for a while take more than it should.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

try:
    _FCNTL: Any = import_module("fcntl")
except ImportError:
    _FCNTL = None


_held: set[int] = set()  # open files whose locks this process has


def _close_held() -> None:
    for held in _held:
        os.close(held)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_held)


@contextmanager
def exclusive_lock(path: str, *, waits: bool = True) -> Iterator[None]:
    """Hold the lock of a file, which is made, or of a folder, where its file system has locks.

    It ends with a process that is killed; what that has forked doesn't keep it.

    Raises:
        BlockingIOError: Another has it, and this one doesn't wait.
    """
    if _FCNTL is None:
        yield
        return
    held = os.open(path, os.O_RDONLY if os.path.isdir(path) else os.O_RDWR | os.O_CREAT)
    _held.add(held)
    try:
        try:
            _FCNTL.flock(held, _FCNTL.LOCK_EX | (0 if waits else _FCNTL.LOCK_NB))
        except BlockingIOError:
            raise
        except OSError:  # of Lustre without `-o flock`, of NFS for a folder
            pass
        yield
    finally:
        if held in _held:  # and this isn't a fork, which has closed it
            _held.remove(held)
            with suppress(OSError):
                _FCNTL.flock(held, _FCNTL.LOCK_UN)  # also for a fork that hasn't come to it yet
            os.close(held)

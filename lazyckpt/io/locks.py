"""A lock that is free in a forked process, whichever thread held it before."""

from __future__ import annotations

import os
import threading
from weakref import WeakSet


class ForkLock:
    """A lock for what a fork leaves whole, such as a dict."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _known.add(self)

    def renew(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


_known: WeakSet[ForkLock] = WeakSet()


def _renew_all() -> None:
    for lock in _known:
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)

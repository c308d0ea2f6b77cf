"""Processes that are forked by one that has imported a framework, and killed if they wait for it.

Tests start such a process, so that each framework is imported once, and never forks pytest.
"""

from __future__ import annotations

import gc
import os
import signal
import traceback
from collections.abc import Callable
from typing import NoReturn

KEPT: list[object] = []  # models of ranks: torch that frees one sometimes waits for gloo forever
_TOLD = os.pipe()
_ALIVE: set[int] = set()


def forked(act: Callable[[], object]) -> int:
    """The number of a process that calls a function, and succeeds if that returns."""
    gc.freeze()  # what is imported, so that children don't go through it and copy it
    if pid := os.fork():
        _ALIVE.add(pid)
        return pid
    code = 1
    try:
        signal.alarm(300)  # if nobody kills it
        act()
        code = 0
    except BaseException:
        traceback.print_exc()
        os.write(_TOLD[1], b"!")
    finally:
        os._exit(code)  # without freeing anything, as `KEPT` says


def is_where_it_is_killed() -> NoReturn:
    """Say so, and wait."""
    os.write(_TOLD[1], b".")
    while True:
        signal.pause()


def killed(pids: list[int], waiting: int | None = None) -> None:
    """Kill processes as soon as they wait for it, all or a number of them."""
    for _ in range(len(pids) if waiting is None else waiting):
        assert os.read(_TOLD[0], 1) == b"."
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert codes(pids) == [-signal.SIGKILL] * len(pids)


def codes(pids: list[int]) -> list[int]:
    """The exit statuses of processes, once they have ended."""
    found = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    _ALIVE.difference_update(pids)
    return found


def end_all() -> None:
    """Kill those that are left."""
    for pid in _ALIVE:
        os.kill(pid, signal.SIGKILL)

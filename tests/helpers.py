"""Helpers of several test files."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest


@contextmanager
def traced() -> Iterator[None]:
    """Trace memory within a block; after it, no test is slowed down."""
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


class Costly:
    """A data set that counts its reads."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        self.read.append(index)
        return index * 10


class Indexed:
    """A data set that calls a function for each index."""

    def __init__(self, size: int, get: Callable[[Any], Any]) -> None:
        self.size, self.get = size, get

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        return self.get(index)


class Streamed:
    """An iterable that calls a function for each of its iterators."""

    def __init__(self, begin: Callable[[], Iterable[Any]]) -> None:
        self.begin = begin

    def __iter__(self) -> Iterator[Any]:
        return iter(self.begin())


class Unread(Indexed):
    """A data set that may not be read."""

    def __init__(self, size: int = 100) -> None:
        super().__init__(size, may_not_be_read)


def may_not_be_read(*args: Any) -> Any:
    raise AssertionError("it was read")


def wants(message: str, build: Callable[[], Iterable[Any]]) -> None:
    """Assert that building or reading it raises an argument error with the message."""
    with pytest.raises((TypeError, ValueError), match=message):
        list(build())


def printed(code: str) -> str:
    """The output of a new interpreter that runs some code."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def printed_without(package: str, code: str, before: str = "") -> str:
    """The output of some code if a package isn't installed, including the code's error."""
    return printed(
        f"import sys; sys.modules[{package!r}] = None\n"
        f"import lazyckpt as lz\n{before}\n"
        f"try: {code}\n"
        "except ImportError as error: print(error)"
    )


def loaded(code: str) -> set[str]:
    """The modules that a new interpreter has after some code."""
    return set(printed(f"import sys\n{code}\nprint(*sys.modules)").split())


IS_DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"  # then all stopping points are tried
HANGS = 60.0  # seconds until a test takes it that something hangs, on however busy a machine


def until(happens: Callable[[], Any], seconds: float = HANGS) -> Any:
    """Wait until it returns a true value; return that."""
    last = monotonic() + seconds
    while not (found := happens()):
        assert monotonic() < last, f"not within {seconds} s"
        sleep(0.005)
    return found


def workers() -> list[Any]:
    """Threads and processes of runs that are alive: threads, and numbers of processes."""
    threads = [each for each in threading.enumerate() if each.name.startswith("lazyckpt-")]
    return [*threads, *worker_pids()]


def worker_pids() -> list[int]:
    """Worker processes of runs, whether this process has forked them, or its server has."""
    forked = multiprocessing.active_children()
    found = [each.pid or 0 for each in forked if each.name.startswith("lazyckpt-")]
    parents = {pid: parent for pid in all_pids() if (parent := parent_of(pid))}
    servers = {
        pid
        for pid, parent in parents.items()
        if parent == os.getpid() and b"start_workers" in command_of(pid)
    }
    return found + [pid for pid, parent in parents.items() if parent in servers and is_alive(pid)]


def pids_of(count: int) -> list[int]:
    """So many workers, of which some may not have started yet when the first item comes."""
    until(lambda: len(worker_pids()) == count)
    return worker_pids()


def all_pids() -> list[int]:
    return [int(each.name) for each in Path("/proc").glob("[0-9]*")]


def parent_of(pid: int) -> int:
    """The process that started one; 0 if that has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def nothing_is_left() -> None:
    """Of runs, after a test."""
    soon = monotonic() + 0.1
    while workers() and monotonic() < soon:
        sleep(0.005)
    if workers():  # perhaps of a run that is part of a cycle
        gc.collect()
    until(lambda: not workers())
    blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    assert signal.SIGINT not in blocked  # later children would inherit it


def in_fork(act: Callable[[], object]) -> int:
    """The exit status of a fork that calls a function: its result, or minus a signal's number."""
    if not (child := os.fork()):
        status = 255
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # in place of pytest's
            signal.alarm(int(HANGS))
            status = int(act() or 0)  # type: ignore[call-overload]
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"

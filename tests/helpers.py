"""What several test files need."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest


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


def wants(message: str, build: Callable[[], Iterable[Any]]) -> None:
    """That building or reading it raises an error of an argument's kind, with the message."""
    with pytest.raises((TypeError, ValueError), match=message):
        list(build())


def until(happens: Callable[[], Any], seconds: float = 9.0) -> Any:
    """What it gives once that is true."""
    last = monotonic() + seconds
    while not (found := happens()):
        assert monotonic() < last, f"not within {seconds} s"
        sleep(0.005)
    return found


def workers() -> list[Any]:
    """Threads and processes of runs that are alive."""
    named = [*threading.enumerate(), *multiprocessing.active_children()]
    return [worker for worker in named if worker.name.startswith("lazyckpt-")]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"

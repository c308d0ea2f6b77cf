"""Streams that log the calls to them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

from hypothesis import strategies as st

from tests.helpers import HANGS

END = "end of epoch"


def workers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("lazyckpt-")]


class Source:
    """A stream function that logs the number of each pass, and its batches."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes
        self.log: list[Any] = []
        self.begun = threading.Semaphore(0)
        self.lets = threading.Semaphore(10**9)
        self.passes = count()

    def __call__(self) -> Iterator[Any]:
        number = next(self.passes)
        self.log.append(number)
        size = self.sizes[number % len(self.sizes)]
        return self.batches(number % len(self.sizes), size)

    def batches(self, number: int, size: int) -> Iterator[Any]:
        for index in range(size):
            self.begun.release()
            self.lets.acquire()
            self.log.append((number, index))
            yield number, index

    def made(self) -> list[Any]:
        return [each for each in self.log if isinstance(each, tuple)]

    def wait(self, batches: int) -> None:
        """Wait until so many more batches have been begun."""
        for _ in range(batches):
            assert self.begun.acquire(timeout=HANGS)


def asked(stream: Any, times: int = 1) -> list[Any]:
    """The results of a number of `next` calls, including ends of epochs."""
    return [next(stream, END) for _ in range(times)]


sizes = st.lists(st.integers(1, 5), min_size=1, max_size=3)
epoch_sizes = st.sampled_from([-1, 0, 1, 2, 3, 4, 7])

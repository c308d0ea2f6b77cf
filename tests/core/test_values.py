"""Properties that are computed once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.core.values import cached_property


class Counted:
    def __init__(self, *waits: Any) -> None:
        self._waits = waits
        self.computed = 0

    @cached_property
    def value(self) -> list[int]:
        """The attribute that the test reads."""
        self.computed += 1
        for begun, may_end in self._waits:
            begun.set()
            may_end.wait()
        return [self.computed]


def test_it_is_computed_once() -> None:
    counted = Counted()
    assert counted.value is counted.value
    assert counted.computed == 1
    assert Counted.value.__doc__ == "The attribute that the test reads."


def test_an_error_is_not_kept() -> None:
    class Failing:
        @cached_property
        def value(self) -> int:
            raise ValueError("no")

    failing = Failing()
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            _ = failing.value


def test_a_process_that_is_forked_while_a_thread_computes_it() -> None:
    begun, may_end = Event(), Event()
    counted = Counted((begun, may_end))
    thread = Thread(target=lambda: counted.value)
    thread.start()
    begun.wait()
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # if it hangs
        try:
            os._exit(Counted().value != [1])
        finally:
            os._exit(2)
    may_end.set()
    thread.join()
    assert os.waitpid(pid, 0)[1] == 0


def test_no_module_has_the_one_with_a_lock() -> None:
    for path in Path(lz.__file__).parent.rglob("*.py"):
        lines = [line for line in path.read_text().splitlines() if "cached_property" in line]
        assert not any(line.startswith("from functools") for line in lines), path

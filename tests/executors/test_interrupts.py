"""Interrupts and closes at every point of lazyckpt's code at which a signal handler may run."""

from __future__ import annotations

import linecache
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

import lazyckpt as lz
from lazyckpt.executors.pools.worker_process import without_interrupts
from tests.executors.cases import Stream
from tests.executors.faults import keep
from tests.helpers import IS_DEEP

pytestmark = pytest.mark.usefixtures("nothing_left")

OURS = str(Path(lz.__file__).parent)
N = 40
IS_BRIEF = settings().max_examples <= 10


class At:
    """Does something at the n-th point, of all function entries and returns of C functions.

    CPython runs signals' handlers there. With `lines` it is before each line as well, but not
    at `with` and `try`: no handler runs there, and an error would pass by the `__exit__` of the
    block, so that a lock would stay held. Points before `after` seconds have passed don't count.
    """

    def __init__(
        self, number: int, do: Callable[[], Any], *, lines: bool = False, after: float = 0.0
    ) -> None:
        self._left, self._do, self._lines, self._pid = number, do, lines, os.getpid()
        self._begin = monotonic() + after
        self.has_come = False

    def __enter__(self) -> At:
        if self._lines:
            sys.settrace(self._trace)
        else:
            sys.setprofile(self._profile)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        sys.settrace(None)

    def _profile(self, frame: FrameType, event: str, found: Any) -> None:
        # At `with` only Python 3.14 runs handlers, a bug: github.com/python/cpython/issues/148874
        is_entry = event == "c_return" and found.__name__ == "__enter__"
        if event in ("call", "c_return") and not is_entry:
            self._pass(frame)

    def _trace(self, frame: FrameType, event: str, found: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "call" or (event == "line" and not begins_block(frame)):
            self._pass(frame)
        return self._trace

    def _pass(self, frame: FrameType) -> None:
        # A forked worker has the same hook.
        is_ours = os.getpid() == self._pid and frame.f_code.co_filename.startswith(OURS)
        if is_ours and monotonic() >= self._begin:
            self._left -= 1
            if not self._left:
                self.__exit__()
                self.has_come = True
                self._do()


def begins_block(frame: FrameType) -> bool:
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return line.lstrip().startswith(("with ", "try:"))


def some(x: int) -> list[int]:
    return [x] * (x % 3)


def array(x: int) -> Any:
    return np.full(5_000, x)


def plain(item: Any) -> Any:
    return int(item[0]) if isinstance(item, np.ndarray) else item


PIPELINES: dict[str, lz.Pipeline[Any]] = {
    "list": lz.source([*range(N)]),
    "random access": lz.source(range(N)) | lz.map(abs),
    "stream": lz.source(range(N)) | lz.filter(keep) | lz.map(abs),
    "beside": lz.source(Stream(N)) | lz.map(abs) | lz.filter(keep) | lz.map(abs),
    "some": lz.source(range(N)) | lz.flat_map(some) | lz.map(abs),
    "window": lz.source(Stream(N)) | lz.shuffle(buffer_size=8, seed=0),
    "joined": lz.interleave(lz.source(range(N)) | lz.filter(keep), lz.source(range(9))),
    "arrays": lz.source(range(12)) | lz.map(array),
    "streamed arrays": lz.source(range(12)) | lz.filter(keep) | lz.map(array),
}
EXECUTORS: dict[str, lz.Executor | None] = {
    "inline": None,
    "threads": lz.threads(),
    "threads2": lz.threads(2),
    "processes": lz.processes(),
    "processes2": lz.processes(2),
}


def points(name: str, executor: str) -> range:
    """Numbers of points to try: of each pipeline others, and all of them in the profile `deep`."""
    step = {"inline": 3, "threads": 11, "threads2": 23}.get(executor, 193)
    step = 1 if IS_DEEP else 3 * step if IS_BRIEF else step
    return range(1 + sum(map(ord, name)) % step, 1 << 30, step)


class Interrupt(BaseException):
    pass


def interrupt() -> None:
    raise Interrupt


def tried(function: Callable[..., None], name: str, executor: str, **how: bool) -> None:
    lost: list[str] = []  # interrupts within a callback or destructor
    hook, sys.unraisablehook = sys.unraisablehook, lambda each: lost.append(repr(each.object))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # of sockets that are not held yet
            function(points(name, executor), PIPELINES[name], EXECUTORS[executor], **how)
    finally:
        sys.unraisablehook = hook
    if executor != "inline":  # the generators of stages are closed by the thread that drops them
        assert not lost, lost
        other = threading.Thread(
            target=list, args=(lz.run(PIPELINES[name], executor=EXECUTORS[executor]),), daemon=True
        )
        other.start()
        other.join(30.0)
        assert not other.is_alive(), "a lock is still held"


# Before lines or not, to close or not: one or two of the four, and in the profile `deep` all.
WAYS = [(False, False), (True, True), (True, False), (False, True)]
SWEEPS = [
    (name, executor, *way, False)
    for row, name in enumerate(PIPELINES)
    for column, executor in enumerate(EXECUTORS)
    for number, way in enumerate(WAYS)
    if IS_DEEP or (row + column + number) % (2 if executor == "threads2" else 4) == 0
] + [  # an item may wait for its state
    (name, executor, False, False, True)
    for row, name in enumerate(["list", "random access", "some", "window"])
    for column, executor in enumerate(EXECUTORS)
    if IS_DEEP or (row + column) % 2 == 0
]


@pytest.mark.parametrize(("name", "executor", "is_close", "lines", "with_state"), SWEEPS)
def test_at_every_point(
    name: str, executor: str, is_close: bool, lines: bool, with_state: bool
) -> None:
    """After each interrupt the state is after the loop's last item, and the others still come."""
    tried(goes_on, name, executor, is_close=is_close, lines=lines, with_state=with_state)


def items_of(run: lz.Run[Any], with_state: bool) -> Iterator[Any]:
    return iter(run.with_state() if with_state else run)


def goes_on(
    numbers: range,
    pipeline: lz.Pipeline[Any],
    executor: lz.Executor | None,
    is_close: bool,
    lines: bool,
    with_state: bool,
) -> None:
    expected = [*map(plain, items_of(lz.run(pipeline), with_state))]
    for number in numbers:
        run, found = lz.run(pipeline, executor=executor), list[Any]()
        at = At(number, run.close if is_close else interrupt, lines=lines)
        try:
            with at:
                for item in items_of(run, with_state):
                    found.append(plain(item))
        except Interrupt:
            pass
        except lz.PipelineError as error:
            assert "the run is closed" in str(error)  # noqa: PT017  # before the loop began
            assert not found
        if not at.has_come:
            run.close()
            assert number > 40
            return
        state = run.state
        assert state.items == len(found), number
        assert found == expected[: len(found)], number
        with run:
            found.extend(map(plain, items_of(run, with_state)))
        assert found == expected, number
        assert run.state.items == len(expected), number
        rest = items_of(lz.run(pipeline, state), with_state)
        assert [*map(plain, rest)] == expected[state.items :]


def test_what_is_held_back_for_a_start_goes_on_after_an_interrupt() -> None:
    """Otherwise nothing could be interrupted any more."""
    for number in count(1):
        at = At(number, interrupt, lines=True)
        with suppress(Interrupt), at, without_interrupts():
            pass
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        if not at.has_come:
            assert number > 5
            return


def slow(x: int) -> int:
    sleep(0.4)
    return x


def test_a_run_that_is_closed_while_it_waits_for_a_slow_item_ends() -> None:
    """It then looks whether the worker is alive, which it isn't after the close."""
    pipeline = lz.source([1]) | lz.map(slow)
    for number in range(1, 60, 1 if IS_DEEP else 4):
        with lz.run(pipeline, executor=lz.processes()) as run, At(number, run.close, after=0.2):
            assert [*run] in ([], [1])


FILLED = {
    "paused": lz.threads(),
    "threads": lz.threads(2, gated=True, buffer_size=6),
    "processes": lz.processes(2, gated=True, buffer_size=6),
}


@pytest.mark.parametrize("executor", FILLED)
@pytest.mark.parametrize("name", ["random access", "some"])
def test_an_interrupt_while_the_buffer_is_filled_loses_nothing(name: str, executor: str) -> None:
    pipeline = PIPELINES[name]
    expected = [*pipeline]
    step = 97 if executor == "processes" else 5 if IS_BRIEF else 3
    for number in range(1, 1 << 30, 1 if IS_DEEP else step):
        with lz.run(pipeline, executor=FILLED[executor]) as run:
            found = [next(run)]
            if executor == "paused":
                run.pause()
            with suppress(Interrupt), At(number, interrupt, lines=True) as at:
                run.unpause()
            assert [*found, *run] == expected, number
        if not at.has_come:
            assert number > 20
            return

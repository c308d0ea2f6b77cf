"""Functions that misbehave in workers, and executors to try them under."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.executors.executor import Executor
from lazyckpt.testing.laws import Stream
from tests.helpers import until

SOON = 9.0  # seconds, for what takes less than one where there is nothing else to do

THREADS = {"threads": lz.threads(), "threads2": lz.threads(2)}
FORKED = {
    f"fork{n}": lz.processes(n, start_method="fork", buffer_size=4, timeout=60) for n in (1, 2)
}
OTHERS = {name: lz.processes(2, start_method=name) for name in ("forkserver", "spawn")}
QUICK = THREADS | FORKED
EVERY = QUICK | OTHERS
PROCESSES = FORKED | OTHERS


def each(executors: dict[str, Executor]) -> Any:
    return pytest.mark.parametrize("executor", executors.values(), ids=executors.keys())


class Sorry(Exception):
    pass


class Fault:
    """The identity, but at one item it does something first, while the flag exists."""

    def __init__(self, flag: Path, at: int, what: Callable[[Path], Any]) -> None:
        self.flag, self.at, self.what = flag, at, what

    def __call__(self, item: int) -> Any:
        if item == self.at and self.flag.exists():
            found = self.what(self.flag)
            return item if found is None else found
        return item


def wait(flag: Path) -> None:
    """Take long: until the flag is gone."""
    until(lambda: not flag.exists(), 60)


def kill(flag: Path) -> None:
    flag.unlink()
    os.kill(os.getpid(), signal.SIGKILL)


def keep(item: Any) -> bool:
    return True


def seekable(fn: Callable[[int], Any], n: int = 9) -> lz.Pipeline[Any]:
    return lz.source(range(n)) | lz.map(fn)


def before_a_stream(fn: Callable[[int], Any], n: int = 9) -> lz.Pipeline[Any]:
    return lz.source(range(n)) | lz.map(fn) | lz.filter(keep)


def after_a_stream(fn: Callable[[int], Any], n: int = 9) -> lz.Pipeline[Any]:
    return lz.source(Stream(range(n))) | lz.map(fn)


def in_a_stream(fn: Callable[[int], Any], n: int = 9) -> lz.Pipeline[Any]:
    return lz.source(Stream(range(n))) | lz.filter(keep) | lz.map(fn) | lz.filter(keep)


SHAPES = [seekable, before_a_stream, after_a_stream, in_a_stream]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)


def fails(run: lz.Run[Any], found: list[Any], kind: Any, match: str | None = None) -> BaseException:
    """Iterate, keeping what comes, up to an error: soon, and with a state that is good."""
    with pytest.raises(kind, match=match) as caught:
        found.extend(run)
    assert run.state.items == len(found)
    return caught.value


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))


class Odds:
    """A stream with an item that can't go to a worker."""

    def __init__(self, flag: Path, gives: Callable[[Path], Any]) -> None:
        self.fault = Fault(flag, 50, gives)

    def __iter__(self) -> Iterator[Any]:
        return map(self.fault, range(100))


def script(folder: Path, text: str, code: int = 0, error: str = "") -> str:
    """What a script prints that ends soon with that code, and nothing else on stderr."""
    path = folder / "script.py"
    path.write_text(text)
    begun = monotonic()
    done = subprocess.run(
        [sys.executable, "-W", "error", path], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr.strip().rpartition("\n")[2]) == (code, error), done.stderr
    if not error:
        assert done.stderr == ""
    assert monotonic() - begun < 2 * SOON
    return done.stdout

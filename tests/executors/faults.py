"""Functions that misbehave in workers, and executors to try them under."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import lazyckpt as lz
from lazyckpt.testing.laws import Stream
from tests.helpers import HANGS, until

SOON = HANGS  # seconds, for actions that take less than one on an idle machine
LONG = 4 * SOON  # seconds, for actions that nothing waits for
LATE = 3.0  # seconds that an item may take if one hangs: no machine is so busy

THREADS = {"threads": lz.threads(), "threads2": lz.threads(2)}
SERVED = {f"processes{n}": lz.processes(n, buffer_size=4, timeout=60) for n in (1, 2)}
OTHERS = {name: lz.processes(2, start_method=name) for name in ("fork", "spawn")}
QUICK = THREADS | SERVED
EVERY = QUICK | OTHERS
PROCESSES = SERVED | OTHERS
INLINE: dict[str, lz.Executor] = {"inline": lz.inline()}
HUNG: dict[str, lz.Executor] = {
    "threads": lz.threads(timeout=LATE),
    "threads2": lz.threads(2, timeout=LATE),
    "processes": lz.processes(timeout=LATE),
    "processes2": lz.processes(2, timeout=LATE),
}


def each(executors: dict[str, lz.Executor]) -> Any:
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
    until(lambda: not flag.exists(), LONG)


def kill(flag: Path) -> None:
    flag.unlink()
    os.kill(os.getpid(), signal.SIGKILL)


def little_memory(index: int) -> None:
    """A `worker_init`: with 256 MiB more the worker has all that it may."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28), most))


LITTLE = {f"little{n}": lz.processes(n, worker_init=little_memory) for n in (1, 2)}


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


def chosen(fn: Callable[[int], Any], n: int = 9) -> lz.Pipeline[Any]:
    selector = lz.source(Stream([x * x % 7 % 2 for x in range(n)]))
    return lz.case(selector, *[lz.source(range(n)) | lz.map(fn)] * 2)


SHAPES = [seekable, before_a_stream, after_a_stream, in_a_stream]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)


def of_each(executors: dict[str, lz.Executor], shift: int = 0) -> Any:
    """Each executor with one of the shapes."""
    found = [
        pytest.param(executor, SHAPES[(number + shift) % len(SHAPES)], id=name)
        for number, (name, executor) in enumerate(executors.items())
    ]
    return pytest.mark.parametrize(("executor", "shape"), found)


def every_other(rows: Iterable[Any], columns: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Each with about half of the others."""
    pairs = product(enumerate(rows), enumerate(columns))
    return [(row, column) for (n, row), (k, column) in pairs if (n + k) % 2 == 0]


def fails(run: lz.Run[Any], found: list[Any], kind: Any, match: str | None = None) -> BaseException:
    """Iterate and keep the items, up to an error: soon, and with a good state."""
    with pytest.raises(kind, match=match) as caught:
        found.extend(run)
    assert run.state.items == len(found)
    return caught.value


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))


def replayed(pipeline: Any, error: BaseException) -> Any:
    """The item that the error's note tells how to make again."""
    _, _, text = notes(error).partition("lz.replay(pipeline, state) recomputes it; state = '")
    return lz.replay(pipeline, json.loads(text.partition("'")[0]))


class Odds:
    """A stream with an item that can't go to a worker."""

    def __init__(self, flag: Path, gives: Callable[[Path], Any]) -> None:
        self.fault = Fault(flag, 50, gives)

    def __iter__(self) -> Iterator[Any]:
        return map(self.fault, range(100))


def script(folder: Path, text: str, code: int = 0, error: str = "") -> str:
    """The output of a script that ends soon with that code, and prints nothing else on stderr."""
    path = folder / "script.py"
    path.write_text(text)
    command = [sys.executable, "-W", "error", path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * SOON)
    assert (done.returncode, done.stderr.strip().rpartition("\n")[2]) == (code, error), done.stderr
    if not error:
        assert done.stderr == ""
    return done.stdout


# Errors that end things, or can't have notes.


class Raised:
    """Raises an error."""

    def __init__(self, kind: type[BaseException], *args: Any) -> None:
        self.kind, self.args, self.__name__ = kind, args, kind.__name__

    def __call__(self, flag: Path) -> None:
        raise self.kind(*[each() if callable(each) else each for each in self.args])


def apologise(flag: Path) -> None:
    raise Sorry("at the item", 5)


def stop_iteration(flag: Path) -> None:
    next(iter(()))


@dataclass(frozen=True)
class Frozen(Exception):
    """No attribute can be set: no note, no traceback."""

    what: str
    count: int


@dataclass
class Unhashable(Exception):
    what: str


def much_memory(flag: Path) -> Any:
    return bytearray(1 << 30)


# Errors that no pipe can carry as they are.


class Needs(Exception):
    """Its own `__init__` wants what its args don't have."""

    def __init__(self, what: str, count: int) -> None:
        super().__init__(f"{count} of {what}")
        self.what = what


class Doubles(Exception):
    """Unpickles, but to something else."""

    def __init__(self, what: str) -> None:
        super().__init__(f"no {what}")


class Unsendable(Exception):
    def __reduce__(self) -> Any:
        raise RuntimeError("not me")


class Unreceivable(Exception):
    def __reduce__(self) -> Any:
        return refuse, ()


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Locked(Exception):
    """An attribute of it can't be pickled."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what, self.lock = what, threading.Lock()


def refuse() -> None:
    raise Sorry("it can't be unpickled")


def refuse_elsewhere(pid: int) -> Exception:
    if os.getpid() != pid:
        refuse()
    return ValueError("here it can")


class Domestic(Exception):
    """Unpickles in its own process alone."""

    def __reduce__(self) -> Any:
        return refuse_elsewhere, (os.getpid(),)


def raise_local(flag: Path) -> None:
    class Local(Exception):
        pass

    raise Local("bread")


# Items that can't cross, and say why in their own way.


class Odd:
    def __init__(self, error: type[Exception], on_arrival: bool) -> None:
        self.error, self.on_arrival = error, on_arrival

    def __reduce__(self) -> Any:
        if not self.on_arrival:
            raise self.error("not this item")
        return arrive, (self.error,)


def arrive(error: type[Exception]) -> None:
    raise error("not this item")


def lock(flag: Path) -> Any:
    return threading.Lock()


def unsendable(flag: Path) -> Any:
    return Odd(Sorry, False)


def unsendable_like_a_pipe(flag: Path) -> Any:
    return Odd(BrokenPipeError, False)


def unreceivable(flag: Path) -> Any:
    return Odd(Sorry, True)


def unreceivable_like_a_pipe(flag: Path) -> Any:
    return Odd(EOFError, True)


_opened: list[Any] = []  # so that nothing is told of files left open


def opened(flag: Path) -> Any:
    _opened.append(flag.open())
    return _opened[-1]


def view(flag: Path) -> Any:
    return memoryview(b"bread")


# Workers that die or hang, each but once.


def leave(flag: Path) -> None:
    flag.unlink()
    os._exit(3)


def realtime(flag: Path) -> None:
    flag.unlink()
    os.kill(os.getpid(), signal.SIGRTMIN + 1)


def leave_an_heir(flag: Path) -> None:
    """Die, while a process forked here holds the pipe open."""
    flag.unlink()
    if not os.fork():
        try:
            until(flag.exists)
        finally:
            os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


class Told(NamedTuple):
    """How a fault is reported."""

    kind: type[BaseException]
    says: str | None = None
    executors: dict[str, lz.Executor] = INLINE | EVERY
    note: str = r"in map\(<"
    is_once: bool = False


ERRORS: dict[Callable[[Path], Any], Told] = {
    apologise: Told(Sorry, "at the item"),
    stop_iteration: Told(lz.PipelineError, "which doesn't end", INLINE | QUICK),
    Raised(GeneratorExit): Told(lz.PipelineError, "which doesn't end", INLINE | QUICK),
    Raised(SystemExit, 3): Told(SystemExit, "3", INLINE | QUICK, ""),
    Raised(KeyboardInterrupt): Told(KeyboardInterrupt, None, INLINE | QUICK, ""),
    much_memory: Told(MemoryError, None, LITTLE),
    Raised(Frozen, "bread", 3): Told(Frozen, "bread", INLINE | QUICK),
    Raised(Unhashable, "bread"): Told(Unhashable, "bread", INLINE | QUICK),
    Raised(Needs, "bread", 3): Told(Needs, "3 of bread", SERVED),
    Raised(Doubles, "bread"): Told(Doubles, "no bread", SERVED),
    Raised(Sorry, threading.Lock): Told(lz.PipelineError, "can't be pickled.*Sorry", SERVED),
    raise_local: Told(Exception, "bread", SERVED),
    Raised(Unsendable, "bread"): Told(Unsendable, "bread", SERVED),
    Raised(Unreceivable, "bread"): Told(Unreceivable, "bread", SERVED),
    Raised(Speechless): Told(Speechless, None, SERVED),
    Raised(Locked, "bread"): Told(Locked, "bread", SERVED),
    Raised(ExceptionGroup, "bread", lambda: [ValueError(1), Needs("butter", 2)]): Told(
        ExceptionGroup, "bread", SERVED
    ),
    Raised(Domestic): Told(Exception, None, SERVED),
}
CROSSING = "can't leave its process|unpickled"
ITEMS: dict[Callable[[Path], Any], Told] = {
    opened: Told(TypeError, None, SERVED, CROSSING),
    view: Told(TypeError, None, SERVED, CROSSING),
    lock: Told(TypeError, None, SERVED, CROSSING),
    unsendable: Told(Sorry, None, SERVED, CROSSING),
    unsendable_like_a_pipe: Told(BrokenPipeError, None, SERVED, CROSSING),
    unreceivable: Told(Sorry, None, SERVED, CROSSING),
    unreceivable_like_a_pipe: Told(EOFError, None, SERVED, CROSSING),
}
LATER = "delivered items"  # a worker may have died of any stage
LOSSES: dict[Callable[[Path], Any], Told] = {
    kill: Told(lz.WorkerDied, "was ended by SIGKILL", PROCESSES, LATER, is_once=True),
    leave: Told(lz.WorkerDied, "ended with exit code 3", SERVED, LATER, is_once=True),
    realtime: Told(lz.WorkerDied, "ended by (signal 3|SIGRTMIN)", SERVED, LATER, is_once=True),
    leave_an_heir: Told(lz.WorkerDied, "was ended by SIGKILL", SERVED, LATER, is_once=True),
    wait: Told(lz.WorkerTimeout, f"within {LATE} s", HUNG, LATER, is_once=True),
}

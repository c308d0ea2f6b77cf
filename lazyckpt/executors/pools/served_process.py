"""The consumer's side of worker processes that a server starts."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from time import monotonic
from typing import NamedTuple

from lazyckpt.executors.ipc.surroundings import were_reloaded

FORK, SPAWN = b"fs"  # requests
STARTED, ENDED = range(2)  # what the server says: the process ID, the exit code
NEWS = struct.Struct("=qq")
_SERVER = "lazyckpt.executors.pools.start_server"
_FLAGS = {
    "isolated": "I",
    "ignore_environment": "E",
    "no_user_site": "s",
    "no_site": "S",
    "dont_write_bytecode": "B",
    "optimize": "O",
}


class Files(NamedTuple):
    """The file descriptors of a worker.

    Attributes:
        pipe: Socket for tasks and outcomes.
        status: Socket that tells the consumer of the process, and the worker of the consumer.
        cells: Memory for the worker's progress.
        content: Memory with the handlers, see `SharedPickle`.
        output: Its standard output.
        errors: Its standard error.
        server: Socket for requests to the server, if it needs workers itself.
    """

    pipe: int
    status: int
    cells: int
    content: int
    output: int
    errors: int
    server: int


def spawn(function: str, files: Sequence[int]) -> int:
    """Call a function of the server's module in a new interpreter; return its process ID.

    It has these files; its input and output are empty, and Ctrl-C is blocked in it.
    """
    for file in files:
        os.set_inheritable(file, True)
    nowhere = [(os.POSIX_SPAWN_OPEN, each, os.devnull, os.O_RDWR, 0) for each in (0, 1)]
    command = _command(function, files)
    return os.posix_spawn(
        command[0], command, os.environ, file_actions=nowhere, setsigmask=[signal.SIGINT]
    )


def _command(function: str, files: Sequence[int]) -> list[str]:
    flags = [
        f"-{letter * getattr(sys.flags, name)}"
        for name, letter in _FLAGS.items()
        if getattr(sys.flags, name)
    ]
    flags += [f"-W{each}" for each in sys.warnoptions]
    flags += [f"-X{k}" if v is True else f"-X{k}={v}" for k, v in sys._xoptions.items()]
    path = [os.fspath(each) for each in sys.path]
    begin = f"import sys; sys.path[:] = {path!r}; from {_SERVER} import {function}"
    return [sys.executable, *flags, "-c", f"{begin}; {function}({files})"]


class _Server:
    """A server, for the processes that send requests to it.

    Args:
        control: Socket for requests.
        pid: Its process ID, if this process has started it.
    """

    def __init__(self, control: socket.socket, pid: int | None) -> None:
        self.control, self._pid = control, pid

    def ask(self, request: bytes, files: list[int]) -> None:
        socket.send_fds(self.control, [request], [*files, self.control.fileno()])

    def stop(self) -> None:
        self.control.close()
        if self._pid is not None:
            with suppress(ProcessLookupError, ChildProcessError):  # it was reaped elsewhere
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)


_servers: list[_Server] = []  # at most one per process
_hanging: list[_Server] = []  # servers in which a module that they import hangs
_lock = threading.RLock()  # a signal handler may start workers too


def _forget() -> None:
    global _lock
    _lock = threading.RLock()
    for server in [*_servers, *_hanging]:
        server.control.close()
    _servers.clear()
    _hanging.clear()


os.register_at_fork(after_in_child=_forget)


def ensure_server() -> None:
    """Start the server, if there is none, or one whose modules were reloaded here since."""
    with _lock:
        if were_reloaded() and _servers:
            _leave(_servers[0])
        if not _servers:
            _start_server()


def _start_server() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        _servers.append(_Server(ours, spawn("start_workers", [theirs.fileno()])))


def adopt_server(control: int) -> None:
    """Use the server that has started this process."""
    _servers.append(_Server(socket.socket(fileno=control), None))


def stop_servers() -> None:
    """Stop the server of this process, if there is one, and those that hang."""
    _stop(_servers)
    _stop(_hanging)


def _stop(servers: list[_Server]) -> None:
    while servers:
        servers.pop().stop()


def _leave(server: _Server) -> None:
    """Let the next process start from a new server. Its workers continue."""
    with _lock:
        if server in _servers:
            _hanging.append(server)
            _servers.remove(server)


class ServedProcess:
    """A process that the server starts, with the methods of multiprocessing's processes.

    Args:
        name: Its name.
        method: "forkserver" or "spawn".
        files: The file descriptors of its pipe, its progress and its handlers.
    """

    def __init__(self, name: str, method: str, files: Sequence[int]) -> None:
        self.name = name
        self._request = bytes([SPAWN if method == "spawn" else FORK])
        self._files = files
        self._news: dict[int, int] = {}  # from the server

    def start(self) -> None:
        self._status, theirs = socket.socketpair()
        pipe, *memory = self._files
        with theirs:
            files = [pipe, theirs.fileno(), *memory, _standard(1), _standard(2)]
            self._server = _ask(self._request, files)

    @property
    def pid(self) -> int | None:
        """Its process ID, once it has started."""
        self._wait(0)
        return self._news.get(STARTED)

    @property
    def exitcode(self) -> int | None:
        """Its exit code, in the form of multiprocessing; None if unknown."""
        self._wait(0)
        return self._news.get(ENDED)

    @property
    def start_error(self) -> str:
        """The operating system's error of starting it; empty if there was none."""
        number = self.pid
        return os.strerror(-number) if number is not None and number < 0 else ""

    def is_alive(self) -> bool:
        return not self._wait(0)

    def join(self, timeout: float | None = None) -> None:
        self._wait(timeout)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        if self.is_alive() and self.pid is None:  # the server has not come to it
            _leave(self._server)
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        """Stop watching it."""
        self._status.close()

    def _signal(self, number: int) -> None:
        if self.is_alive() and (pid := self.pid) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _wait(self, seconds: float | None) -> bool:
        """Wait until it has ended; return whether it has."""
        deadline = None if seconds is None else monotonic() + seconds
        while (number := self._status.fileno()) >= 0:  # until a signal handler closes it
            poller = select.poll()
            poller.register(number, select.POLLIN)
            left = None if deadline is None else 1000 * max(0.0, deadline - monotonic())
            if not poller.poll(left):
                return False
            news = b""
            with suppress(OSError):
                news = self._status.recv(2 * NEWS.size)
            self._news.update(NEWS.iter_unpack(news))
            if not news or ENDED in self._news:
                self._status.close()
        return True


def _ask(request: bytes, files: list[int]) -> _Server:
    """Send a request to the server, or to a new one if there is none or it has died; return it."""
    with _lock:
        if not _servers:
            _start_server()
        try:
            _servers[0].ask(request, files)
        except (BrokenPipeError, ConnectionResetError):
            _stop(_servers)
            _start_server()
            _servers[0].ask(request, files)
        return _servers[0]


def _standard(file: int) -> int:
    """Return a standard stream's file descriptor, if that is open."""
    try:
        os.fstat(file)
    except OSError:
        return _null()
    return file


@cache
def _null() -> int:
    return os.open(os.devnull, os.O_RDWR)

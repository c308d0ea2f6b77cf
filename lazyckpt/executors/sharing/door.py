"""A listener that proves callers before it hands their connections on."""

from __future__ import annotations

import socket
import threading
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep
from typing import Any
from weakref import finalize

from lazyckpt.errors import PipelineError
from lazyckpt.executors.sharing.wire import ours, prove, read_json

_AGAIN = 0.25  # seconds until the next attempt, if too many files are open
_STOPPED = 2.0  # seconds between two looks at the clock that show that this process was stopped


class Door:
    """Listens at an address. Each caller has its own thread, because strangers may send nothing.

    Attributes:
        port: The port where it listens.
        is_closed: If True, it accepts no more connections.
    """

    def __init__(
        self, host: str, secret: bytes, patience: float, enter: Callable[[socket.socket, Any], None]
    ) -> None:
        """Start to listen.

        Args:
            host: The host of the address.
            secret: Bytes that only permitted callers know.
            patience: Seconds to wait for a caller.
            enter: Function that takes a proved connection and the first value that came from it.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server = socket.create_server((host, 0), family=family, backlog=socket.SOMAXCONN)
        self._listener = ours(server)
        self.port: int = server.getsockname()[1]
        self.is_closed = False
        self._secret, self._patience, self._enter = secret, patience, enter
        self._outside = set[socket.socket]()  # callers that haven't proved it yet
        begin(self._accept)

    def close(self) -> None:
        """Accept no more connections. Idempotent."""
        self.is_closed = True
        for sock in (self._listener, *self._outside):  # the threads that use them close them
            hang_up(sock)

    def _accept(self) -> None:
        with self._listener:
            while not self.is_closed:
                try:
                    caller = ours(self._listener.accept()[0])
                except OSError:  # closed; or too many files are open, or the caller is gone
                    if not self.is_closed:
                        sleep(_AGAIN)
                    continue
                try:
                    begin(self._greet, caller)
                except RuntimeError:
                    if threading.main_thread().is_alive():  # the limit of threads
                        caller.close()
                    else:  # the interpreter ends
                        self._greet(caller)

    def _greet(self, caller: socket.socket) -> None:
        try:
            caller.settimeout(self._patience)
            self._outside.add(caller)
            try:
                if self.is_closed:
                    raise ConnectionAbortedError
                prove(caller, self._secret, calls=False)
                said = read_json(caller)
            finally:
                self._outside.discard(caller)
            self._enter(caller, said)
        except (OSError, ValueError, PipelineError):  # a stranger, or lost: its own side knows
            caller.close()


class Countdown:
    """A time limit. It doesn't run while this process is stopped, for example by SIGSTOP."""

    def __init__(self, seconds: float) -> None:
        self._left, self._seen = seconds, monotonic()

    def left(self) -> float:
        """Return the seconds left, at least 0. To be asked every second, or more often."""
        now = monotonic()
        if now - self._seen < _STOPPED:
            self._left -= now - self._seen
        self._seen = now
        return max(0.0, self._left)


def close_with(owner: object, close: Callable[[], None]) -> None:
    """Close something once an object is gone."""
    # In a thread, as a signal that came while Python code runs in a finalizer would be lost.
    finalize(owner, start_new_thread, close, ()).atexit = False


def hang_up(sock: socket.socket) -> None:
    """End a connection; a thread that waits for it gets an error."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def begin(work: Callable[..., None], *args: Any) -> None:
    """Call a function in a thread of its own."""
    threading.Thread(target=work, args=args, name="lazyckpt-meeting", daemon=True).start()

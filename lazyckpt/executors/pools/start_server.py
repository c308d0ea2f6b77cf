"""A server that starts worker processes. It is a new interpreter with the modules that they need.

The server forks workers, so they start within milliseconds. They start clean, because the server
has a single thread and none of the consumer's locks and open files. `served_process` is the
consumer's side.

A request is one byte and the file descriptors of the worker. The server replies through the
worker's `status` socket: first with the process ID, later with the exit code.
"""

from __future__ import annotations

import errno
import gc
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from mmap import mmap

from lazyckpt.executors.ipc.shared_pickle import shared_content, shared_surroundings
from lazyckpt.executors.pools.served_process import (
    ENDED,
    FORK,
    NEWS,
    STARTED,
    Files,
    adopt_server,
    spawn,
)
from lazyckpt.executors.pools.start_method import count_threads
from lazyckpt.executors.pools.worker_main import has_threadpoolctl, serve


def start_workers(control: Sequence[int]) -> None:
    """Start workers until the consumer is gone."""
    _ignore_interrupts()
    if has_threadpoolctl():
        import_module("threadpoolctl")
    requests = socket.socket(fileno=control[0])
    woken, waker = socket.socketpair()
    woken.setblocking(False)
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with requests, woken, waker:
        _serve_requests(requests, woken)
        signal.set_wakeup_fd(-1)


def _serve_requests(requests: socket.socket, woken: socket.socket) -> None:
    workers: dict[int, int] = {}  # their status sockets
    can_fork = True
    poller = select.poll()
    for each in (requests, woken):
        poller.register(each, select.POLLIN)
    while True:
        ready = {number for number, _ in poller.poll()}
        if woken.fileno() in ready:
            with suppress(BlockingIOError):
                woken.recv(1 << 12)
            _reap(workers)
        if requests.fileno() not in ready:
            continue
        kind, descriptors, _, _ = socket.recv_fds(requests, 1, len(Files._fields))
        if not kind:
            return
        if len(descriptors) < len(Files._fields):  # the limit of open files
            for status in descriptors[1:2]:
                _tell(status, STARTED, -errno.EMFILE)
            _close(descriptors)
            continue
        files = Files(*descriptors)
        try:
            found = shared_surroundings(files.content)
            found.enter()
            if found.import_modules():
                can_fork = False  # also if the next line fails
                can_fork = not _has_threads()
            if kind[0] == FORK and can_fork:
                gc.freeze()  # workers share its memory, and don't search it for garbage
                number = os.fork()
                if not number:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    _close([requests.detach(), woken.detach(), *workers.values()])
                    _work(files)
            else:
                number = spawn("work_alone", [*files])
        except OSError as error:
            number = -(error.errno or 1)
        _tell(files.status, STARTED, number)
        if number > 0:
            workers[number] = files.status
        _close(file for file in files if file != workers.get(number))


def _has_threads() -> bool:
    """Return whether modules have started threads that keep running during a fork."""
    number = os.fork()
    if not number:
        os._exit(0)
    found = count_threads() > 1
    os.waitpid(number, 0)
    return found


def work_alone(files: Sequence[int]) -> None:
    """Run a worker in this process, which was spawned for it."""
    _ignore_interrupts()
    shared_surroundings(Files(*files).content).enter()
    _work(Files(*files))


def _work(files: Files) -> None:
    """Run a worker, then end this process."""
    code = 1
    try:
        os.dup2(files.output, 1)
        os.dup2(files.errors, 2)
        adopt_server(files.server)
        pipe = socket.socket(fileno=files.pipe)
        content = partial(shared_content, files.content)
        serve(pipe, mmap(files.cells, 0), content, files.status)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(code)


def _reap(workers: dict[int, int]) -> None:
    """Send the exit codes of workers that have ended."""
    for number in list(workers):
        ended, status = os.waitpid(number, os.WNOHANG)
        if ended:
            _tell(workers[number], ENDED, os.waitstatus_to_exitcode(status))
            os.close(workers.pop(number))


def _tell(status: int, kind: int, number: int) -> None:
    with suppress(OSError):  # the consumer has hung up
        os.write(status, NEWS.pack(kind, number))


def _close(files: Iterable[int]) -> None:
    for file in files:
        os.close(file)


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the consumer. Not by SIG_IGN, which workers' programs would inherit."""
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

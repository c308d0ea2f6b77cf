"""W5a: arrays of 1 MB from one process, against a ring in shared memory as one writes it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import partial
from mmap import mmap
from multiprocessing import get_context
from time import thread_time
from typing import Any

import numpy as np
from harness import Row, compared, spent
from numpy.typing import NDArray

from lazyckpt.executors.ipc.transport import Receiver, Sender

N = 2_000
SIZE = 1_000_000
SLOTS = 8
FEW = 20_000  # small messages
fork = get_context("fork")


def transport(rounds: int) -> Iterator[Row]:
    """Large arrays, small messages, and what the consumer's own thread does."""
    what = "2,000 arrays of 1 MB"
    yield compared("W5a", f"{what} / a ring of 8 slots by hand", ours, by_hand, rounds, N, 1.3)
    tensors = partial(ours, as_tensor)
    yield compared("W5a", f"{what} as torch tensors / the same ring", tensors, by_hand, rounds, N)
    piped = partial(ours, shared=False)
    yield compared("W5a", f"{what} by pipe / the same ring", piped, by_hand, rounds, N)
    yield compared("W5a", f"{what} by Connection.send / the same ring", sent, by_hand, rounds, N)
    yield compared(
        "W5a", "lists of 256 ints / send_bytes(dumps(list))", small, dumped, rounds, FEW, 1.2
    )
    beyond = [(receiving() - copying()) * 1e6 for _ in range(rounds)]
    yield Row("W5a", "consumer's CPU time for 1 MB, less that of a copy", beyond, "µs", 100)


def arrays() -> list[NDArray[np.uint8]]:
    """More than a processor's cache for one core holds, as fresh ones would be."""
    return [np.random.default_rng(i).integers(0, 256, SIZE, np.uint8) for i in range(16)]


def array() -> NDArray[np.uint8]:
    return arrays()[0]


def as_tensor(array: NDArray[np.uint8]) -> Any:
    import torch

    return torch.from_numpy(array)


def worker(target: Callable[[], None]) -> Any:
    process = fork.Process(target=target, daemon=True)
    process.start()
    return process


def ours(make: Callable[[Any], Any] = lambda array: array, shared: bool = True) -> None:
    here, there = fork.Pipe()
    free = fork.Semaphore(SLOTS)  # stands for what bounds messages in flight

    def work() -> None:
        items = [make(array) for array in arrays()]
        sender = Sender(there, slots=SLOTS, shared=shared)
        for i in range(N):
            free.acquire()
            sender.send(items[i % 16])

    process = worker(work)
    there.close()
    receiver = Receiver(here)
    for _ in range(N):
        _ = receiver.receive().open()
        free.release()
    receiver.close()
    process.join()


def by_hand() -> None:
    spent(ring())


def ring(n: int = N) -> Iterator[NDArray[np.uint8]]:
    ring = mmap(-1, SLOTS * SIZE)
    free, full = fork.Semaphore(SLOTS), fork.Semaphore(0)
    slots = np.frombuffer(ring, np.uint8).reshape(SLOTS, SIZE)

    def work() -> None:
        items = arrays()
        for i in range(n):
            free.acquire()
            slots[i % SLOTS] = items[i % 16]
            full.release()

    process = worker(work)
    for i in range(n):
        full.acquire()
        array = slots[i % SLOTS].copy()
        free.release()
        yield array
    process.join()


def sent() -> None:
    here, there = fork.Pipe()

    def work() -> None:
        item = array()
        for _ in range(N):
            there.send(item)

    process = worker(work)
    there.close()
    for _ in range(N):
        _ = here.recv()
    process.join()


def small() -> None:
    here, there = fork.Pipe()
    items = list(range(256))

    def work() -> None:
        sender = Sender(there, slots=SLOTS)
        for _ in range(FEW):
            sender.send(items)

    process = worker(work)
    there.close()
    receiver = Receiver(here)
    for _ in range(FEW):
        _ = receiver.receive().open()
    process.join()


def dumped() -> None:
    here, there = fork.Pipe()
    items = list(range(256))

    def work() -> None:
        for _ in range(FEW):
            there.send_bytes(pickle.dumps(items))

    process = worker(work)
    there.close()
    for _ in range(FEW):
        _ = pickle.loads(here.recv_bytes())
    process.join()


def receiving() -> float:
    """Seconds of CPU time of the consumer's thread for each message."""
    begun = thread_time()
    ours()
    return (thread_time() - begun) / N


def copying() -> float:
    """Seconds for each copy of as many bytes out of shared memory."""
    slots = np.frombuffer(mmap(-1, SLOTS * SIZE), np.uint8).reshape(SLOTS, SIZE)
    slots[:] = array()
    begun = thread_time()
    for i in range(N):
        _ = slots[i % SLOTS].copy()
    return (thread_time() - begun) / N

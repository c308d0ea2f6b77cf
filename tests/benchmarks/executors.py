"""Executors beside what one writes by hand: small items, heavy ones, and the first one."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import Any

import numpy as np
from harness import Action, Row, compared, seconds, spent
from numpy.typing import NDArray
from transport import N as LARGE
from transport import arrays, by_hand

import lazyckpt as lz

N = 200_000
MESSAGE = 256  # items
HEAVY = 1_000
WORK = 28_000  # turns of a loop that take about a millisecond


def w5i(rounds: int) -> Iterator[Row]:
    """Workers are started and ended within what is timed, on both sides, here and below."""
    ours = walk(lz.source(range(N)), lz.processes())
    what = f"processes(1), ints / pipe, {MESSAGE} a message"
    yield compared("W5i", what, ours, lambda: each(piped()), rounds, N, 1.1)


def w5t(rounds: int) -> Iterator[Row]:
    ours = walk(lz.source(range(N)), lz.threads())
    what = f"threads(1), ints / SimpleQueue of {MESSAGE}"
    yield compared("W5t", what, ours, lambda: each(queued()), rounds, N, 1.5)


def w5a(rounds: int) -> Iterator[Row]:
    large = lz.source(range(LARGE)) | lz.map(one)
    for workers, buffer_size in ((1, 1), (1, 2), (1, 8), (1, 32), (2, 2), (2, 32)):
        executor = lz.processes(workers, buffer_size=buffer_size)
        versus = f"processes({workers}, buffer_size={buffer_size}), 1 MB arrays / a ring of 8 slots"
        yield compared("W5a", versus, walk(large, executor), by_hand, rounds, LARGE, 1.3)


def w6(rounds: int) -> Iterator[Row]:
    few = max(1, rounds // 3)
    heavy = lz.source(range(HEAVY)) | lz.map(busy)
    both = walk(heavy, lz.processes(2))
    yield compared(
        "W6", "processes(2), 1 ms an item / pool.map(chunksize=16)", both, pooled, few, HEAVY, 1.0
    )
    yield compared("W6", "processes(2) / inline", both, walk(heavy, None), few, HEAVY)


def first_items(rounds: int) -> Iterator[Row]:
    for method in multiprocessing.get_all_start_methods():
        executor = lz.processes(2, start_method=method)
        times = [seconds(lambda e=executor: first(e)) * 1e3 for _ in range(rounds)]
        bound = 150.0 if method != "spawn" else None
        yield Row("W7", f"first item from processes(2), {method}, and its end", times, "ms", bound)


def walk(pipeline: lz.Pipeline[Any], executor: lz.Executor | None) -> Action:
    def walked() -> None:
        nothing_made()
        with lz.run(pipeline, executor=executor) as run:
            spent(run)

    return walked


def first(executor: lz.Executor) -> None:
    with lz.run(lz.source(range(10)) | lz.map(abs), executor=executor) as run:
        next(run)


def busy(x: int) -> int:
    for y in range(WORK):
        x += y & 1
    return x


made: list[NDArray[np.uint8]] = []


def one(i: int) -> NDArray[np.uint8]:
    if not made:
        made.extend(arrays())
    return made[i % 16]


def nothing_made(worker: int = 0) -> None:
    """Have each run make its arrays, in whichever process, as the ring does."""
    made.clear()


def pooled() -> None:
    with ProcessPoolExecutor(2) as pool:
        spent(pool.map(busy, range(HEAVY), chunksize=16))


def each(messages: Iterator[list[int]]) -> None:
    for message in messages:
        spent(message)


def messages(n: int) -> Iterator[list[int]]:
    for begin in range(0, n, MESSAGE):
        yield list(range(begin, min(begin + MESSAGE, n)))


def produce(pipe: Connection[Any, Any], n: int) -> None:
    for message in messages(n):
        pipe.send(message)
    pipe.send(None)


def piped(n: int = N) -> Iterator[list[int]]:
    """The messages of another process."""
    mine, theirs = multiprocessing.Pipe(duplex=False)
    worker = multiprocessing.Process(target=produce, args=(theirs, n))
    worker.start()
    theirs.close()
    while (message := mine.recv()) is not None:
        yield message
    worker.join()


def queued(n: int = N) -> Iterator[list[int]]:
    """The messages of another thread."""
    queue: SimpleQueue[list[int] | None] = SimpleQueue()

    def put() -> None:
        for message in messages(n):
            queue.put(message)
        queue.put(None)

    worker = Thread(target=put)
    worker.start()
    while (message := queue.get()) is not None:
        yield message
    worker.join()

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


def executors(rounds: int) -> Iterator[Row]:
    """Workers are started and ended within what is timed, on both sides."""
    ints = lz.source(range(N))
    beside = lz.processes()
    yield compared(
        "W5i", "processes(1), ints / pipe, 256 a message", walk(ints, beside), piped, rounds, N, 1.1
    )
    yield compared(
        "W5t",
        "threads(1), ints / SimpleQueue of 256",
        walk(ints, lz.threads()),
        queued,
        rounds,
        N,
        1.5,
    )
    few = max(1, rounds // 3)
    large = lz.source(range(LARGE)) | lz.map(one)
    for workers, buffer_size in ((1, 1), (1, 2), (1, 8), (1, 32), (2, 2), (2, 32)):
        ours = walk(large, lz.processes(workers, buffer_size=buffer_size))
        what = f"processes({workers}, buffer_size={buffer_size}), 1 MB arrays / a ring of 8 slots"
        yield compared("W5a", what, ours, by_hand, rounds, LARGE, 1.15)
    heavy = lz.source(range(HEAVY)) | lz.map(busy)
    both = walk(heavy, lz.processes(2))
    yield compared(
        "W6", "processes(2), 1 ms an item / pool.map(chunksize=16)", both, pooled, few, HEAVY, 1.0
    )
    yield compared("W6", "processes(2) / inline", both, walk(heavy, None), few, HEAVY)
    for method in multiprocessing.get_all_start_methods():
        executor = lz.processes(2, start_method=method)
        times = [seconds(lambda e=executor: first(e)) * 1e3 for _ in range(rounds)]
        bound = 150.0 if method != "spawn" else None
        yield Row("first", f"item from processes(2), {method}, and its end", times, "ms", bound)


def walk(pipeline: lz.Pipeline[Any], executor: lz.Executor | None) -> Action:
    def walked() -> None:
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


def one(i: int, held: list[NDArray[np.uint8]] = []) -> NDArray[np.uint8]:  # noqa: B006  # it's kept
    if not held:
        held += arrays()
    return held[i % 16]


def pooled() -> None:
    with ProcessPoolExecutor(2) as pool:
        spent(pool.map(busy, range(HEAVY), chunksize=16))


def messages() -> Iterator[list[int]]:
    for begin in range(0, N, MESSAGE):
        yield list(range(begin, min(begin + MESSAGE, N)))


def produce(pipe: Connection[Any, Any]) -> None:
    for message in messages():
        pipe.send(message)
    pipe.send(None)


def piped() -> None:
    mine, theirs = multiprocessing.Pipe(duplex=False)
    worker = multiprocessing.Process(target=produce, args=(theirs,))
    worker.start()
    theirs.close()
    while (message := mine.recv()) is not None:
        spent(message)
    worker.join()


def queued() -> None:
    queue: SimpleQueue[list[int] | None] = SimpleQueue()

    def put() -> None:
        for message in messages():
            queue.put(message)
        queue.put(None)

    worker = Thread(target=put)
    worker.start()
    while (message := queue.get()) is not None:
        spent(message)
    worker.join()

"""The plainest code that does the same, in Python and NumPy alone."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import random
import tarfile
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import accumulate, chain, islice
from mmap import mmap
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from time import perf_counter
from typing import Any

import msgspec
import numpy as np
from contestant import Figures, Way
from data import (
    BINS,
    BLOCK,
    LARGE,
    LENGTH,
    WEIGHTS,
    Documents,
    add,
    blocks_shuffled,
    buffer_size,
    busy,
    by_length,
    keep,
    large,
    lines,
    table,
)
from files import corpus, figures
from harness import by_workers, fresh, spent, spent_by_workers
from resuming import Started, resumes
from shuffles import reservoir

try:
    from compression import zstd  # from Python 3.14 on
except ImportError:
    from backports import zstd

MESSAGE = 256  # items
SLOTS = 8


def w1(n: int) -> Way:
    numbers = list(range(n))

    def loop() -> None:
        batch: list[int] = []
        for x in numbers:
            y = add(x)
            if keep(y):
                batch.append(y)
                if len(batch) == 32:
                    batch = []

    return loop


def w2(n: int) -> Way:
    x, y = table(n)

    def take() -> None:
        order = np.random.default_rng(0).permutation(n)
        for begin in range(0, n, 256):
            some = order[begin : begin + 256]
            _ = {"x": x.take(some, axis=0), "y": y.take(some)}

    return take


def w3(n: int) -> Way:
    def loop() -> None:
        rng = random.Random(0)
        spent(by_length(blocks_shuffled(lines(n), BLOCK, rng), rng))

    return loop


def reread(n: int, shuffled: Callable[[Iterator[bytes], int], Iterable[bytes]]) -> Way:
    """The state is a count of batches: a resume reads all earlier batches again."""

    def batches(place: list[int], skip: int) -> Iterator[list[bytes]]:
        stream = iter(shuffled(lines(n), buffer_size(n)))
        while batch := list(islice(stream, 32)):
            place[0] += 1
            if place[0] > skip:
                yield batch

    def start(text: bytes | None) -> Started:
        place = [0]
        return place, batches(place, json.loads(text) if text else 0)

    return resumes(n // 32, start, lambda place: json.dumps(place[0]).encode())


def w4stream(n: int) -> Way:
    return reread(n, reservoir)


def w4blocks(n: int) -> Way:
    return reread(n, lambda lines, size: blocks_shuffled(lines, size, random.Random(0)))


def w4indexed(n: int) -> Way:
    numbers = list(range(n))

    def batches(place: list[int]) -> Iterator[list[int]]:
        order = np.random.default_rng(0).permutation(n)
        for begin in range(place[0], n, 32):
            place[0] = begin + 32
            yield [add(numbers[i]) for i in order[begin : begin + 32].tolist()]

    def start(text: bytes | None) -> Started:
        place = json.loads(text) if text else [0]
        return place, batches(place)

    return resumes(n // 32, start, lambda place: json.dumps(place).encode())


def messages(n: int) -> Iterator[list[int]]:
    for begin in range(0, n, MESSAGE):
        yield list(range(begin, min(begin + MESSAGE, n)))


def produce(pipe: Connection[Any, Any], n: int) -> None:
    for message in messages(n):
        pipe.send(message)
    pipe.send(None)


def piped(n: int) -> Iterator[list[int]]:
    """The messages of another process."""
    mine, theirs = multiprocessing.Pipe(duplex=False)
    worker = multiprocessing.Process(target=produce, args=(theirs, n))
    worker.start()
    theirs.close()
    while (message := mine.recv()) is not None:
        yield message
    worker.join()


def w5i(n: int) -> Way:
    return by_workers(lambda: chain.from_iterable(piped(n)), n)


def queued(n: int) -> Iterator[list[int]]:
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


def w5t(n: int) -> Way:
    return by_workers(lambda: chain.from_iterable(queued(n)), n)


def ring(n: int) -> Iterator[np.ndarray]:
    """Arrays of another process, through slots of shared memory."""
    fork = multiprocessing.get_context("fork")
    free, full = fork.Semaphore(SLOTS), fork.Semaphore(0)
    slots = np.frombuffer(mmap(-1, SLOTS * LARGE), np.uint8).reshape(SLOTS, LARGE)

    def work() -> None:
        for i in range(n):
            array = large(i)
            free.acquire()
            slots[i % SLOTS] = array
            full.release()

    worker = fork.Process(target=work, daemon=True)
    worker.start()
    for i in range(n):
        full.acquire()
        array = slots[i % SLOTS].copy()
        free.release()
        yield array
    worker.join()


def w5a(n: int) -> Way:
    return by_workers(lambda: ring(n), n)


def w6(n: int) -> Way:
    def pooled() -> Figures:
        with ExitStack() as stack:

            def results() -> Iterator[int]:
                pool = stack.enter_context(ProcessPoolExecutor(2))
                return pool.map(busy, range(n), chunksize=16)

            return spent_by_workers(results, n)

    return pooled


def w7(n: int) -> Way:
    return fresh("", "[x + 1 for x in range(10)]")


def w9(n: int) -> Way:
    bounds = list(accumulate(WEIGHTS))

    def mixed() -> Figures:
        begun, rng = perf_counter(), random.Random(0)
        streams = [iter(range(n)) for _ in WEIGHTS]
        for _ in range(n):
            next(streams[bisect(bounds, rng.random() * bounds[-1])])
        return {"seconds": perf_counter() - begun}

    return mixed


def w10split(n: int) -> Way:
    documents = Documents(n)

    def split() -> None:
        held: list[np.ndarray] = []
        total = 0
        for document in documents:
            held.append(document)
            total += len(document)
            if total >= LENGTH:
                begins = np.zeros(total, np.int32)
                ends = np.cumsum([len(each) for each in held])[:-1]
                begins[ends] = 1
                tokens, segments = np.concatenate(held), np.cumsum(begins) + 1
                _ = tokens[:LENGTH], segments[:LENGTH]
                held, total = [tokens[LENGTH:]], total - LENGTH

    return split


def w10fit(n: int) -> Way:
    documents = Documents(n)

    def fit() -> None:
        rows: list[list[np.ndarray]] = [[] for _ in range(BINS)]
        room = [LENGTH] * BINS
        for document in documents:
            size = len(document)
            for number, free in enumerate(room):
                if size <= free:
                    rows[number].append(document)
                    room[number] -= size
                    break
            else:
                for row in rows:
                    filled(row)
                rows = [[document], *([] for _ in range(BINS - 1))]
                room = [LENGTH - size] + [LENGTH] * (BINS - 1)

    return fit


def filled(row: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    tokens, segments = np.zeros(LENGTH, np.int32), np.zeros(LENGTH, np.int32)
    begin = 0
    for number, document in enumerate(row, 1):
        end = begin + len(document)
        tokens[begin:end], segments[begin:end] = document, number
        begin = end
    return tokens, segments


def read(n: int, kind: str, opened: Callable[..., Any], decode: Callable[[Any], Any]) -> Way:
    def loop() -> Iterator[Any]:
        for path in corpus(kind, n):
            with opened(path) as file:
                for line in file:
                    yield decode(line)

    return figures(order=loop)


def w11text(n: int) -> Way:
    return read(n, "txt", open, lambda line: line.rstrip("\n"))


def w11jsonl(n: int) -> Way:
    return read(n, "jsonl", partial(open, mode="rb"), msgspec.json.decode)


def w11gzip(n: int) -> Way:
    return read(n, "jsonl.gz", gzip.open, msgspec.json.decode)


def w11zstd(n: int) -> Way:
    return read(n, "jsonl.zst", zstd.open, msgspec.json.decode)


def w11tar(n: int) -> Way:
    def loop() -> Iterator[dict[str, bytes]]:
        for path in corpus("tar", n):
            with tarfile.open(path, "r:") as archive:
                sample: dict[str, bytes] = {}
                for member in archive:
                    if member.name.endswith(".bin"):
                        sample = {}
                    file = archive.extractfile(member)
                    assert file
                    sample[member.name.partition(".")[2]] = file.read()
                    if member.name.endswith(".cls"):
                        yield sample

    return figures(order=loop)

"""The plainest code that does the same, in Python and NumPy alone."""

from __future__ import annotations

import gzip
import json
import random
import tarfile
from bisect import bisect
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import accumulate, chain, islice
from time import perf_counter
from typing import Any

import executors
import numpy as np
import orjson
import transport
from contestant import Figures, Way
from data import BINS, LENGTH, WEIGHTS, Documents, buffer_size, busy, files, lines_of
from files import corpus, figures
from grouping import by_hand as by_length
from harness import by_workers, fresh, spent, spent_by_workers
from resuming import Started, resumes
from wide import add, by_hand, by_take, table

try:
    from compression import zstd  # from Python 3.14 on
except ImportError:
    from backports import zstd


def w1(n: int) -> Way:
    data = list(range(n))
    return lambda: by_hand(data)


def w2(n: int) -> Way:
    x, y = table(n)
    return lambda: by_take(x, y)


def w3(n: int) -> Way:
    paths = files(n)
    return lambda: spent(by_length(paths))


def reread(n: int, shuffled: Callable[[Iterator[bytes], int], Iterator[bytes]]) -> Way:
    """The state is a count of batches: to go on from it, all before are read again."""

    def batches(place: list[int], skip: int) -> Iterator[list[bytes]]:
        stream = (line for path in files(n) for line in lines_of(path))
        lines = shuffled(stream, buffer_size(n))
        while batch := list(islice(lines, 32)):
            place[0] += 1
            if place[0] > skip:
                yield batch

    def start(text: bytes | None) -> Started:
        place = [0]
        return place, batches(place, json.loads(text) if text else 0)

    return resumes(n // 32, start, lambda place: json.dumps(place[0]).encode())


def w4stream(n: int) -> Way:
    def shuffled(stream: Iterator[bytes], size: int) -> Iterator[bytes]:
        rng, buffer = random.Random(0), list(islice(stream, size))
        for line in stream:
            slot = rng.randrange(size)
            yield buffer[slot]
            buffer[slot] = line
        rng.shuffle(buffer)
        yield from buffer

    return reread(n, shuffled)


def w4blocks(n: int) -> Way:
    def shuffled(stream: Iterator[bytes], size: int) -> Iterator[bytes]:
        rng = random.Random(0)
        while block := list(islice(stream, size)):
            rng.shuffle(block)
            yield from block

    return reread(n, shuffled)


def w4indexed(n: int) -> Way:
    data = list(range(n))

    def batches(place: list[int]) -> Iterator[list[int]]:
        order = np.random.default_rng(0).permutation(n)
        for begin in range(place[0], n, 32):
            place[0] = begin + 32
            yield [add(data[i]) for i in order[begin : begin + 32].tolist()]

    def start(text: bytes | None) -> Started:
        place = json.loads(text) if text else [0]
        return place, batches(place)

    return resumes(n // 32, start, lambda place: json.dumps(place).encode())


def w5i(n: int) -> Way:
    return by_workers(lambda: chain.from_iterable(executors.piped(n)), n)


def w5t(n: int) -> Way:
    return by_workers(lambda: chain.from_iterable(executors.queued(n)), n)


def w5a(n: int) -> Way:
    return by_workers(lambda: transport.ring(n), n)


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


def lines(n: int, kind: str, opened: Callable[..., Any], decode: Callable[[Any], Any]) -> Way:
    def loop() -> Iterator[Any]:
        for path in corpus(kind, n):
            with opened(path) as file:
                for line in file:
                    yield decode(line)

    return figures(order=loop)


def w11text(n: int) -> Way:
    return lines(n, "txt", open, lambda line: line.rstrip("\n"))


def w11jsonl(n: int) -> Way:
    return lines(n, "jsonl", partial(open, mode="rb"), orjson.loads)


def w11gzip(n: int) -> Way:
    return lines(n, "jsonl.gz", gzip.open, orjson.loads)


def w11zstd(n: int) -> Way:
    return lines(n, "jsonl.zst", zstd.open, orjson.loads)


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

"""The data and functions of the contestants, the same for all."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from lazyckpt.demo.data import library, lines_of

__all__ = ["lines_of"]
LINES = 857_886  # of the standard library's own text, about; the last tenth varies
BLOCK = 65_536  # lines that are shuffled together
WINDOW = 6_400  # lines that are batched by length together
SIZE = 64  # lines a batch
WEIGHTS = [1 + i % 7 for i in range(1_000)]
LENGTH = 2_048  # tokens per row
BINS = 16
ROW = 256  # tokens, in training
ROWS = 8  # a batch, in training
VOCABULARY = 256
WORK = 28_000  # turns of a loop that take about a millisecond
LARGE = 1_000_000  # bytes


def add(x: int) -> int:
    return x + 1


def keep(x: int) -> int:
    return x % 3


def nothing(item: Any) -> Any:
    return item


def busy(x: int) -> int:
    """About a millisecond of Python."""
    for y in range(WORK):
        x += y & 1
    return x


def table(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((n, 16), dtype=np.float32), rng.integers(0, 10, n)


@cache
def files(n: int) -> list[Path]:
    """Gzip files with about n lines together."""
    text = library()
    paths = [text.folder / name for name in text.names]
    return paths[: max(1, round(len(paths) * n / LINES))]


def lines(n: int) -> Iterator[bytes]:
    return (line for path in files(n) for line in lines_of(path))


def buffer_size(n: int) -> int:
    return max(1, BLOCK * n // LINES)


def blocks_shuffled(lines: Iterable[bytes], size: int, rng: random.Random) -> Iterator[bytes]:
    """Block after block shuffled, as one writes it by hand."""
    stream = iter(lines)
    while block := list(islice(stream, size)):
        rng.shuffle(block)
        yield from block


def by_length(lines: Iterator[bytes], rng: random.Random) -> Iterator[list[bytes]]:
    """Batches of lines of like length, as one writes it by hand."""
    while window := list(islice(lines, WINDOW)):
        yield from of_like_length(window, rng)


def of_like_length(window: list[bytes], rng: random.Random) -> list[list[bytes]]:
    window.sort(key=len, reverse=True)
    batches = [window[i : i + SIZE] for i in range(0, len(window), SIZE)]
    rng.shuffle(batches)
    return batches


class Documents:
    """n arrays of 16 to 112 tokens each, cut out of one, so that they take no memory."""

    def __init__(self, n: int) -> None:
        rng = np.random.default_rng(0)
        self.lengths = rng.integers(16, 113, n)
        self.begins = rng.integers(0, 100_000, n)
        self.tokens = rng.integers(1, 50_000, 100_200).astype(np.int32)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> np.ndarray:
        begin = self.begins[index]
        return self.tokens[begin : begin + self.lengths[index]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return map(self.__getitem__, range(len(self)))


@cache
def pool() -> list[np.ndarray]:
    """More than a processor's cache for one core holds."""
    return [np.random.default_rng(i).integers(0, 256, LARGE, np.uint8) for i in range(16)]


def large(index: int) -> np.ndarray:
    return pool()[index % 16]


def texts(n: int) -> list[str]:
    """Texts enough for n batches in training, of some 80 characters each."""
    line = "to be or not to be that is the question whether tis nobler in the mind"
    words = line.split()
    rng = np.random.default_rng(0)
    picks = rng.integers(0, len(words), (n * ROWS * ROW // 64, 20))
    return [" ".join(words[i] for i in row) for row in picks.tolist()]


def tokenize(text: str) -> np.ndarray:
    """Characters as numbers, one by one, so that it costs as much as a tokenizer."""
    return np.array([ord(character) % VOCABULARY for character in text], np.int32)

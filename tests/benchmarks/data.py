"""What the contestants read, the same for all."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from workloads import LINES

from lazyckpt.demo.data import library, lines_of

__all__ = ["lines_of"]
WEIGHTS = [1 + i % 7 for i in range(1_000)]
LENGTH = 2_048  # tokens a row
BINS = 16
ROW = 256  # tokens, in training
ROWS = 8  # a batch, in training
VOCABULARY = 256
WORK = 28_000  # turns of a loop that take about a millisecond
LARGE = 1_000_000  # bytes


@cache
def files(n: int) -> list[Path]:
    """Gzip files with about n lines together."""
    text = library()
    paths = [text.folder / name for name in text.names]
    return paths[: max(1, round(len(paths) * n / LINES))]


def buffer_size(n: int) -> int:
    return max(1, 65_536 * n // LINES)


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


def busy(x: int) -> int:
    """About a millisecond of Python."""
    for y in range(WORK):
        x += y & 1
    return x


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


def nothing(item: Any) -> Any:
    return item

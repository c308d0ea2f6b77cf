"""A Bloom filter, and the hashes in it, kept in files that never change."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.prng import hashed, hashes_at
from lazyckpt.errors import InvalidState
from lazyckpt.state.saving import write_file

_MAGIC = b"lzseen01"
_HEAD = len(_MAGIC) + 16
_CHUNK = 1 << 16  # hashes added in one call
_FEW = 32  # hashes for which one by one is faster


class BloomFilter:
    """A set of 64-bit hashes with some false positives.

    Bloom, "Space/time trade-offs in hash coding with allowable errors", 1970. The bits of a hash
    are `h + i * g(h)`; two hashes do as well as many (Kirsch and Mitzenmacher, "Less hashing, same
    performance: building a better Bloom filter", 2008).

    Args:
        capacity: The number of hashes it is made for.
        false_positive_rate: The share of other hashes it accepts once it has that many.
    """

    def __init__(self, capacity: int, false_positive_rate: float) -> None:
        bits = -capacity * math.log(false_positive_rate) / math.log(2) ** 2
        self._bytes = bytearray(max(8, math.ceil(bits / 8)))
        self._size = 8 * len(self._bytes)
        self._count = max(1, round(self._size / capacity * math.log(2)))

    def add(self, value: int) -> bool:
        """Add a hash; return True if it is new."""
        held, size = self._bytes, self._size
        place, step = value % size, hashed(0, value) % (size - 1) + 1
        is_new = False
        for _ in range(self._count):
            bit = 1 << (place & 7)
            if not held[place >> 3] & bit:
                held[place >> 3] |= bit
                is_new = True
            place += step
            if place >= size:
                place -= size
        return is_new

    def add_all(self, values: NDArray[np.uint64]) -> None:
        if len(values) < _FEW:
            for value in values.tolist():
                self.add(value)
            return
        held, size = np.frombuffer(self._bytes, np.uint8), np.uint64(self._size)
        for begin in range(0, len(values), _CHUNK):
            part = values[begin : begin + _CHUNK]
            places, steps = part % size, hashes_at(0, part) % (size - np.uint64(1)) + np.uint64(1)
            for _ in range(self._count):
                bits = np.uint8(1) << (places & np.uint64(7)).astype(np.uint8)
                np.bitwise_or.at(held, (places >> np.uint64(3)).astype(np.int64), bits)
                places += steps
                places[places >= size] -= size


class _Block(NamedTuple):
    """Hashes of a part of the stream, the block before them, and the number of hashes so far."""

    before: int
    total: int
    hashes: NDArray[np.uint64]


class BlockFolder:
    """Hashes in blocks, each in a file named by its digest.

    A block names the one before it, so a digest identifies all hashes up to there. Files are never
    changed: runs don't disturb each other, and old states stay valid.

    Args:
        stage: Name for errors.
        path: The folder; it is created if it doesn't exist.
    """

    def __init__(self, stage: str, path: str) -> None:
        self._stage, self._path = stage, path

    def check(self, digest: int) -> None:
        """Raise an error if the block is missing."""
        if digest and not os.path.exists(self._file(digest)):
            raise self._error(digest, "is missing")

    def put(self, before: int, total: int, hashes: list[int]) -> int:
        """Write a block durably, and return its digest. An existing file is kept."""
        content = b"".join(
            (
                _MAGIC,
                before.to_bytes(8, "little"),
                total.to_bytes(8, "little"),
                np.array(hashes, "<u8").tobytes(),
            )
        )
        digest = _digest(content)
        if self._content(digest) != content:
            os.makedirs(self._path, exist_ok=True)
            write_file(self._file(digest), content)
        return digest

    def blocks(self, digest: int) -> Iterator[_Block]:
        """Yield a block, the one before it, and so on."""
        while digest:
            block = self._block(digest)
            yield block
            digest = block.before

    def _block(self, digest: int) -> _Block:
        content = self._content(digest)
        if content is None:
            raise self._error(digest, "is missing")
        if _digest(content) != digest or not content.startswith(_MAGIC):
            raise self._error(digest, "is damaged")
        before, total = np.frombuffer(content[len(_MAGIC) : _HEAD], "<u8").tolist()
        return _Block(before, total, np.frombuffer(content[_HEAD:], "<u8").astype(np.uint64))

    def _content(self, digest: int) -> bytes | None:
        try:
            with open(self._file(digest), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def _file(self, digest: int) -> str:
        return os.path.join(self._path, f"{digest:016x}.seen")

    def _error(self, digest: int, what: str) -> InvalidState:
        return InvalidState(
            f"{self._stage}: the keys seen before the state are in {self._file(digest)}, which "
            f"{what}: copy it from the machine that saved the state, or start again"
        )


def _digest(content: bytes) -> int:
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")

"""CRC-32C (Castagnoli, 1993), by lookups of many bytes at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78
_WIDTH = 256  # bytes looked up at once
_ONES = 0xFFFFFFFF

Table = NDArray[np.uint32]


@lru_cache
def _tables() -> Table:
    """What each value of the byte that has so many behind it adds to a checksum."""
    first = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        first = (first >> np.uint32(1)) ^ np.where(first & np.uint32(1), np.uint32(_POLYNOMIAL), 0)
    found = [first.astype(np.uint32)]
    while len(found) < _WIDTH + 4:
        found.append(first[found[-1] & np.uint32(255)] ^ (found[-1] >> np.uint32(8)))
    return np.stack(found).astype(np.uint32)


@lru_cache(maxsize=_WIDTH)
def _lookups(size: int) -> Table:
    return np.ascontiguousarray(_tables()[:size][::-1]).ravel()


def crc32c(data: bytes) -> int:
    """The checksum of some bytes, by google-crc32c where that is installed.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    fast = _installed()
    return fast(data) if fast is not None else plain_crc32c(data)


@lru_cache
def _installed() -> Callable[[bytes], int] | None:
    try:
        found = import_module("google_crc32c")
    except ImportError:
        return None
    value: Callable[[bytes], int] = found.value
    return value if found.implementation == "c" else None


def plain_crc32c(data: bytes) -> int:
    """The checksum of some bytes, by NumPy."""
    tables = _tables()
    values = np.frombuffer(data, np.uint8)
    head = len(values) % _WIDTH
    rows = values[head:].reshape(-1, _WIDTH)
    found = _added(_ONES, head, int(_xored(values[None, :head])[0]) if head else 0, tables)
    for each in _xored(rows).tolist():
        found = _added(found, _WIDTH, each, tables)
    return found ^ _ONES


def crc32c_rows(rows: NDArray[np.uint8]) -> Table:
    """The checksums of rows of up to 256 bytes."""
    size = rows.shape[1]
    start = _added(_ONES, size, 0, _tables())
    return _xored(rows) ^ np.uint32(start ^ _ONES)


def _xored(rows: NDArray[np.uint8]) -> Table:
    """What each row adds, from a checksum of nothing."""
    size = rows.shape[1]
    found = np.zeros(len(rows), np.uint32)
    step = max(1, (1 << 20) // max(1, size))
    places = np.arange(size, dtype=np.int32) * 256
    for first, last in pairwise([*range(0, len(rows), step), len(rows)]):
        looked_up = _lookups(size)[places + rows[first:last]]
        found[first:last] = np.bitwise_xor.reduce(looked_up, axis=1)
    return found


def _added(before: int, size: int, added: int, tables: Table) -> int:
    """The checksum of what has `size` bytes more, which add so much by themselves."""
    if size < 4:
        for _ in range(size):
            before = int(tables[0, before & 255]) ^ before >> 8
        return before ^ added
    for place in range(4):
        added ^= int(tables[size - 1 - place, before >> 8 * place & 255])
    return added

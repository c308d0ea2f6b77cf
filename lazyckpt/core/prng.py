"""Random numbers that are pure functions of a key and a counter.

Nothing here has a state to save. Only 32- and 64-bit integer arithmetic is used, and for
weights floats rounded according to IEEE 754, so the order doesn't depend on the NumPy version,
the platform or the chunking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Ranges rise: the last index is the largest.
Indices: TypeAlias = "range | NDArray[np.int64]"

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_ROUNDS = 8
_ROUND_MIX = {32: (0x7FEB352D, 0x846CA68B), 64: _MIX}
_SORTED = 1 << 15  # up to here a permutation is a sort of hashes, exactly uniform
_FIRST, _LARGEST = 1 << 12, 1 << 16  # indices evaluated in one call, in consecutive windows
_LOG_2 = 0.6931471805599453
_SPARSE = 8  # indices further apart than this are evaluated one by one


def affine(indices: Indices, start: int, stride: int = 1) -> Indices:
    """Return `start + stride * i` for every index i.

    >>> affine(range(3), 10, 2)
    range(10, 16, 2)
    """
    if start == 0 and stride == 1:
        return indices
    if isinstance(indices, range):
        first, stop = start + stride * indices.start, start + stride * indices.stop
        return range(first, stop, stride * indices.step)
    moved: NDArray[np.int64] = indices * stride + start
    return moved


def as_array(indices: Indices) -> NDArray[np.int64]:
    """Return the indices as an array; raise an OverflowError if they don't fit."""
    if isinstance(indices, range):
        return np.arange(indices.start, indices.stop, indices.step, dtype=np.int64)
    return indices


def hashed(key: int, counter: int) -> int:
    """Return 64 random bits for one counter (splitmix64; Steele, Lea and Flood, 2014).

    >>> hex(hashed(0, 0))
    '0xe220a8397b1dcdaf'
    """
    z = (key + (counter + 1) * _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * _MIX[0]) & _MASK
    z = ((z ^ (z >> 27)) * _MIX[1]) & _MASK
    return z ^ (z >> 31)


def hashes(key: int, start: int, stop: int) -> NDArray[np.uint64]:
    """Return `hashed` for every counter in `range(start, stop)`, as one array."""
    return hashes_at(key, np.arange(start, stop, dtype=np.uint64))


def hashes_at(key: int, counters: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return `hashed` for each of many counters."""
    z = counters * np.uint64(_GOLDEN)
    z += np.uint64((key + _GOLDEN) & _MASK)
    shifted = z >> np.uint64(30)
    z ^= shifted
    z *= np.uint64(_MIX[0])
    z ^= np.right_shift(z, np.uint64(27), out=shifted)
    z *= np.uint64(_MIX[1])
    z ^= np.right_shift(z, np.uint64(31), out=shifted)
    return z


def derive(*parts: int | str) -> int:
    """Derive a 64-bit key from seed, purpose, epoch and similar values.

    >>> derive(0, "shuffle", 1) == derive(0, "shuffle", 1) != derive(1, "shuffle", 0)
    True
    """
    key = 0
    for part in parts:
        number = int.from_bytes(part.encode(), "little") if isinstance(part, str) else part
        while True:
            key = hashed(key ^ (number & _MASK), 0)
            number >>= 64
            if not number:
                break
    return key


def draws(key: int, start: int, stop: int, bound: int) -> NDArray[np.int64]:
    """Return integers in `[0, bound)` for a range of counters; bias below bound / 2**64."""
    return (hashes(key, start, stop) % np.uint64(bound)).astype(np.int64)


class Permutation:
    """A random permutation of `range(size)`, evaluated at any index without being stored.

    Up to 32,768 elements it is a sort of hashed counters. Above, it is an eight-round Feistel
    network over the next power of two, walked along its cycle until the value falls into range
    (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). Memory: at most 65,536
    indices, a window that is kept because neighbours are usually asked for next.

    >>> sorted(Permutation(7, 5)[i] for i in range(5))
    [0, 1, 2, 3, 4]
    """

    __slots__ = ("_keys", "_size", "_width", "_window")

    def __init__(self, key: int, size: int) -> None:
        self._size = size
        self._width = 32 if size <= 1 << 32 else 64
        self._window: tuple[int, NDArray[np.int64]] = (0, np.empty(0, np.int64))
        if size > _SORTED:
            self._keys = [hashed(key, i) >> (64 - self._width) for i in range(_ROUNDS)]
        else:
            counters, tag = np.arange(size, dtype=np.uint64), np.uint64(_SORTED - 1)
            tagged = hashes_at(key, counters)
            tagged &= ~tag
            tagged |= counters
            tagged.sort()
            tagged &= tag
            self._window = (0, tagged.view(np.int64))

    def __getitem__(self, index: int) -> int:
        if self._size <= _SORTED:
            return int(self._window[1][index])
        value = self._feistel(index)
        while value >= self._size:
            value = self._feistel(value)
        return value

    def at(self, indices: Indices) -> NDArray[np.int64]:
        """Return the permuted values at many indices."""
        if not isinstance(indices, range):
            if self._size <= _SORTED:
                return self._window[1][indices]
            return self._walk(indices)
        if not indices:
            return np.empty(0, np.int64)
        first, last = indices[0], indices[-1]
        start, window = self._window
        if not start <= first <= last < start + len(window):
            if last - first >= _SPARSE * len(indices):
                return self._walk(as_array(indices))
            is_next = start < first <= start + len(window)
            size = min(4 * len(window), _LARGEST) if is_next else _FIRST
            stop = min(max(first + size, last + 1), self._size)
            known = window[first - start :] if start <= first else window[:0]
            more = self._walk(np.arange(first + len(known), stop))
            start, window = first, np.concatenate([known, more]) if len(known) else more
            self._window = (start, window)
        return window[first - start : last - start + 1 : indices.step]

    def _feistel(self, x: int) -> int:
        bits = (self._size - 1).bit_length()
        left, right = bits // 2, bits - bits // 2
        high, low = x >> right, x & ((1 << right) - 1)
        width, mask = self._width, (1 << self._width) - 1
        first, second = _ROUND_MIX[width]
        for number, key in enumerate(self._keys):
            t = ((low if number % 2 == 0 else high) + key) * first & mask
            t = ((t ^ (t >> (width // 2))) * second & mask) >> width - (left, right)[number % 2]
            if number % 2 == 0:
                high ^= t
            else:
                low ^= t
        return high << right | low

    def _walk(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        kind = np.uint32 if self._width == 32 else np.uint64
        out = self._feistels(indices.astype(kind))
        late = np.flatnonzero(out >= self._size)
        while late.size:
            out[late] = again = self._feistels(out[late])
            late = late[again >= self._size]
        return out.astype(np.int64)

    def _feistels(self, x: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
        kind, width = x.dtype.type, self._width
        bits = (self._size - 1).bit_length()
        left, right = bits // 2, bits - bits // 2
        high, low = x >> kind(right), x & kind((1 << right) - 1)
        first, second = (kind(m) for m in _ROUND_MIX[width])
        t, u = np.empty_like(x), np.empty_like(x)
        for number, key in enumerate(self._keys):
            source, target = (low, high) if number % 2 == 0 else (high, low)
            np.add(source, kind(key), out=t)
            np.multiply(t, first, out=t)
            np.right_shift(t, kind(width // 2), out=u)
            np.bitwise_xor(t, u, out=t)
            np.multiply(t, second, out=t)
            np.right_shift(t, kind(width - (left, right)[number % 2]), out=t)
            np.bitwise_xor(target, t, out=target)
        high <<= kind(right)
        high |= low
        return high


def exponentials_at(key: int, counters: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return an exponentially distributed number per counter: -log of a uniform one.

    Only correctly rounded operations are used, so all platforms give the same bits; their own
    logarithms need not.
    """
    uniform = ((hashes_at(key, counters) >> np.uint64(11)) + np.uint64(1)) * 2.0**-53
    mantissa, exponent = np.frexp(uniform)
    s = (mantissa - 1) / (mantissa + 1)  # log(m) = 2 atanh(s), and -1/3 <= s <= 0
    square, series = s * s, np.zeros_like(s)
    for odd in range(33, 0, -2):
        series = series * square + 1 / odd
    found: NDArray[np.float64] = -(exponent * _LOG_2 + 2 * s * series)
    return np.maximum(found, 0)

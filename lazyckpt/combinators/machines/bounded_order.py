"""`BoundedOrder`: a random order in which no item moves further than a buffer reaches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lazyckpt.combinators.machines.reordered import Order, permuted
from lazyckpt.core.prng import Indices, as_array, derive, hashes

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WIDEST = 1 << 25  # a buffer that is larger mixes as this one does, and so no key overflows
_INDEX_BITS = 27
_TIE_BITS = 64 - 2 * _INDEX_BITS
_STRIDE = 32  # of small buffers, so that noting a place costs little
_USES = ("order", "offset")  # what is drawn for an item
_PAGE = 512  # outputs worked out at once, at least


class Grid(NamedTuple):
    """How items are held and mixed, for a buffer of some size.

    Attributes:
        reach: Items that are held. An item moves forwards by less than that.
        stride: Items between places that a resume may begin at.
        stay: It moves backwards by no more than that.
        sure: The end changes only what comes less than `reach - sure` items before it, if
            there are `reach` items.
        chunk: Items whose displacements are drawn together.
        width: Displacements that there are: from `-width // 2` on.
    """

    reach: int
    stride: int
    stay: int
    sure: int
    chunk: int
    width: int

    @classmethod
    def of(cls, size: int) -> Grid:
        """The widest displacements for a buffer of at most so many items.

        A chunk's displacements are one of each of its strata, of `width // chunk`.
        So of the keys below any number there are as many as there are on average,
        give or take one for each of the `width // chunk` chunks that reach over it.
        """
        size = min(size, _WIDEST)
        stride = max(_STRIDE, size // 16)
        sure = stride if size >= 16 * _STRIDE else 1
        reach = size - size % sure
        most = reach - sure
        stay = most + -(most + reach) % stride
        chunk = math.isqrt(2 * reach)
        strata = (2 * most - 2 * chunk - 6) // (chunk + 2)
        if strata * chunk <= most:
            chunk, strata = 1, most + 1
        return cls(reach, stride, stay, sure, chunk, strata * chunk)

    def anchor(self, given: int) -> int:
        """The first item that a resume reads again when so many have been given."""
        strides = (given - self.stay - 1) // self.stride
        return strides * self.stride + 1 if strides >= 0 else 0


class BoundedOrder:
    """The order of items by a key: an item's number, and a random displacement.

    Displacements are uniform, so that an item is as likely to move by any
    distance up to about the buffer's size as by any other, forwards or backwards,
    and there is no grid that it can't cross. A key below 0, or behind the last
    item, is reflected there, so that beginning and end are mixed as well as the
    midst. Fewer than `reach` items are permuted uniformly.

    Args:
        grid: Of `Grid.of`.
        seed: The seed.
        epoch: The epoch.
        length: How many items there are; None before the end has been seen, for what
            comes more than `reach` items before it.
    """

    def __init__(
        self,
        grid: Grid,
        seed: int,
        epoch: int,
        length: int | float | None,
    ) -> None:
        self._grid = grid
        self._length = None if length == math.inf else length
        self._keys = [derive(seed, "shuffle", use, epoch) for use in _USES]
        self._short: Order | None = None
        if self._length is not None and self._length < grid.reach:
            self._short = permuted(int(self._length), seed, "shuffle", "buffer", epoch)
        self._size = grid.chunk * -(-max(_PAGE, grid.width // 4) // grid.chunk)  # keys of a page
        self._page = lru_cache(maxsize=4)(self._sorted)
        self._next = _Waiting(-1, 0, np.empty(0, np.uint64), 0)

    def __getitem__(self, index: int) -> int:
        if self._short is not None:
            return self._short[index]
        first, items = self._page(self._find(index))
        return int(items[index - first])

    def at(self, indices: Indices) -> Indices:
        if self._short is not None:
            return self._short.at(indices)
        places = as_array(indices)
        found = np.full(len(places), -1)
        while (left := places[found < 0]).size:
            first, items = self._page(self._find(int(left.min())))
            mine = (places >= first) & (places < first + len(items))
            found[mine] = items[places[mine] - first]
        return found

    def since(self, index: int) -> Iterator[NDArray[np.int64]]:
        """The items from some place on, many at once."""
        if self._short is not None:
            yield as_array(self._short.at(range(index, int(self._length or 0))))
            return
        length = math.inf if self._length is None else self._length
        page = self._find(index) if index < length else 0
        while index < length:
            first, items = self._page(page)
            yield items[index - first :]
            index, page = first + len(items), page + 1

    def _find(self, index: int) -> int:
        """The page of a place: that of the key that is like it, or one beside that."""
        page = index // self._size
        while True:
            first, items = self._page(page)
            if first <= index < first + len(items):
                return page
            page += 1 if index >= first else -1

    def _sorted(self, page: int) -> tuple[int, NDArray[np.int64]]:
        """How many items have a key below those of a page, and its items in order."""
        chunk, width, size = self._grid.chunk, self._grid.width, self._size
        begin = page * size
        waiting = self._next
        if waiting.page != page:
            lowest = max(0, (begin - width + width // 2) // chunk + 1)
            waiting = _Waiting(page, lowest * chunk, np.empty(0, np.uint64), lowest)
        stop = -(-(begin + size + width // 2) // chunk)
        keys, ties, items = self._drawn(waiting.chunk, stop)
        is_early = keys < begin
        first = waiting.first + int(np.count_nonzero(is_early))
        offsets = (keys - begin).astype(np.uint64) << np.uint64(_TIE_BITS + _INDEX_BITS)
        offsets |= ties << np.uint64(_INDEX_BITS)
        offsets |= (items - (begin - width)).astype(np.uint64)
        packed = np.concatenate([waiting.packed, offsets[~is_early]])
        is_late = packed >= np.uint64(size << _TIE_BITS + _INDEX_BITS)
        here = packed[~is_late]
        here.sort()
        found = (here & np.uint64((1 << _INDEX_BITS) - 1)).astype(np.int64) + (begin - width)
        later = packed[is_late] - np.uint64((size << _TIE_BITS + _INDEX_BITS) + size)
        self._next = _Waiting(page + 1, first + len(found), later, stop)
        return first, found

    def _drawn(
        self, start: int, stop: int
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
        """The keys of some chunks' items, what decides between equal ones, and the items."""
        chunk, width, length = self._grid.chunk, self._grid.width, self._length
        if length is not None:
            stop = min(stop, -(-int(length) // chunk))
        tag = np.uint64((1 << chunk.bit_length()) - 1)
        shuffled, random = self._hashed(start, stop)
        shuffled = (shuffled & ~tag) | np.arange(chunk, dtype=np.uint64)
        shuffled.sort(axis=1)
        begins = np.arange(start, stop)[:, None] * chunk
        items = begins + (shuffled & tag).astype(np.int64)
        offsets = (random >> np.uint64(32)) * np.uint64(width // chunk) >> np.uint64(32)
        strata = np.arange(chunk) * (width // chunk) - width // 2
        keys = begins + strata + offsets.astype(np.int64)
        ties = random & np.uint64((1 << _TIE_BITS) - 1)
        keys = np.where(keys < 0, -1 - keys, keys)
        if length is None:
            return keys.ravel(), ties.ravel(), items.ravel()
        keys = np.where(keys < length, keys, 2 * int(length) - 1 - keys)
        is_there = items < length
        return keys[is_there], ties[is_there], items[is_there]

    def _hashed(self, start: int, stop: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Two random numbers for each item of some chunks, a row for each of these."""
        chunk = self._grid.chunk
        order, offset = (
            hashes(key, start * chunk, stop * chunk).reshape(-1, chunk) for key in self._keys
        )
        return order, offset


class _Waiting(NamedTuple):
    """Items whose keys are of a page or a later one, of all chunks before `chunk`."""

    page: int
    first: int
    packed: NDArray[np.uint64]
    chunk: int

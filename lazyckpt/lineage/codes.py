"""Origins as ints, which stand for items if nothing is read."""

from __future__ import annotations

from itertools import chain
from operator import index
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.call import Call
from lazyckpt.core.flow import Position, Table, View, viewing
from lazyckpt.core.machine import Machine
from lazyckpt.core.prng import Indices, affine, as_array
from lazyckpt.core.stages import passing, step_by, stepped_to
from lazyckpt.decorators import combinator, source_combinator
from lazyckpt.errors import PipelineError
from lazyckpt.lineage.origins import Origin, parts

_BITS = 63
# The most bits of an index and of an epoch in a code; a number stands for the higher bits.
_MOST_INDEX_BITS, _EPOCHS = 40, 16


class CodedSource(NamedTuple):
    """A source whose items are codes: its name in origins, and its data, if they locate items."""

    stage: str
    reader: Any


class Decoded(NamedTuple):
    """Columns of origins."""

    source: NDArray[np.int64]
    epoch: NDArray[np.int64]
    number: NDArray[np.int64]


class Codes:
    """Ints that encode sources, epochs and indices.

    From the highest bit to the lowest: a number for the source together with the higher bits of
    epoch and index; the lower bits of the epoch; the lower bits of the index.
    """

    def __init__(self) -> None:
        self.sources: list[CodedSource] = []
        self._index_bits = 1
        self._known: dict[tuple[int, int, int], int] = {}

    def add(self, stage: str, reader: Any, length: float | None) -> int:
        """Return the number of a new source."""
        bits = length.bit_length() if isinstance(length, int) else _MOST_INDEX_BITS
        self._index_bits = max(self._index_bits, min(bits, _MOST_INDEX_BITS))
        self.sources.append(CodedSource(stage, reader))
        return len(self.sources) - 1

    @property
    def _epochs(self) -> int:
        return min(_EPOCHS, (_BITS - self._index_bits) // 2)

    def code(self, source: int, epoch: int, index: int) -> int:
        """Return the code of an item. Codes of later indices follow, up to a multiple of `page`."""
        bits = self._epochs
        key = source, epoch >> bits, index >> self._index_bits
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self._known)
            if number >> (_BITS - bits - self._index_bits):
                raise PipelineError("seen: too many epochs in one call; pass since=, a later state")
        high = number << bits | epoch & ((1 << bits) - 1)
        return high << self._index_bits | index & (self.page - 1)

    @property
    def page(self) -> int:
        """The number of indices whose codes follow each other."""
        return 1 << self._index_bits

    def ahead(self, source: int, epoch: int, indices: Indices) -> Indices:
        """Return the codes of items at several indices of an epoch."""
        if self._index_bits < _MOST_INDEX_BITS:  # one page contains them all
            return affine(indices, self.code(source, epoch, 0))
        pages = as_array(indices) >> self._index_bits
        codes = as_array(indices) & (self.page - 1)
        for page in np.unique(pages).tolist():
            codes[pages == page] += self.code(source, epoch, page * self.page)
        return codes

    def decoded(self, codes: NDArray[np.int64]) -> Decoded:
        """Decode an array of codes."""
        bits = self._epochs
        known = np.array([*self._known] or [(0, 0, 0)], np.int64)
        high = codes >> self._index_bits
        source, above, page = known[0] if len(known) == 1 else known[high >> bits].T
        epochs = above << bits | high & ((1 << bits) - 1)
        indices = page << self._index_bits | codes & (self.page - 1)
        return Decoded(np.broadcast_to(source, codes.shape), epochs, indices)

    def origins(self, item: Any) -> list[Origin]:
        """Return the origins of an item."""
        found = self.decoded(leaves([item]).codes)
        return [
            Origin(stage, epoch, index, None if reader is None else reader.locate(index))
            for source, epoch, index in zip(*map(np.ndarray.tolist, found), strict=True)
            for stage, reader in [self.sources[source]]
        ]


@source_combinator(registered=False, unrecorded=("call", "codes"))
def coded_source(call: Call, codes: Codes, number: int) -> Machine[int]:
    """Return a source whose items are codes."""
    machine = call.build(None)
    jump = machine.skip
    assert jump is not None

    step = step_by(jump, lambda position: codes.code(number, *position[:2]))

    def ahead(position: Position, offsets: Indices) -> Indices:
        return codes.ahead(number, position[0], affine(offsets, position[1]))

    starts = machine.view and machine.view.block_starts
    view: View[int] = View(Table(index, is_ours=True), ahead, starts)
    return machine._replace(
        step=step,
        flow=viewing(jump, view),
        item=stepped_to(jump, step),
        view=machine.view and view,
    )


@combinator(keeps_items=True, registered=False)
def unchanged(upstream: Machine[Any]) -> Machine[Any]:
    return passing(upstream)


class Leaves(NamedTuple):
    """The codes in items, each with the number of its item."""

    item: NDArray[np.int64]
    codes: NDArray[np.int64]


def leaves(items: list[Any] | NDArray[np.int64]) -> Leaves:
    """Return the codes in items, each once per item, in order of occurrence."""
    if isinstance(items, np.ndarray):
        return Leaves(np.arange(len(items)), items)
    if type(items[0]) is int:
        try:
            return Leaves(np.arange(len(items)), np.fromiter(items, np.int64, len(items)))
        except (TypeError, ValueError):  # there are more after it
            pass
    try:
        flat = np.fromiter(chain.from_iterable(items), np.int64)
        sizes = np.fromiter(map(len, items), np.int64, len(items))
    except (TypeError, ValueError):  # not all are lists of codes
        nested = [flat_codes(item) for item in items]
        flat = np.fromiter(chain.from_iterable(nested), np.int64)
        sizes = np.fromiter(map(len, nested), np.int64, len(nested))
    return _unique(Leaves(np.repeat(np.arange(len(items)), sizes), flat))


def flat_codes(item: Any) -> list[int]:
    """Return the codes in an item. None is padding, and has no origin."""
    return [int(each) for each in parts(item) if each is not None]


def _unique(found: Leaves) -> Leaves:
    ordered = np.sort(found.codes)
    if (ordered[1:] != ordered[:-1]).all():
        return found
    order = np.lexsort((found.codes, found.item))  # stable: the first of equal codes comes first
    item, codes = found.item[order], found.codes[order]
    again = np.zeros(len(order), bool)
    again[1:] = (item[1:] == item[:-1]) & (codes[1:] == codes[:-1])
    kept = np.ones(len(order), bool)
    kept[order[again]] = False
    return Leaves(found.item[kept], found.codes[kept])

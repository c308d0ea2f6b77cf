"""`plan_packing`: assign documents to rows, from their lengths alone."""

from __future__ import annotations

import operator
import zipfile
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from os import PathLike
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from lazyckpt.combinators.machines.best_fit_decreasing import best_fit_decreasing
from lazyckpt.combinators.machines.token_rows import Overflow, overflow_policy
from lazyckpt.core.arrays import read_only
from lazyckpt.core.checks import Unfit, as_column, at_least, checked, natural, optional, positive
from lazyckpt.core.prng import Permutation, derive
from lazyckpt.core.values import cached_property
from lazyckpt.errors import ArgumentError

_MOST = (1 << 32) - 1  # tokens of a row
_AT_ONCE = 1 << 16  # numbers permuted in one call
_ARRAYS = ("lengths", "documents", "parts", "begins")


class Piece(NamedTuple):
    """The tokens of a document from `start` up to `stop`."""

    document: int
    start: int
    stop: int


class PackingPlan:
    """The result of `plan_packing`: for each row, its pieces of documents.

    Attributes:
        length: Number of tokens per row.
        overflow: Treatment of documents longer than `length`.
        lengths: Number of tokens of each document, of shape `(n,)`.
    """

    def __init__(
        self,
        length: int,
        overflow: Overflow,
        lengths: NDArray[Any],
        documents: NDArray[Any],
        parts: NDArray[Any],
        begins: NDArray[Any],
    ) -> None:
        self.length, self.overflow = length, overflow
        self.lengths = _small(lengths)
        self._documents, self._parts = _small(documents), _small(parts)
        self._begins = read_only(begins.astype("<i8"))

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._begins) - 1

    def __getitem__(self, row: SupportsIndex) -> list[Piece]:
        """Return the pieces of a row, in order."""
        number = operator.index(row)
        if not -len(self) <= number < len(self):
            raise IndexError(f"row {number} is out of range for {len(self)} rows")
        length = self.length
        return [
            Piece(document, part * length, min(part * length + length, size))
            for document, part, size in self.parts(number % len(self))
        ]

    def parts(self, row: int) -> Iterator[tuple[int, int, int]]:
        """Yield each piece of a row: its document, its number in the document, and its length."""
        begin, end = self._begins[row : row + 2].tolist()
        documents = self._documents[begin:end]
        sizes = self.lengths[documents].tolist()
        return zip(documents.tolist(), self._parts[begin:end].tolist(), sizes, strict=True)

    def __iter__(self) -> Iterator[list[Piece]]:
        return map(self.__getitem__, range(len(self)))

    @cached_property
    def num_tokens(self) -> int:
        """Number of tokens in all rows."""
        starts = self._parts.astype(np.int64) * self.length
        return int(np.minimum(self.lengths[self._documents] - starts, self.length).sum())

    @cached_property
    def most_pieces(self) -> int:
        """Largest number of pieces in a row."""
        return int(np.diff(self._begins).max(initial=1))

    @property
    def padding(self) -> int:
        """Number of padding tokens in all rows."""
        return len(self) * self.length - self.num_tokens

    @property
    def num_left_out(self) -> int:
        """Number of tokens in no row, with overflow="truncate" or "drop"."""
        return int(self.lengths.sum(dtype=np.int64)) - self.num_tokens

    @cached_property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that identify the plan."""
        found = blake2b(f"{self.length} {self.overflow}".encode(), digest_size=8)
        for name, values in self._arrays().items():
            found.update(f" {name} {values.dtype.str} {len(values)} ".encode())
            found.update(np.ascontiguousarray(values).view(np.uint8).data)
        return found.hexdigest()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan to a file in NumPy's `.npz` format, for `load`.

        Args:
            path: The file; an existing one is replaced.
        """
        said: dict[str, Any] = {"length": self.length, "overflow": self.overflow}
        with open(path, "wb") as file:
            np.savez(file, **said, digest=self.digest, **self._arrays())

    @staticmethod
    def load(path: str | PathLike[str]) -> PackingPlan:
        """Read a plan written by `save`.

        Args:
            path: The file.

        Raises:
            ArgumentError: If the file holds no plan, or isn't as it was written.
        """
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as found:
                arrays = [found[name] for name in _ARRAYS]
                length, overflow = int(found["length"]), str(found["overflow"])
                plan = PackingPlan(length, overflow_policy(overflow), *arrays)
                is_whole = plan.digest == str(found["digest"])
        except (ValueError, TypeError, KeyError, EOFError, Unfit, zipfile.BadZipFile) as error:
            raise ArgumentError(f"PackingPlan: {path} holds no plan: {error}") from error
        if not is_whole:
            raise ArgumentError(
                f"PackingPlan: {path} has changed since it was written; make a new plan"
            )
        return plan

    def _arrays(self) -> dict[str, Any]:
        return {
            "lengths": self.lengths,
            "documents": self._documents,
            "parts": self._parts,
            "begins": self._begins,
        }

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, PackingPlan) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<PackingPlan of {len(self)} rows>"


def plan_packing(
    lengths: Sequence[int] | NDArray[np.integer[Any]],
    length: int,
    *,
    seed: int,
    overflow: Overflow = "error",
    window_size: int | None = None,
) -> PackingPlan:
    """Plan rows of `length` tokens from the lengths of documents, for `pack_by_plan`.

    The algorithm is best-fit decreasing: documents are placed from longest to shortest, each in
    the row in which it leaves the least room. The seed decides which documents of the same length
    go together, and the order of the rows. The same arguments give the same plan on any machine.

    Any two rows of a window have more than `length` tokens together, so at most one row is half
    full or less. Shards with the same number of rows differ by at most `plan.padding` tokens.

    Args:
        lengths: Number of tokens of each document, ints >= 0. Empty documents are in no row.
        length: Number of tokens per row, an int >= 1.
        seed: An int >= 0.
        overflow: Treatment of a document longer than `length`. "error" raises an error; "split"
            cuts it into pieces of `length` tokens and a rest; "truncate" keeps its first `length`
            tokens; "drop" drops it. `plan.num_left_out` is the number of tokens lost in this way.
        window_size: Number of consecutive documents that are packed together, an int >= 1, so
            that reading rows in order reads documents almost in order; None for all.

    Returns:
        The plan: `len(plan)`, `plan[row]`, `plan.padding`, `plan.digest`, `plan.save(path)`,
        `PackingPlan.load(path)`. It takes at most 12 bytes per piece and 8 per row, for fewer
        than 2**32 documents of fewer than 2**32 tokens. Making it takes 100 bytes per document
        of a window.

    Raises:
        ArgumentError: If a document is longer than `length`, with "error"; it names the document.

    Source:
        Ding et al., "Fewer Truncations Improve Language Modeling", 2024; and the histogram of
        lengths of Krell et al., "Efficient Sequence Packing without Cross-contamination", 2021.

    >>> import lazyckpt as lz
    >>> plan = lz.plan_packing([3, 1, 2, 2, 9], 4, seed=0, overflow="split")
    >>> for row in plan:
    ...     print(*map(tuple, row))
    (4, 0, 4)
    (2, 0, 2) (3, 0, 2)
    (4, 4, 8)
    (0, 0, 3) (1, 0, 1)
    (4, 8, 9)
    >>> plan.num_tokens, plan.padding
    (17, 3)
    """
    known = checked("plan_packing", "lengths", lengths, _lengths)
    room = checked("plan_packing", "length", length, at_least(1, _MOST))
    key = derive(checked("plan_packing", "seed", seed, natural), "plan_packing")
    policy: Overflow = checked("plan_packing", "overflow", overflow, overflow_policy)
    window = checked("plan_packing", "window_size", window_size, optional(positive))
    sizes = _sizes(known, room, policy)
    window = window or max(1, len(sizes))
    rows = [
        _packed(sizes[first : first + window], first, room, derive(key, first))
        for first in range(0, max(1, len(sizes)), window)
    ]
    documents, parts, counts = map(np.concatenate, zip(*rows, strict=True))
    begins = np.concatenate([[0], counts.cumsum(dtype=np.int64)])
    return PackingPlan(room, policy, known, documents, parts, begins)


def _lengths(value: Any) -> NDArray[Any]:
    try:
        found = np.asarray(as_column(value))
    except ValueError:  # ragged lists
        found = np.asarray(None)
    if not found.size and found.ndim == 1:
        return np.empty(0, np.uint8)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise Unfit("a sequence or one-dimensional array of ints")
    if found.min() < 0:
        worst = int(np.flatnonzero(found < 0)[0])
        raise Unfit(f"ints >= 0, but length {worst} is {found[worst]}")
    return found


def _sizes(lengths: NDArray[Any], length: int, overflow: Overflow) -> NDArray[np.int64]:
    """Return how many tokens of each document go into rows."""
    sizes = lengths.astype(np.int64)
    if overflow == "truncate":
        return np.minimum(sizes, length)
    is_long = sizes > length
    if overflow == "drop":
        return np.where(is_long, 0, sizes)
    if overflow == "error" and is_long.any():
        first = int(is_long.argmax())
        raise ArgumentError(
            f"plan_packing: document {first} has {sizes[first]} tokens, more than "
            f'length={length}; pass overflow="split", "truncate" or "drop"'
        )
    return sizes


def _packed(
    sizes: NDArray[np.int64], first: int, length: int, key: int
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Pack documents into rows; `first` is the number of the first document.

    Returns:
        For each piece, in the order of rows, its document and its number in the document; and for
        each row its number of pieces.
    """
    whole, rest = np.divmod(sizes, length)  # rows that a document fills, and tokens that are left
    filled = np.repeat(np.arange(len(sizes)), whole)
    begins = np.repeat(whole.cumsum() - whole, whole)
    documents = _shuffled_by_size(rest, derive(key, "documents"))
    rows, count = best_fit_decreasing(rest[documents], length)
    every = np.concatenate([np.arange(len(filled)), rows + len(filled)])
    places = _permutation(derive(key, "rows"), count + len(filled))[every]
    order = _sorted_by(places)
    pieces = np.concatenate([filled, documents])
    parts = np.concatenate([np.arange(len(filled)) - begins, whole[documents]])
    counts = np.bincount(places, minlength=count + len(filled))
    return _small(pieces[order] + first), _small(parts[order]), _small(counts)


def _shuffled_by_size(sizes: NDArray[np.int64], key: int) -> NDArray[np.int64]:
    """Number all sizes above 0 by falling size, those of one size in random order."""
    order = _permutation(key, len(sizes))
    falling = sizes.max(initial=0) - sizes[order]
    return order[_sorted_by(falling)[: np.count_nonzero(sizes)]]


def _permutation(key: int, size: int) -> NDArray[np.int64]:
    permutation = Permutation(key, size)
    found = np.empty(size, np.int64)
    for first in range(0, size, _AT_ONCE):
        some = range(first, min(first + _AT_ONCE, size))
        found[first : some.stop] = permutation.at(some)
    return found


def _sorted_by(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Argsort stably; there are fewer than 2**32 keys, and each is below 2**32."""
    tagged = keys.astype(np.uint64) << np.uint64(32)
    tagged |= np.arange(len(keys), dtype=np.uint64)
    tagged.sort()
    return (tagged & np.uint64(_MOST)).astype(np.int64)


def _small(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return ints >= 0 in the smallest type that holds them, little endian."""
    kind = np.min_scalar_type(int(numbers.max(initial=0)))
    return read_only(numbers.astype(kind.newbyteorder("<")))

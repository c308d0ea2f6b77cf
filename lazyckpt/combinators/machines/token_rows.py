"""Sequences of tokens, how many those are, and rows of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Literal, TypeAlias

import numpy as np
import toolz
from numpy.typing import NDArray

from lazyckpt.core.checks import Unfit, brief, is_integer, one_of, unrounded
from lazyckpt.core.registry import Elastic

Features: TypeAlias = dict[str, NDArray[Any]]  # arrays of one length, by name

Pad: TypeAlias = Mapping[str, float]  # what fills up a row, by features

# What becomes of a sequence that is longer than a row.
Overflow: TypeAlias = Literal["error", "split", "truncate", "drop"]
overflow_policy = one_of("error", "split", "truncate", "drop")

_OURS = ("segment_ids", "positions")
_SHOWN = 20  # tokens of a sequence in a message, which are cut
_FEW = 8  # parts, up to which a slice for each takes less time


def token_count(stage: str, size: Any, item: Any) -> int:
    """How many tokens an item has, as a user's function has it; a `TypeError` for what is none."""
    if not is_integer(size) or size < 0:
        raise TypeError(
            f"{stage}: key must give an int >= 0, got {brief(size)} ({type(size).__name__}) "
            f"for {brief(item)}"
        )
    return int(size)


class Segment:
    """Tokens in a row: a sequence, or a part of one.

    How many they are is known at once; their arrays are made when a row is made of them.

    Attributes:
        size: How many tokens it has.
    """

    __slots__ = ("_features", "_make", "size")

    def __init__(self, size: int, make: Callable[[], Features]) -> None:
        self.size = size
        self._make = make
        self._features: Features | None = None

    @property
    def features(self) -> Features:
        """Arrays of one value for each token."""
        if self._features is None:
            self._features = self._make()
        return self._features

    def part(self, begin: int, end: int) -> Segment:
        """The tokens from number `begin` up to `end`."""
        if end - begin == self.size:
            return self

        def made() -> Features:
            return {name: each[begin:end] for name, each in self.features.items()}

        return Segment(end - begin, made)


UnfilledRow: TypeAlias = tuple[list[Segment], int]  # what is in it, and how long it is


def as_segment(stage: str, item: Any) -> Segment:
    """An item that is a sequence of tokens, or a mapping of several features of one length."""
    if isinstance(item, Mapping):
        return _of_features(stage, item)
    size = _count(item)
    if size is None:
        raise _no_sequence(stage, item)
    return Segment(size, lambda: {"tokens": _as_array(stage, item)})


def _of_features(stage: str, item: Mapping[str, Any]) -> Segment:
    counts = {name: _count(values) for name, values in item.items()}
    sizes = {name: count for name, count in counts.items() if count is not None}
    if not sizes:
        raise _no_sequence(stage, item)
    if len(set(sizes.values())) > 1:
        raise ValueError(f"{stage}: the features of an item have unequal lengths {sizes}")
    if taken := [name for name in _OURS if name in item]:
        raise ValueError(f"{stage}: a feature is named {taken[0]!r}, as one that is added")
    size = next(iter(sizes.values()))

    def made() -> Features:
        arrays = {name: _as_array(stage, values) for name, values in item.items()}
        return {name: each if each.ndim else np.full(size, each) for name, each in arrays.items()}

    return Segment(size, made)


def _no_sequence(stage: str, item: Any) -> TypeError:
    return TypeError(
        f"{stage}: expected a sequence of tokens, or a mapping of such, got {brief(item)} "
        f"({type(item).__name__})"
    )


def _count(values: Any) -> int | None:
    """For how many tokens values are; None for one that belongs to each token."""
    if type(values) is list:
        return len(values)
    found = np.asarray(values)
    return len(found) if found.ndim else None


def _as_array(stage: str, values: Any) -> NDArray[Any]:
    if type(values) is np.ndarray:
        return values
    return unrounded(stage, np.asarray(values), [values])


def cut_to_fit(stage: str, whole: Segment, length: int, overflow: Overflow) -> list[Segment]:
    """A sequence longer than `length` in parts, of which all but the last have so many tokens."""
    size = whole.size
    if overflow == "error":
        raise ValueError(
            f"{stage}: a sequence of {size} tokens is longer than length={length}: "
            f"{brief(toolz.first(whole.features.values())[:_SHOWN].tolist())}; "
            'say by overflow="split", "truncate" or "drop" what becomes of it'
        )
    kept = {"split": size, "truncate": length, "drop": 0}[overflow]
    return [whole.part(begin, min(begin + length, size)) for begin in range(0, kept, length)]


def dropped(length: int, overflow: Overflow, **_: Any) -> Callable[[Any], str | None] | None:
    """What says why a sequence is dropped, if it is longer than `length`."""
    return partial(_longer, length) if overflow == "drop" else None


def _longer(length: int, item: Any) -> str | None:
    counts = map(_count, item.values() if isinstance(item, Mapping) else [item])
    size = next((count for count in counts if count is not None), 0)
    return f"{size} tokens are more than length={length}" if size > length else None


REPADDED = Elastic(changes={"pad": "blind"})  # of what changes no row but in what fills it up


def padding(value: Any) -> dict[str, Any]:
    """A dict of numbers by features."""
    if not isinstance(value, Mapping) or not all(map(_is_padding, value.items())):
        raise Unfit('a dict of numbers by features, such as {"labels": -100}')
    return dict(value)


def _is_padding(item: tuple[Any, Any]) -> bool:
    name, number = item
    return isinstance(name, str) and isinstance(number, (int, float, np.bool_, np.number))


def filled_row(stage: str, pad: Pad | None, row: UnfilledRow) -> Features:
    """The segments end to end, filled up with zeros or what `pad` says, numbered and counted."""
    segments, length = row
    parts = [each.features for each in segments]
    first = parts[0]
    for part in parts:
        if part.keys() != first.keys():
            raise ValueError(
                f"{stage}: an item has features {list(part)}, others have {list(first)}"
            )
    if unknown := [name for name in pad or () if name not in first]:
        raise ValueError(f"{stage}: pad names {unknown[0]!r}, and an item has {list(first)}")
    columns = {name: [part[name] for part in parts] for name in first}
    sizes = [each.size for each in segments]
    full = sum(sizes)
    filled = {}
    for name, arrays in columns.items():
        if full < length:
            filler = np.zeros((length - full, *arrays[0].shape[1:]), arrays[0].dtype)
            if pad and name in pad:
                filler[:] = _as_type(stage, name, pad[name], filler.dtype)
            arrays.append(filler)
        filled[name] = unrounded(stage, np.concatenate(arrays), arrays)
    filled["segment_ids"], filled["positions"] = _numbered(sizes, length)
    return filled


def _as_type(stage: str, name: str, number: Any, dtype: np.dtype[Any]) -> Any:
    """What fills up a feature, as that has it."""
    found = np.asarray(number).astype(dtype)
    if dtype.kind in "biu" and found != number:
        raise ValueError(
            f"{stage}: pad={{{name!r}: {number}}} is no {dtype}, which {name} is of; "
            f"give {name} another type, such as int64"
        )
    return found


def _numbered(sizes: list[int], length: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """For each token the number of its part, from 1, and its place in that."""
    numbers, places = np.zeros(length, np.int32), np.zeros(length, np.int32)
    if len(sizes) > _FEW:
        counts = np.array(sizes)
        ends = counts.cumsum()
        full = int(ends[-1])
        numbers[:full] = np.arange(1, len(sizes) + 1).repeat(counts)
        places[:full] = np.arange(full) - (ends - counts).repeat(counts)
        return numbers, places
    begin, known = 0, _counted(length)
    for number, size in enumerate(sizes, 1):
        numbers[begin : begin + size] = number
        places[begin : begin + size] = known[:size]
        begin += size
    return numbers, places


@lru_cache(maxsize=4)
def _counted(length: int) -> NDArray[np.int32]:
    return np.arange(length, dtype=np.int32)

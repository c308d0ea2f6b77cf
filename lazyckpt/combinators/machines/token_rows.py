"""Token sequences: their lengths, and rows of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from typing import Any, Literal, TypeAlias

import numpy as np
import toolz
from numpy.typing import NDArray

from lazyckpt.core.checks import Unfit, brief, is_integer, one_of, unchanged
from lazyckpt.core.cut import Cut
from lazyckpt.core.registry import Elastic

Features: TypeAlias = dict[str, NDArray[Any]]  # arrays of one length, by name

Pad: TypeAlias = Mapping[str, float]  # padding, by feature

# The treatment of a sequence longer than a row.
Overflow: TypeAlias = Literal["error", "split", "truncate", "drop"]
overflow_policy = one_of("error", "split", "truncate", "drop")

_OURS = ("segment_ids", "positions")
_SHOWN = 20  # tokens of a sequence that a message shows
_FEW = 8  # parts up to which one slice per part is faster


def token_count(stage: str, size: Any, item: Any) -> int:
    """Check the number of tokens that a user's function returned; a `TypeError` if invalid."""
    if not is_integer(size) or size < 0:
        raise TypeError(
            f"{stage}: key must return an int >= 0, got {brief(size)} ({type(size).__name__}) "
            f"for {brief(item)}"
        )
    return int(size)


UnfilledRow: TypeAlias = tuple[list[Any], int]  # its sequences and parts, and its length


def size_of(stage: str, item: Any) -> int:
    """Return the number of tokens of a sequence, a mapping of features, or a part."""
    if type(item) is Cut:
        return item.end - item.begin
    is_one = type(item) in (list, np.ndarray) or not isinstance(item, Mapping)
    if is_one and (count := _count(item)) is not None:
        return count
    fields = {} if is_one else item
    counts = {name: _count(values) for name, values in fields.items()}
    sizes = {name: count for name, count in counts.items() if count is not None}
    if not sizes:
        raise TypeError(
            f"{stage}: expected a sequence of tokens, or a mapping of such, got {brief(item)} "
            f"({type(item).__name__})"
        )
    if len(set(sizes.values())) > 1:
        raise ValueError(f"{stage}: the features of an item have unequal lengths {sizes}")
    if taken := [name for name in _OURS if name in fields]:
        raise ValueError(f"{stage}: a feature has the reserved name {taken[0]!r}")
    return next(iter(sizes.values()))


def _count(values: Any) -> int | None:
    """Return the number of tokens that values describe; None if they apply to each token."""
    if type(values) is list:
        return len(values)
    found = np.asarray(values)
    return len(found) if found.ndim else None


def features_of(stage: str, item: Any) -> Features:
    """Return arrays with one value per token of a sequence, or of a part of one."""
    if type(item) is Cut:
        return item.features
    if type(item) in (list, np.ndarray) or not isinstance(item, Mapping):
        return {"tokens": _as_array(stage, item)}
    arrays = {name: _as_array(stage, values) for name, values in item.items()}
    size = next(len(each) for each in arrays.values() if each.ndim)
    return {name: each if each.ndim else np.full(size, each) for name, each in arrays.items()}


def _as_array(stage: str, values: Any) -> NDArray[Any]:
    if type(values) is np.ndarray:
        return values
    return unchanged(stage, np.asarray(values), [values])


def cutting(stage: str, item: Any) -> Callable[[int, int], Any]:
    """Return a function that cuts the part of a sequence between two tokens."""
    if type(item) is np.ndarray:
        return lambda begin, end: item[begin:end]
    if type(item) is Cut:
        return lambda begin, end: Cut(item.whole, item.begin + begin, item.begin + end)
    return partial(Cut, cache(partial(features_of, stage, item)))


def whole_sequence(stage: str) -> Callable[[Any], Cut]:
    """Return a function from a sequence to a cut of all of it, which pickles with its sequence."""
    return lambda item: Cut(partial(features_of, stage, item), 0, size_of(stage, item))


def cut_to_fit(stage: str, item: Any, size: int, length: int, overflow: Overflow) -> list[Any]:
    """Cut a sequence longer than `length` into parts of that length, and a rest."""
    if overflow == "error":
        shown = toolz.first(features_of(stage, item).values())[:_SHOWN].tolist()
        raise ValueError(
            f"{stage}: a sequence of {size} tokens is longer than length={length}: "
            f"{brief(shown)}; "
            'pass overflow="split", "truncate" or "drop"'
        )
    kept = {"split": size, "truncate": length, "drop": 0}[overflow]
    cut = cutting(stage, item)
    return [cut(begin, min(begin + length, size)) for begin in range(0, kept, length)]


def dropped(length: int, overflow: Overflow, **_: Any) -> Callable[[Any], str | None] | None:
    """Return a function that explains why a sequence is dropped, if it is longer than `length`."""
    return partial(_longer, length) if overflow == "drop" else None


def _longer(length: int, item: Any) -> str | None:
    counts = map(_count, item.values() if isinstance(item, Mapping) else [item])
    size = next((count for count in counts if count is not None), 0)
    return f"{size} tokens are more than length={length}" if size > length else None


REPADDED = Elastic(changes={"pad": "blind"})  # for stages in which only the padding may change


def padding(value: Any) -> dict[str, Any]:
    """Check a dict of numbers by feature."""
    if not isinstance(value, Mapping) or not all(map(_is_padding, value.items())):
        raise Unfit('a dict of numbers by feature, such as {"labels": -100}')
    return dict(value)


def _is_padding(item: tuple[Any, Any]) -> bool:
    name, number = item
    return isinstance(name, str) and isinstance(number, (int, float, np.bool_, np.number))


def filled_row(stage: str, pad: Pad | None, row: UnfilledRow) -> Features:
    """Concatenate the parts of a row, pad it, and number segments and positions."""
    items, length = row
    parts = [features_of(stage, item) for item in items]
    first = parts[0]
    for part in parts:
        if part.keys() != first.keys():
            raise ValueError(
                f"{stage}: an item has features {list(part)}, others have {list(first)}"
            )
    if unknown := [name for name in pad or () if name not in first]:
        raise ValueError(f"{stage}: pad has {unknown[0]!r}, but an item has {list(first)}")
    columns = {name: [part[name] for part in parts] for name in first}
    sizes = [len(each) for each in toolz.first(columns.values())]
    full = sum(sizes)
    filled = {}
    for name, arrays in columns.items():
        if full < length:
            filler = np.zeros((length - full, *arrays[0].shape[1:]), arrays[0].dtype)
            if pad and name in pad:
                filler[:] = _as_type(stage, name, pad[name], filler.dtype)
            arrays.append(filler)
        filled[name] = unchanged(stage, np.concatenate(arrays), arrays)
    filled["segment_ids"], filled["positions"] = _numbered(sizes, length)
    return filled


def _as_type(stage: str, name: str, number: Any, dtype: np.dtype[Any]) -> Any:
    """Return the padding of a feature, in its type."""
    found = np.asarray(number).astype(dtype)
    if dtype.kind in "biuUS" and found != number:
        raise ValueError(
            f"{stage}: pad={{{name!r}: {number}}} is not a valid {dtype}, the type of {name}; "
            f"convert {name} to a different type, such as int64"
        )
    return found


def _numbered(sizes: list[int], length: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return, per token, the number of its part, from 1, and its position within the part."""
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

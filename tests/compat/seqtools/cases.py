"""Functions, data and batches for the tests of `lazyckpt.compat.seqtools`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from hypothesis import strategies as st

from lazyckpt.compat import seqtools as ours

theirs: Any = import_module("seqtools") if sys.version_info < (3, 13) else None
LIBRARIES: list[Any] = [ours] if theirs is None else [ours, theirs]
beside_theirs = pytest.mark.skipif(theirs is None, reason="SeqTools has no wheel for this Python")

REFUSED = ValueError  # by both libraries, each in words of its own


def double(x: Any) -> Any:
    return x * 2


def fails_at_five(x: int) -> int:
    if x == 5:
        raise KeyError("five")
    return x


def as_list(batch: Any) -> Any:
    return [int(each) for each in batch]


def plain(value: Any) -> Any:
    """Something that `==` compares, of any batch."""
    kind = type(value).__name__
    if kind in ("ndarray", "Tensor"):
        return kind, str(value.dtype), value.tolist()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return kind, [plain(each) for each in value]
    return value


def outcomes(items: Any, most: int = 10**6) -> list[Any]:
    """All items, the names of errors in their places."""
    found, iterator = [], iter(items)
    while len(found) < most:
        try:
            found.append(next(iterator))
        except StopIteration:
            break
        except Exception as error:
            found.append(type(error).__name__)
    return found


class Endless:
    """A sequence without a length."""

    def __getitem__(self, index: int) -> int:
        return index * 10


class Ends(Endless):
    def __getitem__(self, index: int) -> int:
        if index >= 7:
            raise IndexError(index)
        return index


ITEMS = st.lists(st.one_of(st.integers(-5, 5), st.none(), st.text(max_size=2)), max_size=12)


def same(x: Any) -> Any:
    return x


class IterableTen:
    """A stream."""

    def __init__(self, size: int = 10) -> None:
        self.size = size

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.size))


TOLD: list[int] = []


def tell(number: int) -> None:
    TOLD.append(number)


class Repeated:
    """A batch or index sampler that is no sequence."""

    def __init__(self, items: list[Any], sized: bool = True) -> None:
        self.items = items
        if sized:
            self.__class__ = Sized

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self.items))


class Sized(Repeated):
    def __len__(self) -> int:
        return len(self.items)

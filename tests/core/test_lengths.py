"""Lengths of users' data; their errors are raised unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.compat.gluon import ShardedDataLoader
from lazyckpt.compat.samplers import sampler
from lazyckpt.compat.seqtools import DataLoader, LazySequence, smap
from lazyckpt.core.checks import length_of


class Endless:
    def __getitem__(self, index: int) -> int:
        return index

    def __iter__(self) -> Iterator[int]:
        return iter([1, 0])


class Sized(Endless):
    """Data whose length is the result of a function."""

    def __init__(self, length: Callable[[], Any]) -> None:
        self.length = length

    def __len__(self) -> Any:
        return self.length()


def unwritten() -> int:
    raise NotImplementedError


def broken(kind: type[Exception] = TypeError) -> Any:
    raise kind("mine")


NO_LENGTH = {
    "none": Endless(),
    "an unwritten one": Sized(unwritten),
    "that of what has none": Sized(lambda: len(iter([]))),  # type: ignore[arg-type]  # so it is
    "an endless sequence's": smap(abs, Endless()),
    "a stream's": lz.source(Endless()) | lz.filter(bool),
}


@pytest.mark.parametrize("data", NO_LENGTH.values(), ids=NO_LENGTH)
def test_some_data_have_no_length(data: Any) -> None:
    assert length_of(data) is None
    assert length_of(Sized(lambda: length_of([data]))) == 1


@pytest.mark.parametrize("data", [Endless(), Sized(unwritten), NO_LENGTH["that of what has none"]])
def test_what_has_no_length_is_read_all_the_same(data: Any) -> None:
    assert LazySequence.of(data)[7] == 7
    assert list(sampler(data)) == [1, 0]


ERRORS = {
    "an error": (broken, "mine"),
    "none yet": (lambda: len(None), "'NoneType' has no len"),  # type: ignore[arg-type]  # so it is
    "no int": (lambda: 2.5, "'float' object cannot be interpreted as an integer"),
}


@pytest.mark.parametrize("read", [length_of, LazySequence.of, sampler, lz.source])
@pytest.mark.parametrize("error", ERRORS)
def test_an_error_of_a_length_comes_through(read: Callable[[Any], Any], error: str) -> None:
    length, message = ERRORS[error]
    with pytest.raises(TypeError, match=message):
        read(Sized(length))


class Number:
    """It fails in whatever is done with it."""

    def __init__(self, kind: type[Exception]) -> None:
        self.kind = kind

    def __index__(self) -> int:
        raise self.kind("mine")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise self.kind("mine")

    def __lt__(self, other: object) -> bool:
        raise self.kind("mine")

    def __fspath__(self) -> str:
        raise self.kind("mine")

    def __iter__(self) -> Iterator[float]:
        raise self.kind("mine")

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        raise self.kind("mine")


class Mine(TypeError, ValueError):
    pass


FIVE = lz.source(range(5))
USES: dict[str, Callable[[Any], Any]] = {
    "a column": lambda number: lz.columns(x=number),
    "a batch size": lambda number: FIVE | lz.batch(number),
    "weights": lambda number: next(iter(lz.mix([FIVE], weights=lambda t: number, seed=0))),
    "a size": lambda number: list(
        FIVE | lz.bucket_by_boundaries([3], [2, 2], key=lambda x: number)
    ),
    "a path": lambda number: lz.save(lz.init(FIVE), number),
    "indices": lambda number: list(ShardedDataLoader(range(5), batch_sampler=[number])),
}


@pytest.mark.parametrize("use", USES)
def test_an_error_of_a_value_comes_through(use: str) -> None:
    with pytest.raises(Mine, match="mine"):
        USES[use](Number(Mine))


def test_an_error_of_a_subclass_s_property_comes_through() -> None:
    class Own(DataLoader):
        @property
        def width(self) -> int:
            return self.missing  # type: ignore[no-any-return, attr-defined]  # so it is

    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        _ = Own(range(3)).width

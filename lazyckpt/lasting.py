"""Iterators over blocks of items that an error, or an interrupt, doesn't end."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import chain
from typing import Any, TypeVar

T = TypeVar("T")


def lasting(ask: Callable[[], Iterator[Iterator[T]] | None]) -> Iterator[T]:
    """The items of one iterator over blocks after another. An error doesn't end them."""
    return chain.from_iterable(_lasting(ask))


def _lasting(
    ask: Callable[[], Iterator[Iterator[T]] | None],
) -> Generator[Iterator[T], None, None]:
    blocks: Iterator[Iterator[T]] | None = iter(())
    while True:
        try:  # an interrupt may come at any `yield`
            while blocks is not None:
                yield from blocks
                blocks = ask()
            return
        except GeneratorExit:
            raise
        except BaseException as error:
            blocks = iter((raising(error),))


def raising(error: BaseException) -> Iterator[Any]:
    """A block that is an error, which the chain of blocks outlives."""
    try:
        raise error
    finally:
        del error  # its traceback has this frame, which would be a cycle
    yield  # type: ignore[unreachable]  # which makes it a generator

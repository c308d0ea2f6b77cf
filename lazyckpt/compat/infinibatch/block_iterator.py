"""Iterators that cost no Python frame an item, and go on after their end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from itertools import chain, compress, repeat
from typing import TYPE_CHECKING, Any, Self
from weakref import ref

if TYPE_CHECKING:
    Compress = compress[Any]
else:
    Compress = compress


class _End:
    """Stands where `compress` asks whether to give an item, after the last one."""

    def __bool__(self) -> bool:
        raise StopIteration


_GIVEN: list[Any] = [True] * 256
_OVER: list[Any] = [_End()]


class BlockIterator(Compress):
    """An iterator over blocks of items, which are asked for one after another.

    At the end of all, and after an error, it asks again when `next` is called again.
    """

    # What is made of itertools is over for good at its end. So these never come to one:
    # there is always another block, at the end one with an item that is not given,
    # and what is asked whether to give it raises StopIteration.

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        owner: list[Callable[[], Any]] = []
        given = [*_GIVEN]
        items = chain.from_iterable(_blocks(owner, given))
        self = super().__new__(cls, items, chain.from_iterable(repeat(given)))
        owner.append(ref(self))
        return self

    @abstractmethod
    def _block(self) -> Iterator[Any] | None:
        """The next items, or None at the end."""


def _blocks(owner: list[Callable[[], Any]], given: list[Any]) -> Iterator[Iterator[Any]]:
    while True:
        try:
            block = owner[0]()._block()
            if (block is None) is (len(given) > 1):
                given[:] = _OVER if block is None else _GIVEN
            block = iter([None]) if block is None else block
        except BaseException as error:
            block = _raising(error)  # for a generator that raises is over for good
        yield block


def _raising(error: BaseException) -> Iterator[Any]:
    raise error
    yield  # type: ignore[unreachable]  # which makes it a generator

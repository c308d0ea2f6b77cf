"""An iterator over blocks of items, which has no Python frame an item, and outlives errors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator
from itertools import chain, compress, repeat
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar
from weakref import ref

T = TypeVar("T")


class _End:
    """Stands where `compress` asks whether to give an item, after the last one."""

    def __bool__(self) -> bool:
        raise StopIteration


_GIVEN: list[Any] = [True] * 256
_OVER: list[Any] = [_End()]


class BlockIterator(compress, Generic[T]):  # type: ignore[type-arg]  # it takes none when it runs
    """An iterator over blocks of items, at no Python frame an item.

    At the end of all, and after an error, it asks again when `next` is called again.
    """

    # What is made of itertools is over for good at its end. So these never come to one:
    # there is always another block, at the end one with an item that is not given,
    # and what is asked whether to give it raises StopIteration.

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        given = [*_GIVEN]
        blocks = _blocks(given)
        next(blocks)
        self = super().__new__(cls, chain.from_iterable(blocks), chain.from_iterable(repeat(given)))
        blocks.send(ref(self))
        return self

    if TYPE_CHECKING:

        def __next__(self) -> T: ...

    @abstractmethod
    def _block(self) -> Iterator[T] | None:
        """The next items, or None at the end."""


def _blocks(given: list[Any]) -> Generator[Iterator[Any], Callable[[], Any], None]:
    owner = yield iter(())
    block: Iterator[Any] | None = iter(())
    while True:
        try:  # an interrupt may come at any `yield`
            while True:
                yield iter([None]) if block is None else block
                block = owner()._block()
                given[:] = _OVER if block is None else _GIVEN
        except GeneratorExit:
            return
        except BaseException as error:
            block = raising(error)  # for a generator that raises is over for good


def raising(error: BaseException) -> Iterator[Any]:
    """A block that is an error, which the chain of blocks outlives."""
    try:
        raise error
    finally:
        del error  # its traceback has this frame, which would be a cycle
    yield  # type: ignore[unreachable]  # which makes it a generator


def lasting(
    ask: Callable[[], Iterator[Iterator[Any]] | None],
) -> Generator[Iterator[Any], None, None]:
    """The blocks of one iterator after another; an error of these comes as a block."""
    blocks: Iterator[Iterator[Any]] | None = iter(())
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

"""`unfold`, `from_generator`, `once`: items computed by a function, and a single item."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from lazyckpt.combinators.source import iterated, source
from lazyckpt.core.checks import brief, function
from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import MOST, End, Machine, countable, within
from lazyckpt.core.show import show
from lazyckpt.core.stages import sourced
from lazyckpt.core.user_state import copied, freeze, storable, thaw
from lazyckpt.decorators import source_combinator

S = TypeVar("S")
T = TypeVar("T")


@source_combinator(checks={"step": function, "init": storable})
def unfold(step: Callable[[S], tuple[S, T] | None], init: S) -> Machine[T]:
    """Yield the items of a pure generator: `step(state) -> (state, item)`, or None at the end.

    Each epoch begins at `init`.

    Args:
        step: Function of the state. It may change the state in place, because it is called on a
            copy.
        init: The first state: None, bool, int, float, str, and lists, dicts and tuples of them.

    Raises:
        InvalidState: If a state is of another type; raised when that state is first read.

    State:
        The epoch, a count of items, your own state as it is, and whether it has ended.

    Resume:
        Re-reads nothing.

    Random access:
        No.

    Rank-invariant:
        Yes.

    >>> import lazyckpt as lz
    >>> fibonacci = lz.unfold(lambda s: ((s[1], s[0] + s[1]), s[0]), (0, 1))
    >>> list(fibonacci | lz.take(8))
    [0, 1, 1, 2, 3, 5, 8, 13]
    """

    def once(position: Position) -> tuple[Position, T]:
        epoch, index, mine, ended = position
        found = None if ended else step(thaw(mine))
        if found is None:
            raise End((epoch, index, freeze(None, "unfold"), 1))
        state, item = found
        return (epoch, countable("unfold", index + 1), freeze(state, "unfold"), 0), item

    def flow(position: Position) -> Flow[T]:
        epoch, index, mine, ended = position
        state = thaw(mine)

        def items() -> Iterator[T]:
            nonlocal state, ended
            while not ended:
                found = step(copied(state, "unfold"))
                if found is None:
                    state, ended = None, 1
                    return
                state = copied(found[0], "unfold")
                yield found[1]

        def snapshot() -> Position:
            number = countable("unfold", index + taken())
            return epoch, number, freeze(state, "unfold"), ended

        stream, taken = counted(items())
        return Flow(stream, snapshot, taken=taken)

    return sourced(
        "unfold",
        first=(freeze(init, "unfold"), 0),
        check=lambda mine, ended: (thaw(mine), within("unfold", ended, 1)),
        most=MOST,
        step=once,
        flow=flow,
    )


@source_combinator(checks={"fn": function})
def from_generator(fn: Callable[..., Iterable[T]], *args: Any) -> Machine[T]:
    """Yield the items of `fn(*args)`, which is called again for each epoch.

    It must yield the same items in the same order each time. If each item can be computed from
    the one before, `unfold` resumes without computing the earlier items again.

    Args:
        fn: A generator function, or any function that returns an iterable.
        args: Its arguments.

    Raises:
        TypeError: If `fn` doesn't return an iterable.
        SourceChanged: If there are fewer items than before.

    State:
        The epoch and a count of items.

    Resume:
        Re-reads all earlier items of the epoch.

    Random access:
        No.

    Rank-invariant:
        Yes.

    >>> import lazyckpt as lz
    >>> def squares(n):
    ...     for number in range(n):
    ...         yield number**2
    >>> list(lz.from_generator(squares, 5))
    [0, 1, 4, 9, 16]
    """
    return iterated("from_generator", _Called(fn, args))


class _Called(Iterable[T]):
    """An iterable that calls a function for each iterator."""

    def __init__(self, fn: Callable[..., Iterable[T]], args: tuple[Any, ...]) -> None:
        self._fn, self._args = fn, args

    def __iter__(self) -> Iterator[T]:
        found = self._fn(*self._args)
        if not isinstance(found, Iterable):
            raise TypeError(
                f"from_generator: {self!r} must return an iterable, got {brief(found)} "
                f"({type(found).__name__})"
            )
        return iter(found)

    def __repr__(self) -> str:
        return f"{show(self._fn)}({', '.join(map(show, self._args))})"


@source_combinator(describe=lambda value: {})
def once(value: T) -> Machine[T]:
    """Yield one item: `value`.

    Args:
        value: The item, of any type.

    State:
        The epoch and a count of items.

    Resume:
        Re-reads nothing.

    Random access:
        Yes.

    Rank-invariant:
        Yes.

    >>> import lazyckpt as lz
    >>> list(lz.concat(lz.once("header"), lz.source(["a", "b"])))
    ['header', 'a', 'b']
    """
    data: Any = [value]
    return source(data).machine

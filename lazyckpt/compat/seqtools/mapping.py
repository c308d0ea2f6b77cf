"""`smap` and `starmap`: a function of items, whose errors say which item."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import lazyckpt as lz
from lazyckpt.compat.seqtools.errors import EvaluationError, chosen
from lazyckpt.compat.seqtools.sequence import LazySequence
from lazyckpt.core.checks import checked, function
from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import Machine, Rate, begun
from lazyckpt.core.show import show, written_at
from lazyckpt.core.stages import stateless
from lazyckpt.decorators import combinator
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Pipeline
from lazyckpt.state.codec import given

A = TypeVar("A")
B = TypeVar("B")


def smap(f: Callable[..., B], *sequences: Iterable[Any]) -> LazySequence[B]:
    """`f` of every item; of one item from each sequence, as long as the shortest, of several.

    >>> list(smap(lambda x, y: x + y, [1, 2, 3], [10, 20]))
    [11, 22]
    """
    if not sequences:
        raise ArgumentError("smap: at least one sequence is needed, got none")
    if len(sequences) == 1:
        return _smap(LazySequence.of(*sequences), f, False, *sequences)
    return _smap(lz.zip(*map(LazySequence.of, sequences)), f, True, *sequences)


def starmap(f: Callable[..., B], sequence: Iterable[Iterable[Any]]) -> LazySequence[B]:
    """`f(*item)` for every item. Errors are as `smap`'s."""
    return _smap(LazySequence.of(sequence), f, True, sequence)


def _smap(
    items: Pipeline[Any], f: Callable[..., Any], spread: bool, *sequences: Any
) -> LazySequence[Any]:
    checked("smap", "f", f, function)
    fn = _Evaluation(f, spread, written_at())
    return LazySequence(items | seqtools_smap(fn), None, sequences, fn.walk, can_fail=True)


@dataclass(frozen=True)
class _Evaluation:
    """The user's function, and where it was given."""

    func: Callable[..., Any]
    spread: bool
    site: str

    def __post_init__(self) -> None:
        self.__dict__["__qualname__"] = show(self.func)

    def walk(self, *sequences: Iterable[Any]) -> Iterator[Any]:
        """What the function makes of items that never fail; it goes on behind an error."""
        func, is_over = self.func, False
        several = sequences[0] if len(sequences) == 1 else zip(*sequences, strict=False)
        items, taken = counted(several)

        def stretch() -> Iterator[Any]:
            nonlocal is_over
            try:
                if self.spread:
                    for item in items:
                        yield func(*item)
                else:
                    for item in items:
                        yield func(item)
            except Exception as error:
                raise chosen(self.failed(error, taken() - 1))  # noqa: B904  # it has its cause
            is_over = True

        return chain.from_iterable(iter(lambda: None if is_over else stretch(), None))

    def failed(self, error: Exception, number: int | None) -> Exception:
        """The error of an item, which says its number, if that is known."""
        which = "an item" if number is None else f"item {number}"
        return EvaluationError.of(error, f"{which} of smap({show(self.func)})", self.site)


@combinator(registered=False, unrecorded=("fn",), pointwise=True)
def seqtools_smap(upstream: Machine[Any], fn: _Evaluation) -> Machine[Any]:
    """The machine of `map(fn)`, which knows the number of an item where `fn` fails."""
    alone: Any = upstream.item
    func, spreads = fn.func, fn.spread

    def number(position: Position, more: int = 0) -> int | None:
        """That of an item so many behind a position, in its epoch."""
        found = given(upstream, position) if begun(upstream, position) else 0
        epoch = upstream.length if isinstance(upstream.length, int) else sys.maxsize
        return None if found is None else found % max(epoch, 1) + more

    def item(position: Position, n: int) -> Any:
        found = alone(position, n)
        try:
            return func(*found) if spreads else func(found)
        except Exception as error:
            raise fn.failed(error, number(position, n))  # noqa: B904  # it has its cause

    def flow(position: Position) -> Flow[Any]:
        before = upstream.flow(position)
        items, taken = counted(before)

        def made() -> Iterator[Any]:
            for each in items:
                try:
                    yield func(*each) if spreads else func(each)
                except Exception as error:
                    where = number(position, taken() - 1)
                    raise fn.failed(error, where)  # noqa: B904  # it has its cause

        return Flow(made(), before.snapshot)

    return stateless(
        upstream,
        rate=Rate(),
        flow=flow,
        skip=upstream.skip,
        item=item,
        length=upstream.length,
    )

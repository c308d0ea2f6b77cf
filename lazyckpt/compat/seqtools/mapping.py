"""`smap` and `starmap`: a function of items, whose errors say which item."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

import lazyckpt as lz
from lazyckpt.compat.seqtools.errors import EvaluationError
from lazyckpt.compat.seqtools.sequence import LazySequence
from lazyckpt.core.checks import checked, function
from lazyckpt.core.flow import Flow, Position, Table, View, counted
from lazyckpt.core.machine import Machine, Rate, begun
from lazyckpt.core.show import show, written_at
from lazyckpt.core.stages import stateless
from lazyckpt.decorators import combinator
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Stage
from lazyckpt.state.rebase import given

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
        return LazySequence(LazySequence.of(*sequences) | _mapped(f, False))
    return LazySequence(lz.zip(*map(LazySequence.of, sequences)) | _mapped(f, True))


def starmap(f: Callable[..., B], sequence: Iterable[Iterable[Any]]) -> LazySequence[B]:
    """`f(*item)` for every item. Errors are as `smap`'s."""
    return LazySequence(LazySequence.of(sequence) | _mapped(f, True))


def _mapped(f: Callable[..., Any], spread: bool) -> Stage[Any, Any]:
    checked("smap", "f", f, function)
    return seqtools_smap(_Evaluation(f, spread, written_at()))


@dataclass(frozen=True)
class _Evaluation:
    """The user's function, and where it was given."""

    func: Callable[..., Any]
    spread: bool
    site: str

    def __post_init__(self) -> None:
        self.__dict__["__qualname__"] = show(self.func)

    def __call__(self, item: Any, number: Callable[[], int | None]) -> Any:
        """What the function makes of an item; its error says the item's number, if that is known.

        An `EvaluationError` comes from further below, and says so already.
        """
        try:
            return self.func(*item) if self.spread else self.func(item)
        except EvaluationError:
            raise
        except Exception as error:
            known = number()
            which = "an item" if known is None else f"item {known}"
            what = f"{which} of smap({show(self.func)})"
            raise EvaluationError.of(error, what, self.site)  # noqa: B904  # it has its cause


@combinator(registered=False, pointwise=True)
def seqtools_smap(upstream: Machine[A], fn: _Evaluation) -> Machine[Any]:
    """The machine of `map(fn)`, which knows the number of an item where `fn` fails."""
    view = upstream.view

    def number(position: Position, more: int = 0) -> int | None:
        """That of an item so many behind a position, in its epoch."""
        found = given(upstream, position) if begun(upstream, position) else 0
        epoch = upstream.length if isinstance(upstream.length, int) else sys.maxsize
        return None if found is None else found % max(epoch, 1) + more

    def step(position: Position) -> tuple[Position, Any]:
        after, item = upstream.step(position)
        return after, fn(item, lambda: number(position))

    def flow(position: Position) -> Flow[Any]:
        before = upstream.flow(position)
        items, taken = counted(before)

        def made(item: A) -> Any:
            return fn(item, lambda: number(position, taken() - 1))

        return Flow(items, before.snapshot, made, taken)

    return stateless(
        upstream,
        rate=Rate(),
        step=step,
        flow=flow,
        skip=upstream.skip,
        length=upstream.length,
        view=None if view is None else _viewed(upstream, view, fn),
    )


def _viewed(upstream: Machine[A], view: View[A], fn: _Evaluation) -> View[Any]:
    get, rows = view.table[:2]

    def one(index: int, item: Any) -> Any:
        return fn(item, lambda: number(index))

    def number(index: int) -> int | None:
        """That of an item of the table, or of the first of several."""
        if not isinstance(upstream.length, int):
            return None
        order = np.asarray(view.ahead(upstream.init(0), range(upstream.length)))
        return int(np.argmax(order == index))

    def many(indices: Any) -> list[Any]:
        assert rows is not None
        return [one(int(index), item) for index, item in zip(indices, rows(indices), strict=True)]

    return View(Table(lambda index: one(index, get(index)), rows and many), view.ahead)

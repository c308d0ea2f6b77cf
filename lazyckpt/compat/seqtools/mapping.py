"""`smap` and `starmap`: a function of items, whose errors say which item."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import lazyckpt as lz
from lazyckpt.compat.seqtools.errors import EvaluationError
from lazyckpt.compat.seqtools.sequence import LazySequence
from lazyckpt.core.checks import checked, function
from lazyckpt.core.show import show, written_at
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Pipeline

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
        return _smap(LazySequence.of(*sequences), f, spread=False)
    return _smap(lz.zip(*map(LazySequence.of, sequences)), f, spread=True)


def starmap(f: Callable[..., B], sequence: Iterable[Iterable[Any]]) -> LazySequence[B]:
    """`f(*item)` for every item. Errors are as `smap`'s."""
    return _smap(LazySequence.of(sequence), f, spread=True)


def _smap(items: Pipeline[Any], f: Callable[..., Any], spread: bool) -> LazySequence[Any]:
    checked("smap", "f", f, function)
    return LazySequence(items | lz.enumerate() | lz.map(_Evaluation(f, spread, written_at())))


@dataclass(frozen=True)
class _Evaluation:
    """The user's function, and where it was given."""

    func: Callable[..., Any]
    spread: bool
    site: str

    def __post_init__(self) -> None:
        self.__dict__["__qualname__"] = show(self.func)

    def __call__(self, numbered: tuple[int, Any]) -> Any:
        number, item = numbered
        try:
            return self.func(*item) if self.spread else self.func(item)
        except Exception as error:
            what = f"item {number} of smap({show(self.func)})"
            raise EvaluationError.of(error, what, self.site)  # noqa: B904  # it has its cause

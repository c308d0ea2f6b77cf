"""`smap` and `starmap`: a function of items."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from lazyckpt.compat.seqtools import evaluating
from lazyckpt.compat.seqtools.sequence import LazySequence, built_at, produced
from lazyckpt.core.call import Call, show
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Stage

B = TypeVar("B")


def smap(f: Callable[..., B], *sequences: Iterable[Any]) -> LazySequence[B]:
    """`f` of every item; of one item from each sequence, where there are several.

    - `f`: called when an item is read, each time anew

    It is as long as the shortest sequence ([D]: its length was the first's, so
    that indices failed which `len` promised).

    Errors: `EvaluationError` where `f` or what is below it raises.

    >>> list(smap(lambda x, y: x + y, [1, 2, 3], [10, 20]))
    [11, 22]
    """
    if not sequences:
        raise ArgumentError("smap: at least one sequence is needed, got none")
    pipelines = [LazySequence.of(each) for each in sequences]
    if len(pipelines) == 1:
        return LazySequence(pipelines[0] | _smap(f, False))
    return LazySequence(produced("zip", *pipelines) | _smap(f, True))


def starmap(f: Callable[..., B], sequence: Iterable[Iterable[Any]]) -> LazySequence[B]:
    """`f(*item)` for every item.

    Errors: as `smap`'s.

    >>> list(starmap(pow, [(2, 5), (3, 2)]))
    [32, 9]
    """
    return LazySequence(LazySequence.of(sequence) | _smap(f, True))


def _smap(f: Callable[..., Any], spread: bool) -> Stage[Any, Any]:
    if not callable(f):
        raise ArgumentError(f"smap: f must be callable, got f={show(f)} ({type(f).__name__})")
    site = built_at()
    (call,) = evaluating.smap(evaluating.Evaluation(f, spread, site)).calls
    return Stage((Call(call.combinator, call.arguments, site),))

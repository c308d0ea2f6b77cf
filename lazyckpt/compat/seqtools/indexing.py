"""Sequences of ints, items by index, and sequences joined."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from itertools import chain
from typing import Any, SupportsIndex, TypeVar

import numpy as np

from lazyckpt.compat.seqtools.sequence import UNCHANGED, LazySequence, arranged, produced, stage
from lazyckpt.core.checks import checked, is_integer, natural, optional
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Pipeline, Stage

A = TypeVar("A")


def arange(start: int, stop: int | None = None, step: int | None = None) -> LazySequence[int]:
    """The ints of `range`, with the same arguments.

    [D]: indices out of range raise `IndexError`; they gave numbers beyond the end.

    >>> list(arange(2, 9, 3))
    [2, 5, 8]
    """
    first, end = (0, start) if stop is None else (start, stop)
    return LazySequence(produced("source", range(first, end, 1 if step is None else step)))


def gather(sequence: Iterable[A], indexes: Iterable[SupportsIndex]) -> LazySequence[A]:
    """The items at `indexes`, in their order; any may come again, negative ones count from the end.

    A range, list, tuple or array is looked through at once; of any other sequence,
    also one without end, an index is read when it's used.

    >>> list(gather("held", [1, 2, 2, -4]))
    ['e', 'l', 'l', 'h']
    """
    if hasattr(indexes, "__array__"):
        indexes = np.asarray(indexes)
    if isinstance(indexes, (range, list, tuple, np.ndarray)):
        return arranged([sequence], stage("gather", indexes))
    return arranged([sequence], partial(_looked_up, LazySequence.of(indexes)))


take = gather


def _looked_up(indexes: Pipeline[Any], pipeline: Pipeline[A]) -> Pipeline[A]:
    return indexes | stage("map", LazySequence(pipeline).__getitem__)


def cycle(sequence: Iterable[A], limit: int | None = None) -> LazySequence[A]:
    """The items again and again, for ever or `limit` of them.

    [D]: a limit of 0 gives nothing, an empty sequence is else a `ValueError`.

    >>> list(cycle("abc", 5)), cycle("abc")[3 * 10**9 + 1]
    (['a', 'b', 'c', 'a', 'b'], 'b')
    """
    limit = checked("cycle", "limit", limit, optional(natural))
    if limit != 0 and LazySequence.of(sequence).machine.length == 0:
        raise ArgumentError("cycle: a sequence of nothing can't be repeated")
    return arranged([sequence], stage("repeat") | _first(limit))


def repeat(value: A, times: int | None = None) -> LazySequence[A]:
    """The same value, for ever or `times` times; [D]: also 0 times and once.

    To assign any item is to assign all.

    >>> list(repeat("x", 3)), list(repeat("x", 0)), repeat("x")[10**9]
    (['x', 'x', 'x'], [], 'x')
    """
    times = checked("repeat", "times", times, optional(natural))
    return arranged([_Repeated(value)], _first(times))


def _first(limit: int | None) -> Stage[Any, Any]:
    return UNCHANGED if limit is None else stage("take", limit)


class _Repeated:
    """A value at every index."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __getitem__(self, index: int) -> Any:
        return self._value

    def __setitem__(self, index: int, value: Any) -> None:
        self._value = value


def interleave(*sequences: Iterable[Any]) -> LazySequence[Any]:
    """An item of each sequence in turn, round and round over those that still have some.

    Iterables without indices can be iterated over together, not indexed.

    >>> list(interleave([1, 2, 3], "a", [0.5, 1.5]))
    [1, 'a', 0.5, 2, 1.5, 3]
    """
    return arranged(sequences, partial(_joined, "interleave"))


def concatenate(sequences: Iterable[Iterable[A]]) -> LazySequence[A]:
    """The items of the first sequence, then of the second, and so on.

    >>> concatenate(["ab", "cd"])[-1]
    'd'
    """
    parts = chain.from_iterable(map(_parts, sequences))
    return arranged([*parts], _concatenated)


def _parts(sequence: Any) -> Iterable[Any]:
    """What was concatenated to a sequence, if it is such a one."""
    is_one = isinstance(sequence, LazySequence) and sequence.layout is _concatenated
    return sequence.inputs if is_one else [sequence]


def _concatenated(*pipelines: Pipeline[Any]) -> Pipeline[Any]:
    return _joined("concat", *pipelines)


def _joined(name: str, *pipelines: Pipeline[Any]) -> Pipeline[Any]:
    return produced(name, *pipelines) if pipelines else produced("source", ())


def collate(sequences: Iterable[Iterable[Any]]) -> LazySequence[tuple[Any, ...]]:
    """Tuples of one item from each sequence. Unequal lengths are a `ValueError`.

    >>> collate([[1, 2], "ab"])[1]
    (2, 'b')
    """
    return arranged([*sequences], partial(_level, "collate", "zip"))


def switch(condition: Iterable[Any], x: Iterable[A], y: Iterable[A]) -> LazySequence[A]:
    """Item i of `x` where item i of `condition` is true, else of `y`.

    [D]: conditions are true or false as Python has it; others than 0 and 1 ended the
    sequence in silence. Unequal lengths are a `ValueError`.

    >>> list(switch([True, False, True], "abc", "xyz"))
    ['a', 'y', 'c']
    """
    return arranged([x, y], partial(_level, "switch", "switch", LazySequence.of(condition)))


def case(selector: Iterable[int], *values: Iterable[A]) -> LazySequence[A]:
    """Item i of the sequence that item i of `selector` says; negative ones count from the last.

    Raises:
        ValueError: Unequal lengths; a selector that there is no sequence for, when it is
            read ([D]: that ended the sequence in silence).

    >>> list(case([0, 1, -1], "abc", "xyz"))
    ['a', 'y', 'z']
    """
    chosen = LazySequence.of(selector) | stage("map", partial(_choice, len(values)))
    return arranged(values, partial(_level, "case", "case", chosen))


def _level(name: str, joining: str, *pipelines: Pipeline[Any]) -> Pipeline[Any]:
    """Pipelines joined, if all that have an end have it at the same place."""
    lengths = [pipeline.machine.length for pipeline in pipelines]
    if len({*lengths} - {None, math.inf}) > 1:
        raise ArgumentError(f"{name}: all sequences must have one length, got {lengths}")
    return produced(joining, *pipelines)


def _choice(count: int, selector: Any) -> Any:
    """A selector as the number of one of so many sequences."""
    if isinstance(selector, (bool, np.bool_)):
        return int(selector)
    is_last = is_integer(selector) and -count <= selector < 0
    return int(selector) + count if is_last else selector

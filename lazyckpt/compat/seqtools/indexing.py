"""Sequences of ints, items by index, and sequences joined."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Any, SupportsIndex, TypeVar

import numpy as np

from lazyckpt.compat.seqtools.sequence import LazySequence, nothing, places, produced, stage
from lazyckpt.core.checks import checked, is_integer, natural, optional
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Pipeline

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
    pipeline = LazySequence.of(sequence)
    if hasattr(indexes, "__array__"):
        indexes = np.asarray(indexes)
    if not isinstance(indexes, (range, list, tuple, np.ndarray)):
        found = LazySequence(pipeline)
        return LazySequence(LazySequence.of(indexes) | stage("map", found.__getitem__))
    return LazySequence(pipeline | stage("gather", indexes) if len(indexes) else nothing())


def take(sequence: Iterable[A], indexes: Iterable[SupportsIndex]) -> LazySequence[A]:
    """The same as `gather`."""
    return gather(sequence, indexes)


def cycle(sequence: Iterable[A], limit: int | None = None) -> LazySequence[A]:
    """The items again and again, for ever or `limit` of them.

    [D]: a limit of 0 gives nothing, an empty sequence is else a `ValueError`.

    >>> list(cycle("abc", 5)), cycle("abc")[3 * 10**9 + 1]
    (['a', 'b', 'c', 'a', 'b'], 'b')
    """
    limit = checked("cycle", "limit", limit, optional(natural))
    pipeline = LazySequence.of(sequence)
    if limit == 0:
        return LazySequence(nothing())
    if pipeline.machine.length == 0:
        raise ArgumentError("cycle: a sequence of nothing can't be repeated")
    forever: LazySequence[A] = LazySequence(pipeline | stage("repeat"))
    return forever if limit is None else LazySequence(forever.pipeline | stage("take", limit))


def repeat(value: A, times: int | None = None) -> LazySequence[A]:
    """The same value, for ever or `times` times; [D]: also 0 times and once.

    >>> list(repeat("x", 3)), list(repeat("x", 0)), repeat("x")[10**9]
    (['x', 'x', 'x'], [], 'x')
    """
    times = checked("repeat", "times", times, optional(natural))
    return LazySequence(places(times) | stage("map", partial(_always, value)))


def interleave(*sequences: Iterable[Any]) -> LazySequence[Any]:
    """An item of each sequence in turn, round and round over those that still have some.

    Iterables without indices can be iterated over together, not indexed.

    >>> list(interleave([1, 2, 3], "a", [0.5, 1.5]))
    [1, 'a', 0.5, 2, 1.5, 3]
    """
    pipelines = map(LazySequence.of, sequences)
    return LazySequence(produced("interleave", *pipelines) if sequences else nothing())


def switch(condition: Iterable[Any], x: Iterable[A], y: Iterable[A]) -> LazySequence[A]:
    """Item i of `x` where item i of `condition` is true, else of `y`.

    [D]: conditions are true or false as Python has it; others than 0 and 1 ended the
    sequence in silence. Unequal lengths are a `ValueError`.

    >>> list(switch([True, False, True], "abc", "xyz"))
    ['a', 'y', 'c']
    """
    return LazySequence(produced("switch", *_even("switch", [condition, x, y])))


def case(selector: Iterable[int], *values: Iterable[A]) -> LazySequence[A]:
    """Item i of the sequence that item i of `selector` says; negative ones count from the last.

    Raises:
        ValueError: Unequal lengths; a selector that there is no sequence for, when it is
            read ([D]: that ended the sequence in silence).

    >>> list(case([0, 1, -1], "abc", "xyz"))
    ['a', 'y', 'z']
    """
    first, *others = _even("case", [selector, *values])
    return LazySequence(
        produced("case", first | stage("map", partial(_choice, len(others))), *others)
    )


def collate(sequences: Iterable[Iterable[Any]]) -> LazySequence[tuple[Any, ...]]:
    """Tuples of one item from each sequence. Unequal lengths are a `ValueError`.

    >>> collate([[1, 2], "ab"])[1]
    (2, 'b')
    """
    return LazySequence(produced("zip", *_even("collate", sequences)))


def concatenate(sequences: Iterable[Iterable[A]]) -> LazySequence[A]:
    """The items of the first sequence, then of the second, and so on.

    >>> concatenate(["ab", "cd"])[-1]
    'd'
    """
    pipelines: list[Pipeline[A]] = []
    for pipeline in map(LazySequence.of, sequences):
        call = pipeline.calls[0]
        is_one = len(pipeline.calls) == 1 and call.name == "concat"
        pipelines += call.arguments["pipelines"] if is_one else [pipeline]
    return LazySequence(produced("concat", *pipelines) if pipelines else nothing())


def _even(name: str, sequences: Iterable[Iterable[Any]]) -> list[Pipeline[Any]]:
    """The pipelines, if all that have an end have it at the same place."""
    pipelines = [*map(LazySequence.of, sequences)]
    lengths = [pipeline.machine.length for pipeline in pipelines]
    if len({*lengths} - {None, math.inf}) > 1:
        raise ArgumentError(f"{name}: all sequences must have one length, got {lengths}")
    return pipelines


def _always(value: Any, index: int) -> Any:
    return value


def _choice(count: int, selector: Any) -> Any:
    """A selector as the number of one of so many sequences."""
    if isinstance(selector, (bool, np.bool_)):
        return int(selector)
    is_last = is_integer(selector) and -count <= selector < 0
    return int(selector) + count if is_last else selector

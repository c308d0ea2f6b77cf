"""Which items, and in what order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, SupportsIndex, TypeVar

import numpy as np

from lazyckpt.compat.seqtools.sequence import LazySequence, produced, stage
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

    - `indexes`: a range, list, tuple or array, which is looked through at once;
      of any other sequence, also one without end, an index is read when it's used

    Errors: `IndexError` for an index that there is none of: at once where the
    indexes are looked through, else when it is used.

    >>> list(gather("held", [1, 2, 2, -4]))
    ['e', 'l', 'l', 'h']
    """
    pipeline = LazySequence.of(sequence)
    if hasattr(indexes, "__array__"):
        indexes = np.asarray(indexes)
    if not isinstance(indexes, (range, list, tuple, np.ndarray)):
        found = LazySequence(pipeline)
        return LazySequence(LazySequence.of(indexes) | stage("map", found.__getitem__))
    if not len(indexes):
        return LazySequence(produced("source", ()))
    try:
        return LazySequence(pipeline | stage("gather", indexes))
    except ArgumentError as error:
        raise (IndexError(str(error)) if "out of range" in str(error) else error) from None


def take(sequence: Iterable[A], indexes: Iterable[SupportsIndex]) -> LazySequence[A]:
    """The same as `gather`.

    >>> list(take("abc", [2, 0]))
    ['c', 'a']
    """
    return gather(sequence, indexes)


def cycle(sequence: Iterable[A], limit: int | None = None) -> LazySequence[A]:
    """The items again and again, for ever or `limit` of them.

    [D]: a limit of 0 gives nothing, and a sequence of nothing is refused; both
    went round for ever.

    Errors: `ValueError` for an empty sequence, unless the limit is 0.

    >>> list(cycle("abc", 5)), cycle("abc")[3 * 10**9 + 1]
    (['a', 'b', 'c', 'a', 'b'], 'b')
    """
    limit = checked("cycle", "limit", limit, optional(natural))
    pipeline = LazySequence.of(sequence)
    if pipeline.machine.length == 0 and limit != 0:
        raise ArgumentError("cycle: a sequence of nothing can't be repeated")
    if limit == 0:
        return LazySequence(produced("source", ()))
    forever: LazySequence[A] = LazySequence(pipeline | stage("repeat"))
    return forever if limit is None else LazySequence(forever.pipeline | stage("take", limit))


def interleave(*sequences: Iterable[Any]) -> LazySequence[Any]:
    """An item of each sequence in turn, round and round over those that still have some.

    Iterables without indices can be iterated over together, not indexed.

    >>> list(interleave([1, 2, 3], "a", [0.5, 1.5]))
    [1, 'a', 0.5, 2, 1.5, 3]
    """
    if not sequences:
        return LazySequence(produced("source", ()))
    return LazySequence(produced("interleave", *map(LazySequence.of, sequences)))


def repeat(value: A, times: int | None = None) -> LazySequence[A]:
    """The same value, for ever or `times` times; [D]: also 0 times and once.

    Errors: `TypeError` for anything but an int >= 0 or None.

    >>> list(repeat("x", 3)), list(repeat("x", 0)), repeat("x")[10**9]
    (['x', 'x', 'x'], [], 'x')
    """
    times = checked("repeat", "times", times, optional(natural))
    places = produced("count") if times is None else produced("source", range(times))
    return LazySequence(places | stage("map", _Always(value)))


def switch(condition: Iterable[Any], x: Iterable[A], y: Iterable[A]) -> LazySequence[A]:
    """Item i of `x` where item i of `condition` is true, else of `y`.

    [D]: a condition that was neither 0 nor 1 ended the sequence in silence; now
    it is true or false as Python has it.

    Errors: `ValueError` for unequal lengths.

    >>> list(switch([True, False, True], "abc", "xyz"))
    ['a', 'y', 'c']
    """
    return LazySequence(produced("switch", *_even("switch", [condition, x, y])))


def case(selector: Iterable[int], *values: Iterable[A]) -> LazySequence[A]:
    """Item i of the sequence that item i of `selector` says; negative ones count from the last.

    Errors: `ValueError` for unequal lengths, and for a selector that there is no
    sequence for, when it is read ([D]: that ended the sequence in silence).

    >>> list(case([0, 1, -1], "abc", "xyz"))
    ['a', 'y', 'z']
    """
    first, *others = _even("case", [selector, *values])
    return LazySequence(produced("case", first | stage("map", _Choice(len(others))), *others))


def collate(sequences: Iterable[Iterable[Any]]) -> LazySequence[tuple[Any, ...]]:
    """Tuples of one item from each sequence.

    Errors: `ValueError` for unequal lengths.

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
    return LazySequence(produced("concat", *pipelines) if pipelines else produced("source", ()))


def _even(name: str, sequences: Iterable[Iterable[Any]]) -> list[Pipeline[Any]]:
    """The pipelines, if all that have an end have it at the same place."""
    pipelines = [*map(LazySequence.of, sequences)]
    lengths = [pipeline.machine.length for pipeline in pipelines]
    if len({*lengths} - {None, math.inf}) > 1:
        raise ArgumentError(f"{name}: all sequences must have one length, got {lengths}")
    return pipelines


class _Always:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, index: int) -> Any:
        return self.value


class _Choice:
    """A selector as the number of a sequence."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __call__(self, selector: Any) -> Any:
        if isinstance(selector, (bool, np.bool_)):
            return int(selector)
        is_last = is_integer(selector) and -self._count <= selector < 0
        return int(selector) + self._count if is_last else selector

"""Which items, in what order and in what groups."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex, TypeVar

import numpy as np

from lazyckpt.checks import checked, is_integer, natural, optional, positive
from lazyckpt.compat.seqtools.sequence import LazySequence, produced, stage
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


def batch(
    sequence: Iterable[Any],
    k: int,
    drop_last: bool = False,
    pad: Any = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
) -> LazySequence[Any]:
    """Lists of k consecutive items, or what `collate_fn` makes of them.

    - `drop_last`: leave out a last batch that is shorter; `pad` is not used then
    - `pad`: an item that fills up a last batch which is shorter. [D]: one that
      is whole stays as it is; it got k more where k divides the length

    >>> list(batch(range(5), 2, pad=0))
    [[0, 1], [2, 3], [4, 0]]
    """
    pad = None if drop_last else pad
    options = {"drop_last": bool(drop_last), "collate": collate_fn, "pad": pad}
    return LazySequence(LazySequence.of(sequence) | stage("batch", k, **options))


def unbatch(
    sequence: Iterable[Sequence[A]], batch_size: int, last_batch_size: int | None = None
) -> LazySequence[A]:
    """The items of batches, one after another: the inverse of `batch`.

    - `batch_size`: that of all but the last
    - `last_batch_size`: that of the last, if it is another

    [D]: of no batches it is empty; its length was `batch_size`. Reading on, each
    batch is made once: the last one used is kept, in each thread.

    Errors: `ValueError` for a batch that is shorter.

    >>> list(unbatch([[1, 2], [3]], 2, 1))
    [1, 2, 3]
    """
    batch_size = checked("unbatch", "batch_size", batch_size, positive)
    last = checked("unbatch", "last_batch_size", last_batch_size or batch_size, positive)
    batches = LazySequence(LazySequence.of(sequence))
    if batches.pipeline.machine.length == math.inf:
        places = produced("count")
    else:
        count = len(batches)
        places = produced("source", range((count - 1) * batch_size + last if count else 0))
    return LazySequence(places | stage("map", _Row(batches, batch_size)))


def split(sequence: Sequence[A], edges: Any) -> LazySequence[Any]:
    """Consecutive parts of a sequence, as its own slices.

    - `edges`: where to cut, in rising order; or a number of cuts into equal
      parts; or pairs of where parts begin and end. What is out of range is moved to it

    [D]: a cut at the very end gives a part of nothing; it gave the last item again.

    Errors: `ValueError` where a number of parts does not divide the length.

    >>> list(split("abcdef", [1, 4])), list(split([1, 2, 3, 4], 1))
    (['a', 'bcd', 'ef'], [[1, 2], [3, 4]])
    """
    size = len(sequence)
    if is_integer(edges):
        parts = int(edges) + 1
        if parts < 1 or size % parts:
            raise ArgumentError(f"split: {parts} parts must divide the length {size}")
        bounds = [(size // parts * i, size // parts * (i + 1)) for i in range(parts)]
    else:
        edges = list(edges)
        if not edges or is_integer(edges[0]):
            cuts = [0, *edges, size]
            edges = itertools.pairwise(cuts)
        bounds = [(_within(start, size), _within(stop, size)) for start, stop in edges]
    return LazySequence(produced("source", bounds) | stage("map", _Part(sequence)))


def _even(name: str, sequences: Iterable[Iterable[Any]]) -> list[Pipeline[Any]]:
    """The pipelines, if all that have an end have it at the same place."""
    pipelines = [*map(LazySequence.of, sequences)]
    lengths = [pipeline.machine.length for pipeline in pipelines]
    if len({*lengths} - {None, math.inf}) > 1:
        raise ArgumentError(f"{name}: all sequences must have one length, got {lengths}")
    return pipelines


def _within(edge: Any, size: int) -> int:
    return max(0, min(int(edge), size))


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


class _Part:
    def __init__(self, sequence: Any) -> None:
        self._sequence = sequence

    def __call__(self, bounds: tuple[int, int]) -> Any:
        return self._sequence[slice(*bounds)]


class _Last(threading.local):
    """The batch used last in a thread, and its number."""

    held: tuple[int, Any] = (-1, ())


class _Row:
    """An item of a batch, by its number over all batches."""

    def __init__(self, batches: LazySequence[Any], size: int) -> None:
        self._batches, self._size = batches, size
        self._last = _Last()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Row, (self._batches, self._size)

    def __call__(self, index: int) -> Any:
        number, place = divmod(index, self._size)
        held, rows = self._last.held
        if held != number:
            rows = self._batches[number]
            self._last.held = number, rows
        try:
            return rows[place]
        except IndexError:
            raise ValueError(
                f"unbatch: batch {number} has {len(rows)} items, and item {place} is wanted; "
                "batch_size or last_batch_size is wrong"
            ) from None

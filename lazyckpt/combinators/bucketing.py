"""Batches of items of like length: `bucket_batch`, `bucket_by_boundaries`."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from operator import itemgetter
from typing import Any, TypeVar

from lazyckpt.checks import (
    Unfit,
    at_least,
    boolean,
    brief,
    checked,
    function,
    natural,
    optional,
    positive,
)
from lazyckpt.combinators.windowing import alike
from lazyckpt.errors import ArgumentError, SourceChanged
from lazyckpt.machine import Flow, Machine, Position, machine
from lazyckpt.noise import Permutation, derive
from lazyckpt.pipeline import combinator

A = TypeVar("A")


def _size(value: Any) -> Any:
    if callable(value):
        return value
    try:
        return positive(value)
    except Unfit as unfit:
        raise Unfit(f"{unfit} or a function of an item") from None


def _seeded(shuffle: bool, seed: int | None, **_: Any) -> None:
    if shuffle and seed is None:
        raise ArgumentError("bucket_batch: a shuffle needs a seed; give one, or shuffle=False")


@combinator(
    checks={
        "batch_size": _size,
        "key": optional(function),
        "window_size": positive,
        "boundary_key": optional(function),
        "shuffle": boolean,
        "seed": optional(natural),
    },
    validate=_seeded,
)
def bucket_batch(
    upstream: Machine[A],
    batch_size: int | Callable[[A], int],
    *,
    key: Callable[[A], Any] | None,
    window_size: int,
    boundary_key: Callable[[A], Any] | None = None,
    shuffle: bool = True,
    seed: int | None = None,
) -> Machine[list[A]]:
    """Batches of items of like length, out of windows of `window_size` items in turn.

    Each window is sorted by `key`, longest first, equal ones in their order, and
    cut from its beginning. The last batch of a window may be smaller.

    - `batch_size`: a number of items, or a function from the first item of a
      batch, which is its longest, to one: `lambda x: 4096 // len(x)`
    - `key`: the length of an item; None leaves a window in its order
    - `boundary_key`: a new batch begins wherever this changes, compared by `==`
    - `shuffle`: give the batches of a window in random order, which needs a `seed`

    State: the place before the window, its number, and a count of its batches given.
    Resume: reads one window again; between windows, nothing.
    Random access: no.
    Rank-free: with a fixed `batch_size` and no `boundary_key`.
    Memory: one window.
    Errors: `TypeError` for keys that don't compare, naming both; `ArgumentError`
    for a size that is no int >= 1.

    >>> import lazyckpt as lz
    >>> words = lz.source("the mind of man is capable of anything".split())
    >>> for each in words | lz.bucket_batch(3, key=len, window_size=6, shuffle=False):
    ...     print(each)
    ['capable', 'mind', 'the']
    ['man', 'of', 'is']
    ['anything', 'of']
    """

    def ordered(items: Iterator[A], epoch: int, window: int) -> list[list[A]]:
        batches = list(_cut(_longest_first(list(items), key), batch_size, boundary_key))
        if seed is None or not shuffle:
            return batches
        order = Permutation(derive(seed, "bucket_batch", epoch, window), max(1, len(batches)))
        return [batches[place] for place in order.at(range(len(batches))).tolist()]

    def flow(position: Position) -> Flow[list[A]]:
        anchor, window, given = position
        epoch = upstream.epoch(anchor)
        before = upstream.flow(anchor)

        def batches() -> Iterator[list[A]]:
            nonlocal anchor, window, given
            stream = iter(before)
            while (left := ordered(islice(stream, window_size), epoch, window)) or given:
                if given >= len(left):
                    raise SourceChanged(
                        f"bucket_batch: the state stands after batch {given} of a window "
                        f"that now has {len(left)}"
                    )
                left = left[given:][::-1]
                while left:
                    batch = left.pop()
                    given += 1
                    if not left:
                        anchor, window, given = before.snapshot(), window + 1, 0
                    yield batch
            anchor = before.snapshot()

        return Flow(batches(), lambda: (anchor, window, given))

    return machine(
        init=lambda epoch: (upstream.init(epoch), 0, 0),
        epoch=lambda position: upstream.epoch(position[0]),
        flow=flow,
    )


def _longest_first(items: list[A], key: Callable[[A], Any] | None) -> list[A]:
    if key is None:
        return items
    try:
        return sorted(items, key=key, reverse=True)
    except (TypeError, ValueError):
        for a, b in pairwise([key(item) for item in items]):
            try:
                bool(a < b)
            except (TypeError, ValueError) as error:
                raise TypeError(
                    f"bucket_batch: keys {brief(a)} and {brief(b)} don't compare"
                ) from error
        raise


def _cut(
    items: list[A],
    batch_size: int | Callable[[A], int],
    boundary_key: Callable[[A], Any] | None,
) -> Iterator[list[A]]:
    marks = None if boundary_key is None else [boundary_key(item) for item in items]
    start = 0
    while start < len(items):
        if isinstance(batch_size, int):
            size = batch_size
        else:
            size = checked("bucket_batch", "batch_size(item)", batch_size(items[start]), positive)
        stop = min(start + size, len(items))
        if marks is not None:
            within = range(start + 1, stop)
            changed = (i for i in within if not alike("bucket_batch", marks[i - 1], marks[i]))
            stop = next(changed, stop)
        yield items[start:stop]
        start = stop


def _increasing(value: Any) -> tuple[Any, ...]:
    try:
        found = tuple(value)
        if all(a < b for a, b in pairwise(found)) and all(b == b for b in found):
            return found
    except (TypeError, ValueError):
        pass
    raise Unfit("increasing numbers")


def _sizes(value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        return positive(value)
    try:
        return tuple(positive(each) for each in value)
    except Unfit as unfit:
        raise Unfit(f"{unfit} or a list of such") from None


def _fitting(boundaries: Any, batch_size: Any, drop_last: bool, max_wait: Any, **_: Any) -> None:
    buckets = len(boundaries) + 1
    if isinstance(batch_size, tuple) and len(batch_size) != buckets:
        raise ArgumentError(
            f"bucket_by_boundaries: {len(boundaries)} boundaries make {buckets} buckets, "
            f"got {len(batch_size)} batch sizes"
        )
    if drop_last and max_wait is not None:
        raise ArgumentError(
            f"bucket_by_boundaries: max_wait={max_wait} gives short batches, which "
            "drop_last=True leaves out; take one of them"
        )


@combinator(
    checks={
        "boundaries": _increasing,
        "batch_size": _sizes,
        "length": function,
        "drop_last": boolean,
        "max_wait": optional(at_least(2)),
    },
    validate=_fitting,
)
def bucket_by_boundaries(
    upstream: Machine[A],
    boundaries: Sequence[float],
    batch_size: int | Sequence[int],
    *,
    length: Callable[[A], float],
    drop_last: bool = False,
    max_wait: int | None = None,
) -> Machine[list[A]]:
    """Batches of items of one bucket each: a batch is given when its bucket is full.

    - `boundaries`: n increasing numbers, which make n + 1 buckets: below the
      first, from each up to but without the next, from the last on
    - `batch_size`: a number of items, or a list of one for each bucket
    - `length`: the length of an item
    - `drop_last`: leave out what is too few for a batch at the end; else it is
      given as smaller batches, the shortest items first
    - `max_wait`: no item waits for more than this many others: a batch that has
      waited for more than half of that is given as it is

    State: a place before the oldest item waiting, how many items were read
    since, and how many wait in each bucket.
    Resume: reads at most `max_wait` items again; without it, all since the
    oldest item waiting, which has no bound where a bucket is rare, and up to 255 more.
    Random access: no.
    Rank-free: no.
    Memory: less than a batch for each bucket.
    Errors: `TypeError` for a length that is no number.

    >>> import lazyckpt as lz
    >>> words = lz.source("the mind of man is capable of anything".split())
    >>> list(words | lz.bucket_by_boundaries([3, 5], 2, length=len))
    [['of', 'is'], ['the', 'mind'], ['capable', 'anything'], ['of'], ['man']]
    """
    number = len(boundaries) + 1
    sizes = [batch_size] * number if isinstance(batch_size, int) else batch_size
    block = 256 if max_wait is None else max_wait // 2

    def bucket_of(item: A) -> int:
        size = length(item)
        try:
            if size == size:
                return bisect_right(boundaries, size)
        except (TypeError, ValueError):
            pass
        raise TypeError(
            f"bucket_by_boundaries: length must give a number, got {brief(size)} "
            f"({type(size).__name__}) for {brief(item)}"
        )

    def flow(position: Position) -> Flow[list[A]]:
        anchor, passed, waiting = position
        before = upstream.flow(anchor)
        count, mark = 0, (0, anchor)  # items read, and where the current block of them began
        buckets: list[list[A]] | None = None
        begun = [mark] * number  # the block in which the oldest item of a bucket came

        def again(stream: Iterator[A]) -> list[list[A]]:
            nonlocal count, mark
            last: list[deque[Any]] = [deque(maxlen=n) for n in waiting]
            for item in islice(stream, passed):
                last[bucket_of(item)].append((mark, item))
                count += 1
                if count % block == 0:
                    mark = (count, before.snapshot())
            if count < passed or [len(held) for held in last] != list(waiting):
                raise SourceChanged(
                    f"bucket_by_boundaries: of the {passed} items read since the oldest one "
                    f"waiting, {sum(waiting)} waited; there are now {count}, of which "
                    f"{sum(map(len, last))}"
                )
            for chosen, held in enumerate(last):
                begun[chosen] = held[0][0] if held else mark
            return [[item for _, item in held] for held in last]

        def given(chosen: int) -> Iterator[list[A]]:
            assert buckets is not None
            batch, buckets[chosen] = buckets[chosen], []
            if batch:
                yield batch

        def batches() -> Iterator[list[A]]:
            nonlocal buckets, count, mark
            stream = iter(before)
            buckets = again(stream)
            ended: Any = False
            while not ended:
                read = count
                if max_wait is not None and count % block == 0:
                    for chosen in range(number):
                        if begun[chosen][0] <= count - 2 * block:
                            yield from given(chosen)
                for item in islice(stream, block - count % block):
                    chosen = bucket_of(item)
                    held = buckets[chosen]
                    if not held:
                        begun[chosen] = mark
                    held.append(item)
                    count += 1
                    if count % block == 0:
                        mark = (count, before.snapshot())
                    if len(held) == sizes[chosen]:
                        yield from given(chosen)
                ended = read == count or count % block
            for chosen in range(number):
                if drop_last:
                    buckets[chosen] = []
                yield from given(chosen)

        def reached() -> Position:
            if buckets is None:
                return position
            oldest = (begun[i] for i, held in enumerate(buckets) if held)
            start, place = min(oldest, key=itemgetter(0), default=mark)
            return place, count - start, tuple(map(len, buckets))

        return Flow(batches(), reached)

    return machine(
        init=lambda epoch: (upstream.init(epoch), 0, (0,) * number),
        epoch=lambda position: upstream.epoch(position[0]),
        flow=flow,
    )

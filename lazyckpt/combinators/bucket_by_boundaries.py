"""Batches of items of like length, out of fixed buckets: `bucket_by_boundaries`."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from numbers import Number
from operator import itemgetter
from typing import Any, TypeVar

from lazyckpt.core.checks import Unfit, at_least, boolean, brief, function, optional, positive
from lazyckpt.core.machine import Flow, Machine, Position, machine, within
from lazyckpt.core.registry import Again
from lazyckpt.errors import ArgumentError, SourceChanged
from lazyckpt.pipeline import combinator

A = TypeVar("A")


def _increasing(value: Any) -> tuple[Any, ...]:
    try:
        found = tuple(value.tolist() if hasattr(value, "tolist") else value)
        is_increasing = all(a < b for a, b in pairwise(found)) and all(b == b for b in found)
        are_numbers = all(isinstance(each, Number) for each in found)
        if is_increasing and are_numbers and not isinstance(value, (str, bytes)):
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
        "max_wait": optional(at_least(2, sys.maxsize)),
    },
    validate=_fitting,
    again=lambda position, **_: [Again(position[0], position[1])],
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
    [['the', 'mind'], ['of', 'is'], ['capable', 'anything'], ['of'], ['man']]
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
        within("bucket_by_boundaries", passed, max_wait or sys.maxsize)
        for some, size in zip(waiting, sizes, strict=True):
            within("bucket_by_boundaries", some, size - 1)
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
            if drop_last:
                buckets = [[] for _ in buckets]
            for chosen in range(number):
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

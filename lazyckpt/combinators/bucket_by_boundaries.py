"""`bucket_by_boundaries`: batches of items of similar length, from fixed buckets."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from numbers import Number
from operator import itemgetter
from typing import Any, TypeVar

from lazyckpt.core.checks import (
    Unfit,
    at_least,
    boolean,
    brief,
    function,
    is_raised_here,
    optional,
    positive,
)
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine, Reread, begun, within
from lazyckpt.core.stages import stateful
from lazyckpt.decorators import combinator, giving
from lazyckpt.errors import ArgumentError, SourceChanged
from lazyckpt.pipeline import Listing

A = TypeVar("A", bound=Any)  # bound to Any, so that pyright doesn't check the body of a lambda

_BLOCK = 256  # items between positions to resume from, without max_wait


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
            f"bucket_by_boundaries: max_wait={max_wait} yields short batches, which "
            "drop_last=True drops; use only one of them"
        )


@giving(Listing)
@combinator(
    checks={
        "boundaries": _increasing,
        "batch_size": _sizes,
        "key": function,
        "drop_last": boolean,
        "max_wait": optional(at_least(2, sys.maxsize)),
    },
    validate=_fitting,
    functions={"key": "look"},
)
def bucket_by_boundaries(
    upstream: Machine[A],
    boundaries: Sequence[float],
    batch_size: int | Sequence[int],
    *,
    key: Callable[[A], float],
    drop_last: bool = False,
    max_wait: int | None = None,
) -> Machine[list[A]]:
    """Sort items into buckets by length, and yield a batch when its bucket is full.

    Args:
        boundaries: n increasing numbers, which make n + 1 buckets: lengths below the first,
            lengths in each half-open interval between two, and lengths from the last on.
        batch_size: Number of items per batch, an int >= 1, or a list with one per bucket.
        key: Function from an item to its length.
        drop_last: If True, drop the items left in the buckets at the end; otherwise they are
            yielded as smaller batches, shortest items first.
        max_wait: Largest number of other items read while an item waits, an int >= 2. A batch
            is yielded unfilled if it has waited for more than half of that. None for no limit.

    Raises:
        TypeError: If a length is not a number.

    State:
        A position before the oldest waiting item, the number of items read since, and the
        number waiting in each bucket.

    Resume:
        Re-reads at most `max_wait` items. Without `max_wait`, re-reads all items since the oldest
        waiting one, and up to 255 more: there is no bound if a bucket is rare.

    Random access:
        No.

    Rank-invariant:
        No.

    Memory:
        Less than one batch per bucket.

    >>> import lazyckpt as lz
    >>> words = lz.source("the mind of man is capable of anything".split())
    >>> list(words | lz.bucket_by_boundaries([3, 5], 2, key=len))
    [['the', 'mind'], ['of', 'is'], ['capable', 'anything'], ['of'], ['man']]
    """
    sizes = [batch_size] * (len(boundaries) + 1) if isinstance(batch_size, int) else batch_size

    def check(passed: Any, waiting: Any) -> None:
        within("bucket_by_boundaries", passed, max_wait or sys.maxsize)
        for some, size in zip(waiting, sizes, strict=True):
            within("bucket_by_boundaries", some, size - 1)

    def bucket_of(item: A) -> int:
        size = key(item)
        try:
            if size == size:
                return bisect_right(boundaries, size)
        except (TypeError, ValueError) as error:
            if not is_raised_here(error):
                raise
        raise TypeError(
            f"bucket_by_boundaries: key must return a number, got {brief(size)} "
            f"({type(size).__name__}) for {brief(item)}"
        )

    def flow(position: Position) -> Flow[list[A]]:
        before = upstream.flow(position[0])
        buckets = _Buckets(before, position, sizes, bucket_of, drop_last, max_wait)
        return Flow(buckets.batches(), buckets.reached)

    return stateful(
        "bucket_by_boundaries",
        upstream,
        first=(0, (0,) * len(sizes)),
        check=check,
        # At the end, upstream may have been asked for one more item, and have read for it.
        rereads=lambda at: [Reread(at[0], max(at[1], begun(upstream, at[0])))],
        flow=flow,
    )


class _Buckets:
    """The items waiting in each bucket, and the position from which to re-read them.

    Items are counted from the anchor of the position. Upstream's position is known only at
    the beginning of each block of items: a mark is the count and the position there. For
    each bucket, the mark of the block that contains its oldest item is kept.
    """

    def __init__(
        self,
        before: Flow[Any],
        position: Position,
        sizes: Sequence[int],
        bucket_of: Callable[[Any], int],
        drop_last: bool,
        max_wait: int | None,
    ) -> None:
        self._before, self._position, self._sizes = before, position, sizes
        self._bucket_of, self._drop_last, self._max_wait = bucket_of, drop_last, max_wait
        self._block = _BLOCK if max_wait is None else max_wait // 2
        self._count, self._mark = 0, (0, position[0])
        self._begun = [self._mark] * len(sizes)
        self._held: list[list[Any]] | None = None

    def batches(self) -> Iterator[list[Any]]:
        stream = iter(self._before)
        self._held = buckets = self._reread(stream)
        bucket_of, sizes, block = self._bucket_of, self._sizes, self._block
        ended: Any = False
        while not ended:
            read = self._count
            if self._max_wait is not None and read % block == 0:
                for chosen, (begun, _) in enumerate(self._begun):
                    if begun <= read - 2 * block:
                        yield from self._given(chosen)
            full = read + block - read % block
            for count, item in enumerate(islice(stream, full - read), read + 1):
                chosen = bucket_of(item)
                held = buckets[chosen]
                if not held:
                    self._begun[chosen] = self._mark
                held.append(item)
                self._count = count
                if count == full:
                    self._mark = (count, self._before.snapshot())
                if len(held) == sizes[chosen]:
                    yield from self._given(chosen)
            ended = read == self._count or self._count % block
        if self._drop_last:
            self._held = [[] for _ in sizes]
        for chosen in range(len(sizes)):
            yield from self._given(chosen)

    def reached(self) -> Position:
        if self._held is None:
            return self._position
        oldest = (self._begun[i] for i, held in enumerate(self._held) if held)
        start, position = min(oldest, key=itemgetter(0), default=self._mark)
        return position, self._count - start, tuple(map(len, self._held))

    def _reread(self, stream: Iterator[Any]) -> list[list[Any]]:
        """Re-read the items that were waiting at the position."""
        _, passed, waiting = self._position
        last: list[deque[Any]] = [deque(maxlen=n) for n in waiting]
        for item in islice(stream, passed):
            last[self._bucket_of(item)].append((self._mark, item))
            self._count += 1
            if self._count % self._block == 0:
                self._mark = (self._count, self._before.snapshot())
        if self._count < passed or tuple(map(len, last)) != tuple(waiting):
            raise SourceChanged(
                f"bucket_by_boundaries: of the {passed} items read since the oldest one "
                f"waiting, {sum(waiting)} waited; there are now {self._count}, of which "
                f"{sum(map(len, last))}"
            )
        self._begun = [held[0][0] if held else self._mark for held in last]
        return [[item for _, item in held] for held in last]

    def _given(self, chosen: int) -> Iterator[list[Any]]:
        assert self._held is not None
        batch, self._held[chosen] = self._held[chosen], []
        if batch:
            yield batch

"""Batches of items of like length, out of windows: `bucket_batch`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

from lazyckpt.combinators.blocks import HashedOrders, shuffled_blocks
from lazyckpt.combinators.window import alike
from lazyckpt.core.checks import (
    Unfit,
    boolean,
    brief,
    checked,
    function,
    natural,
    optional,
    positive,
)
from lazyckpt.core.machine import Machine
from lazyckpt.core.registry import Again, Taken
from lazyckpt.errors import ArgumentError
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
    again=lambda position, window_size, **_: [
        Again(position[0], window_size if position[2] else 0)
    ],
    takes=lambda window_size, **_: Taken(window_size),
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

    orders = partial(HashedOrders, "bucket_batch", seed if shuffle else None)
    cut = partial(cut_in_batches, batch_size=batch_size, key=key, boundary_key=boundary_key)
    return shuffled_blocks("bucket_batch", upstream, window_size, orders, made=cut, what="batch")


def cut_in_batches(
    items: list[A],
    batch_size: int | Callable[[A], int],
    key: Callable[[A], Any] | None,
    boundary_key: Callable[[A], Any] | None,
) -> list[list[A]]:
    """The batches of a window, before they are given in random order."""
    return list(_cut(_longest_first(items, key), batch_size, boundary_key))


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

"""`bucket_batch`: batches of items of similar length, from windows of the stream."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

from lazyckpt.combinators.group_by import alike
from lazyckpt.combinators.machines.shuffled_blocks import shuffled_blocks
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
from lazyckpt.core.registry import Role
from lazyckpt.decorators import combinator, giving
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Listing

A = TypeVar("A", bound=Any)  # bound to Any, so that pyright doesn't check the body of a lambda


def _size(value: Any) -> Any:
    if callable(value):
        return value
    try:
        return positive(value)
    except Unfit as unfit:
        raise Unfit(f"{unfit} or a function of an item") from None


def _seeded(shuffle: bool, seed: int | None, **_: Any) -> None:
    if shuffle and seed is None:
        raise ArgumentError("bucket_batch: shuffle needs a seed; pass one, or shuffle=False")


def _functions(batch_size: Any, **_: Any) -> dict[str, Role]:
    names = ["key", "boundary_key"] + ["batch_size"] * callable(batch_size)
    return dict.fromkeys(names, "look")


@giving(Listing)
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
    functions=_functions,
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
    """Group items of similar length: sort windows of `window_size` items and cut them into batches.

    Each window is sorted by `key`, longest first; items with equal keys keep their order.
    Batches are cut from the beginning. The last batch of a window may be smaller.

    Args:
        batch_size: Number of items per batch, an int >= 1; or a function that computes it from
            the first item of a batch, its longest: `lambda x: 4096 // len(x)`.
        key: Function from an item to its length; None to keep the order within a window.
        window_size: Number of items per window, an int >= 1.
        boundary_key: Function from an item to a value; a new batch begins whenever the value
            changes, compared by `==`.
        shuffle: If True, yield the batches of a window in random order; needs a `seed`.
        seed: An int >= 0; the same seed gives the same order.

    Raises:
        TypeError: If two keys can't be compared; it names both.
        ArgumentError: If a batch size is not an int >= 1.

    State:
        The position before the window, its number, and a count of its batches yielded.

    Resume:
        Re-reads one window; between windows, nothing.

    Random access:
        No.

    Rank-invariant:
        With a fixed `batch_size` and no `boundary_key`.

    Memory:
        One window.

    >>> import lazyckpt as lz
    >>> words = lz.source("the mind of man is capable of anything".split())
    >>> for each in words | lz.bucket_batch(3, key=len, window_size=6, shuffle=False):
    ...     print(each)
    ['capable', 'mind', 'the']
    ['man', 'of', 'is']
    ['anything', 'of']
    """
    cut = partial(cut_in_batches, batch_size=batch_size, key=key, boundary_key=boundary_key)
    length = None
    if isinstance(batch_size, int) and boundary_key is None:
        length = _batches(upstream.length, window_size, batch_size)
    return shuffled_blocks(
        "bucket_batch",
        upstream,
        window_size,
        seed if shuffle else None,
        made=cut,
        what="batch",
        length=length,
    )


def _batches(length: int | float | None, window_size: int, size: int) -> int | float | None:
    """Return the number of batches for a number of items."""
    if length is None or length == math.inf:
        return length
    windows, rest = divmod(int(length), window_size)
    return windows * -(-window_size // size) + -(-rest // size)


def cut_in_batches(
    items: list[A],
    batch_size: int | Callable[[A], int],
    key: Callable[[A], Any] | None,
    boundary_key: Callable[[A], Any] | None,
) -> list[list[A]]:
    """Cut a window into batches, before they are shuffled."""
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
                    f"bucket_batch: keys {brief(a)} and {brief(b)} can't be compared"
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
            inside = range(start + 1, stop)
            changed = (i for i in inside if not alike("bucket_batch", marks[i - 1], marks[i]))
            stop = next(changed, stop)
        yield items[start:stop]
        start = stop

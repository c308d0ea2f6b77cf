"""Neighbours together, and batches apart: `sliding_window`, `group_by`, `split_batch`."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, cycle, islice, pairwise, repeat
from typing import Any, TypeVar

import numpy as np

from lazyckpt.combinators.map import applied
from lazyckpt.core.call import same
from lazyckpt.core.checks import brief, function, positive
from lazyckpt.core.machine import End, Flow, Machine, Position, begun, stateless
from lazyckpt.core.registry import Again, Taken
from lazyckpt.pipeline import combinator

A = TypeVar("A")
K = TypeVar("K")


@combinator(
    checks={"width": positive, "stride": positive},
    lockstep=True,
    again=lambda position, upstream, width, stride: [
        Again(position, max(0, width - stride) * begun(upstream, position))
    ],
    takes=lambda width, stride, **_: Taken(stride, max(0, width - stride)),
)
def sliding_window(
    upstream: Machine[Any], width: int, *, stride: int = 1
) -> Machine[tuple[Any, ...]]:
    """Tuples of `width` consecutive items, each window beginning `stride` items after the last.

    A stream shorter than `width` has none. Items between windows, where
    `stride` is more than `width`, are read and left out.

    State: none; the place is that of the next window's first item.
    Resume: reads again what windows share, `width - stride` items.
    Random access: kept.
    Rank-free: yes.
    Memory: one window.

    >>> import lazyckpt as lz
    >>> list(lz.source(range(5)) | lz.sliding_window(3))
    [(0, 1, 2), (1, 2, 3), (2, 3, 4)]
    """
    jump, length = upstream.skip, upstream.length
    if length is not None and length != math.inf:
        length = max(0, (int(length) - width) // stride + 1)

    def step(position: Position) -> tuple[Position, tuple[Any, ...]]:
        items: list[Any] = []
        following = position
        for number in range(max(width, stride)):
            try:
                position, item = upstream.step(position)
            except End as end:
                if number < width:
                    raise
                return end.position, tuple(items)
            if number < width:
                items.append(item)
            if number < stride:
                following = position
        return following, tuple(items)

    def apart(position: Position) -> Flow[tuple[Any, ...]]:
        before = upstream.flow(position)

        def windows() -> Iterator[tuple[Any, ...]]:
            stream = iter(before)
            while len(some := list(islice(stream, stride))) >= width:
                yield tuple(some[:width])

        return Flow(windows(), before.snapshot)

    def overlapping(position: Position) -> Flow[tuple[Any, ...]]:
        before = upstream.flow(position)
        # Where upstream can't go anywhere, its last few positions have to be kept.
        marks: deque[Position] = deque([position], width - stride + 1)
        given, ended = 0, False
        turns = [True] + [False] * (stride - 1)

        def windows() -> Iterator[tuple[Any, ...]]:
            nonlocal given, ended
            held: deque[Any] = deque(maxlen=width)
            dues = chain(repeat(False, width - 1), cycle(turns))
            for item, due in zip(before, dues, strict=False):
                held.append(item)
                if jump is None:
                    marks.append(before.snapshot())
                if due:
                    given += 1
                    yield tuple(held)
            ended = True

        def reached() -> Position:
            if ended:
                return before.snapshot()
            if not given:
                return position
            return marks[0] if jump is None else jump(position, given * stride)[0]

        return Flow(windows(), reached, taken=lambda: given)

    def skip(position: Position, n: int) -> tuple[Position, int]:
        assert jump is not None
        if not n:
            return jump(position, 0)
        wanted = (n - 1) * stride + width
        after, passed = jump(position, wanted)
        if passed == wanted:
            return jump(position, n * stride)[0], n
        return after, max(0, (passed - width) // stride + 1)

    return stateless(
        upstream,
        step=step,
        flow=apart if width <= stride else overlapping,
        skip=jump and skip,
        length=length,
    )


@combinator(
    checks={"key": function},
    transparent=True,
    again=lambda position, upstream, key: [Again(position, begun(upstream, position))],
)
def group_by(upstream: Machine[A], key: Callable[[A], K]) -> Machine[tuple[K, list[A]]]:
    """Runs of consecutive items with equal keys, as `(key, items)`.

    Equal keys further apart are runs of their own, as in `itertools.groupby`;
    items are a list, all there at once.

    - `key`: called with each item; what it returns is compared by `==`, arrays
      and what holds them by value

    State: none; the place is that of the next run's first item.
    Resume: reads one item again.
    Random access: no.
    Rank-free: no.
    Memory: one run.
    Errors: keys that `==` can't compare raise `TypeError`, naming both.

    >>> import lazyckpt as lz
    >>> list(lz.source(["to", "be", "or", "not"]) | lz.group_by(len))
    [(2, ['to', 'be', 'or']), (3, ['not'])]
    """
    jump = upstream.skip

    def step(position: Position) -> tuple[Position, tuple[K, list[A]]]:
        position, item = upstream.step(position)
        found, run = key(item), [item]
        while True:
            try:
                after, item = upstream.step(position)
            except End as end:
                return end.position, (found, run)
            if not alike("group_by", found, key(item)):
                return position, (found, run)
            run.append(item)
            position = after

    def flow(position: Position) -> Flow[tuple[K, list[A]]]:
        before = upstream.flow(position)

        given, ended = 0, False
        mark = position

        def runs() -> Iterator[tuple[K, list[A]]]:
            nonlocal given, ended, mark
            run: list[A] = []
            found: Any = None
            here = position
            for item in before:
                new = key(item)
                if run and not (new is found or alike("group_by", found, new)):
                    given, mark = given + len(run), here
                    yield found, run
                    run = []
                if not run:
                    found = new
                run.append(item)
                if jump is None:
                    here = before.snapshot()
            ended = True
            if run:
                yield found, run

        def reached() -> Position:
            if ended:
                return before.snapshot()
            return mark if jump is None else jump(position, given)[0]

        return Flow(runs(), reached)

    return stateless(upstream, step=step, flow=flow)


def alike(stage: str, a: Any, b: Any) -> bool:
    """Whether two keys are equal; arrays, and tuples or lists of them, are compared by value."""
    if a is b:
        return True
    try:
        found = a == b
        if found is True or found is False:
            return found
        if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
            return same(a, b)
        return bool(found)
    except Exception as error:
        if isinstance(a, (tuple, list, dict, np.ndarray)):
            return same(a, b)
        raise TypeError(f"{stage}: keys {brief(a)} and {brief(b)} don't compare") from error


@combinator(checks={"n": positive}, lockstep=True, pointwise=True)
def split_batch(upstream: Machine[Any], n: int) -> Machine[list[Any]]:
    """Each batch as a list of n parts, one a device, of consecutive items.

    - `n`: the number of devices

    A batch is a list of items, an array or tensor of rows, or a dict or tuple of
    such, which is split field by field. Where n doesn't divide it, the first
    parts have one item more; a batch of fewer than n items has empty parts at
    the end. `batch(drop_last=True)` or `batch(pad=...)` keeps a last batch even.

    State: none.
    Resume: reads nothing again.
    Random access: kept.
    Rank-free: yes.
    Errors: `TypeError` for what is no batch, `ValueError` for fields of unequal
    lengths.

    >>> import lazyckpt as lz
    >>> list(lz.source(range(5)) | lz.batch(5) | lz.split_batch(2))
    [[[0, 1, 2], [3, 4]]]
    """

    def split(batch: Any) -> list[Any]:
        size = _rows(batch)
        cuts = [number * (size // n) + min(number, size % n) for number in range(n + 1)]
        return [_part(batch, slice(*ends)) for ends in pairwise(cuts)]

    return applied(upstream, split)


def _rows(batch: Any) -> int:
    if isinstance(batch, (dict, tuple)):
        fields = batch.values() if isinstance(batch, dict) else batch
        sizes = [_rows(field) for field in fields]
        if len(set(sizes)) > 1:
            raise ValueError(f"split_batch: the fields of a batch have unequal lengths {sizes}")
        if sizes:
            return sizes[0]
    elif isinstance(batch, list) or len(getattr(batch, "shape", [])):
        return len(batch)
    raise TypeError(f"split_batch: expected a batch, got {brief(batch)} ({type(batch).__name__})")


def _part(batch: Any, some: slice) -> Any:
    if isinstance(batch, dict):
        return {name: _part(field, some) for name, field in batch.items()}
    if isinstance(batch, tuple):
        fields = [_part(field, some) for field in batch]
        return batch._make(fields) if hasattr(batch, "_make") else tuple(fields)
    return batch[some]

"""Flows: items from a position on, with the position reached; tables, for random access."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import compress, islice, repeat
from operator import length_hint
from types import GeneratorType
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.prng import Indices
from lazyckpt.errors import SourceChanged

T = TypeVar("T", covariant=True)
U = TypeVar("U")

Position: TypeAlias = Any


class Flow(Generic[T]):
    """Items from a position on, and a thunk for the position reached.

    `snapshot()` is right after every item and at the end, not after an error:
    then the flow is dropped. Before the first `next` it is the position that
    the flow was opened at. Iterate a flow once. A pending function `fn` rides
    along, so that `map` costs no layer of its own. `taken()` is given where it
    comes free: how many items were taken from `pull`, after an error too.
    `chunks` is there where items come many at a time.
    """

    __slots__ = ("chunks", "fn", "pull", "snapshot", "taken")

    def __init__(
        self,
        pull: Iterator[Any],
        snapshot: Callable[[], Position],
        fn: Callable[[Any], T] | None = None,
        taken: Callable[[], int] | None = None,
        chunks: Chunks[T] | None = None,
    ) -> None:
        self.pull = pull
        self.snapshot = snapshot
        self.fn = fn
        self.taken = taken
        self.chunks = chunks

    def map(self, fn: Callable[[Any], U]) -> Flow[U]:
        inner = self.fn
        both = fn if inner is None else lambda x: fn(inner(x))
        return Flow(self.pull, self.snapshot, both, self.taken)

    def __iter__(self) -> Iterator[T]:
        fn = self.fn
        # A generator, unlike builtin map, turns a StopIteration out of fn into an error.
        return self.pull if fn is None else (fn(x) for x in self.pull)


class Chunks(Protocol[T]):
    """Items that are there already, many at a time: no error comes between those of a chunk."""

    def next_chunk(self) -> Iterator[T] | None:
        """What is left of the chunk at hand, or the next one; None at the end."""

    def end_chunk(self) -> None:
        """End the iterator of the chunk at hand; what is left of it comes with another."""


class Table(NamedTuple, Generic[T]):
    """What random access reads from: one item, or many at once.

    `rows` and `stacked` are None where many at once are no cheaper than one by one.
    `is_there` says that to get an item runs nobody's code.
    """

    get: Callable[[int], T]
    rows: Callable[[Indices], list[T]] | None = None
    stacked: Callable[[Indices], Any] | None = None
    is_there: bool = False


Blocks: TypeAlias = Callable[[], NDArray[np.int64]]


class View(NamedTuple, Generic[T]):
    """The vectorised lane: items as a table, and the order in which to read it.

    `ahead(position, offsets)` gives the table's indices of the items that come
    `offsets` items after the position; the offsets must not run past the end.
    `blocks()` tells which items of an epoch are the first ones of the blocks that
    the data are stored in, in rising order; some may be none of its items. It is
    None where that is not known.
    """

    table: Table[T]
    ahead: Callable[[Position, Indices], Indices]
    blocks: Blocks | None = None

    def moved(self, start: int, stride: int = 1) -> Blocks | None:
        """`blocks` of every `stride`-th item, from number `start` on."""
        blocks = self.blocks
        return blocks and (lambda: -((start - blocks()) // stride))


def pass_over(flow: Flow[Any], count: int) -> None:
    """Read items of a flow again, without what comes of them."""
    found = sum(1 for _ in islice(flow.pull, count))
    if found < count:
        raise SourceChanged(
            f"reading {count} items again gave {found}: "
            "a source or function does not give the same twice"
        )


def close_stream(flow: Flow[Any]) -> None:
    """Close what the items come from, unless it is about to give one."""
    stream: Any = flow.pull
    if isinstance(stream, GeneratorType) and not stream.gi_running:
        stream.close()


def counted(items: Iterable[U]) -> tuple[Iterator[U], Callable[[], int]]:
    """The items, and a thunk that tells how many were taken, at no Python cost an item."""
    if isinstance(items, Flow) and items.taken is not None and items.fn is None:
        return items.pull, items.taken
    ticks = repeat(True, sys.maxsize)
    return compress(items, ticks), lambda: sys.maxsize - length_hint(ticks)

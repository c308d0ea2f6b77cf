"""Flows: items from a position on, with the position reached. Tables: data with random access.

A flow yields its items one by one, or in blocks. Each generator that an item passes through, in
the source and in each later stage, costs some 40 ns more than a list's iterator. So a flow may
provide `blocks` of existing items, such as lists' iterators, and later stages pass them on
unchanged. The number of items left in the current block then tells the position.

CPU time per item of `run` in ns (CPython 3.11, 1,000,000 items):

| pipeline | with blocks | without |
|---|---|---|
| `source(range(n))` | 57 | 105 |
| `source(array)` | 76 | 109 |
| `source(range(1000)) | repeat()` | 58 | 105 |
| `source(lists) | flat_map(list)` | 49 | 83 |
| `source(range(n)) | shuffle(seed=0)` | 81 | 111 |
| `source(range(n)) | block_shuffle(512, seed=0)` | 187 | 215 |
| `source([1]) | repeat()`, whose blocks have one item each | 323 | 255 |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, compress, islice
from operator import index
from time import perf_counter
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from lazyckpt.core.iterators import ENDLESS, Walk, iterate, make_ticks, remaining
from lazyckpt.core.prng import Indices, as_array
from lazyckpt.errors import SourceChanged

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T", covariant=True)
U = TypeVar("U")

Position: TypeAlias = Any
Pick: TypeAlias = Callable[[int, int], tuple[int, list[U]]]

LIST_SIZE = 2048  # items in memory per list
_LARGEST = 1 << 16  # indices computed in one call
_ROWS = 256  # rows read ahead, at most
_ROWS_SECONDS = 1e-3  # time limit of that
_ROWS_SHARE = 4  # a list has at most this fraction of the rows before it: 1 / 4

_NO_ITEMS: Iterator[Any] = iterate(())


class Flow(Generic[T]):
    """Items from a position on, and the position reached. Iterate a flow once.

    Attributes:
        pull: Iterator over the items, before `fn`.
        snapshot: Function that returns the position after the last item; before the first `next`,
            the position at which the flow was opened. It is valid at the end too, but not after
            an error: then the flow is dropped.
        fn: Function that the reader applies to each item, so that `map` needs no iterator of its
            own; None if there is none.
        taken: Function that returns the number of items taken from `pull`, also after an error;
            None if counting would cost time.
        chunks: The items in chunks, if workers compute them; otherwise None.
        blocks: The same items as `pull`, in blocks: read one or the other. `taken` is then correct
            wherever an interrupt comes.
        reached: Function that returns the results of `snapshot` and `taken`, if it is faster.
        before: Function that returns the position just before the last item, after all items
            dropped before it, so that the next item from there is that one. None if this position
            would have to be noted at each item.
        noting: Function that returns the same flow with a `before`, to replace a flow that hasn't
            begun. Only that flow knows which items were dropped.
        pick: Function that takes the next n items, of which only the one at `index` is needed. It
            returns the number of items that exist, and a list with the needed one, if it exists.
            None if computing all items is as fast.
        block: The current one of `blocks`.
    """

    __slots__ = (
        "before",
        "block",
        "blocks",
        "chunks",
        "fn",
        "noting",
        "pick",
        "pull",
        "reached",
        "snapshot",
        "taken",
    )

    def __init__(
        self,
        pull: Iterator[Any],
        snapshot: Callable[[], Position],
        fn: Callable[[Any], T] | None = None,
        taken: Callable[[], int] | None = None,
        chunks: Chunks[T] | None = None,
        blocks: Iterator[Iterator[Any]] | None = None,
        reached: Callable[[], tuple[Position, int]] | None = None,
        before: Callable[[], Position] | None = None,
        noting: Callable[[], Flow[T]] | None = None,
        pick: Pick[Any] | None = None,
    ) -> None:
        self.pull = pull
        self.snapshot = snapshot
        self.fn = fn
        self.taken = taken
        self.chunks = chunks
        self.blocks = blocks
        self.reached = reached
        self.before = before
        self.noting = noting
        self.pick = pick
        self.block: Iterator[Any] = _NO_ITEMS  # the current one of `blocks`

    def map(self, fn: Callable[[Any], U]) -> Flow[U]:
        inner = self.fn
        both = fn if inner is None else lambda x: fn(inner(x))
        noting, pick = self.noting, self.pick

        def picked(n: int, index: int) -> tuple[int, list[U]]:
            assert pick is not None
            found, own = pick(n, index)
            return found, [fn(item) for item in own]

        return Flow(
            self.pull,
            self.snapshot,
            both,
            self.taken,
            blocks=self.blocks,
            before=self.before,
            noting=noting and (lambda: noting().map(fn)),
            pick=pick and picked,
        )

    def with_snapshot(self, snapshot: Callable[[], Position]) -> Flow[T]:
        """Return the same items with a different `snapshot`."""
        return Flow(self.pull, snapshot, self.fn, self.taken, blocks=self.blocks)

    @property
    def has_blocks(self) -> bool:
        """Whether the items come in blocks."""
        return self.blocks is not None and self.fn is None

    def __iter__(self) -> Iterator[T]:
        fn = self.fn
        # A generator, unlike builtin map, turns a StopIteration out of fn into an error.
        return self.pull if fn is None else (fn(x) for x in self.pull)


class Chunks(Protocol[T]):
    """Items that already exist, in chunks: no error can occur within a chunk."""

    def next_chunk(self) -> Iterator[T] | None:
        """Return the rest of the current chunk, or the next one; None at the end."""

    def end_chunk(self) -> None:
        """End the iterator of the current chunk; its other items are in the next one."""

    def close(self) -> None:
        """Stop the computation of items."""


class Table(NamedTuple, Generic[T]):
    """Data with random access.

    Attributes:
        get: Function that returns one item.
        rows: Function that returns many items; None if that is no cheaper than one by one.
        stacked: Function that returns many items as one array; None if there is no such array.
        is_ours: If True, reading an item runs no user code. So items may be read ahead with `rows`;
            without `rows` they are in memory.
        spaced: Function that returns the items of a rising range; None if that is no cheaper.
    """

    get: Callable[[int], T]
    rows: Callable[[Indices], list[T]] | None = None
    stacked: Callable[[Indices], Any] | None = None
    is_ours: bool = False
    spaced: Callable[[range], Sequence[T]] | None = None

    @property
    def is_in_memory(self) -> bool:
        """Whether all items are in memory, so that reading an unneeded one costs nothing."""
        return self.is_ours and self.rows is None


BlockStarts: TypeAlias = "Callable[[], NDArray[np.int64]]"


class View(NamedTuple, Generic[T]):
    """The vectorized mode: a table of items, and the order in which they are read.

    Attributes:
        table: The items.
        ahead: Function from a position and offsets to indices in the table: of the items that
            many items after the position. Offsets must not go past the end.
        block_starts: Function that returns the numbers of the items at which stored blocks of the
            data begin, rising; some may be outside of the epoch. None if unknown.
    """

    table: Table[T]
    ahead: Callable[[Position, Indices], Indices]
    block_starts: BlockStarts | None = None

    def moved(self, start: int, stride: int = 1) -> BlockStarts | None:
        """Return `block_starts` for every `stride`-th item, from number `start` on."""
        starts = self.block_starts
        return starts and (lambda: -((start - starts()) // stride))


def close_stream(flow: Flow[Any]) -> None:
    """Close the stream, unless it is about to yield an item, and end its block."""
    if flow.chunks is not None:
        flow.chunks.close()
    for stream in (flow.blocks, flow.pull):
        if isinstance(stream, GeneratorType) and not stream.gi_running:
            stream.close()
    deque(flow.block, 0)


def counted(items: Iterable[U]) -> tuple[Iterator[U], Callable[[], int]]:
    """Return the items, and a function that counts those taken without Python code per item."""
    if isinstance(items, Flow) and items.taken is not None and items.fn is None:
        return items.pull, items.taken
    count = make_ticks()
    return compress(items, count), lambda: ENDLESS - remaining(count)


def picking(
    flow: Flow[U],
) -> tuple[Iterator[U], Callable[[], int], Pick[U]]:
    """Do as `counted`; also return the flow's `pick`, or a `pick` that calls `fn` at most once."""
    items, taken = counted(flow)
    pick = flow.pick or partial(_picked, flow.pull if flow.fn else items, flow.fn)
    if items is flow.pull or not (flow.pick or flow.fn):  # it counts these items too
        return items, taken, pick
    picked = 0

    def counting(n: int, index: int) -> tuple[int, list[U]]:
        nonlocal picked
        found, own = pick(n, index)
        picked += found
        return found, own

    return items, lambda: taken() + picked, counting


def _picked(
    items: Iterator[Any], fn: Callable[[Any], U] | None, n: int, index: int
) -> tuple[int, list[U]]:
    before = index if 0 <= index < n else n
    found = _passed(items, before)
    own = list(islice(items, 1)) if found == before < n else []
    found += len(own) + _passed(items, n - before - len(own))
    return found, own if fn is None else [fn(item) for item in own]


def _passed(items: Iterator[Any], n: int) -> int:
    return sum(1 for _ in islice(items, n))


def noted(flow: Flow[U]) -> tuple[Flow[U], Callable[[], Position]]:
    """Return a flow with its `before`; if it has none, note the position at each item."""
    if flow.before is None and flow.noting is not None:
        flow = flow.noting()
    if flow.before is not None:
        return flow, flow.before
    position = flow.snapshot()

    def items() -> Iterator[U]:
        nonlocal position
        for item in flow:
            yield item
            position = flow.snapshot()

    def before() -> Position:
        return position

    return Flow(items(), flow.snapshot, before=before), before


class FirstItems(islice):  # type: ignore[type-arg]  # the type takes no parameters at runtime
    """The first `n` items of an iterator whose type is one of `WALKS`."""


WALKS: tuple[type, ...] = (
    type(iter([])),
    type(iter(())),
    type(iter(range(0))),
    type(iter(range(1 << 99))),
    type(iter(b"")),
    Walk,
    FirstItems,
)
"""Types of iterators that run no user code."""


def in_blocks(
    blocks: Iterator[Iterator[U]],
    snapshot: Callable[[], Position],
    taken: Callable[[], int],
    reached: Callable[[], tuple[Position, int]] | None = None,
    before: Callable[[], Position] | None = None,
) -> Flow[U]:
    """Build a flow from blocks of items.

    `taken()` must be correct wherever an interrupt comes.
    """
    pull = chain.from_iterable(blocks)
    return Flow(pull, snapshot, None, taken, None, blocks, reached, before)


def blocks_of(flow: Flow[U]) -> tuple[Iterable[Iterator[U]], Callable[[], int], Pick[U]]:
    """Return the items of a flow as blocks, a function that counts those taken, and its `pick`."""
    if flow.blocks is not None and flow.taken is not None and not (flow.fn or flow.pick):
        return flow.blocks, flow.taken, partial(_picked, flow.pull, None)
    items, taken, pick = picking(flow)
    return (items,), taken, pick


def put_back(flow: Flow[U], block: Iterator[U]) -> None:
    """Read a block through `pull` instead, because it runs user code."""
    assert flow.blocks is not None
    flow.pull, flow.blocks = chain.from_iterable(chain([block], flow.blocks)), None


def next_walk(flow: Flow[U]) -> Iterator[U] | None:
    """Return the next block, and set `flow.block`; None at the end, or if it runs user code."""
    assert flow.blocks is not None
    block = next(flow.blocks, None)
    if block is not None and type(block) not in WALKS:
        put_back(flow, block)
        return None
    if block is not None:
        flow.block = block
    return block


def pass_over(flow: Flow[Any], count: int) -> None:
    """Re-read items of a flow, and drop them."""
    found = 0 if flow.pick is None else flow.pick(count, -1)[0]
    while found < count and flow.has_blocks and (block := next_walk(flow)) is not None:
        found += sum(1 for _ in islice(block, count - found))
    found += sum(1 for _ in islice(flow.pull, count - found))
    if found < count:
        raise SourceChanged(
            f"reading {count} items again yielded {found}: "
            "a source or function doesn't yield the same items twice"
        )


def viewing(
    skip: Callable[[Position, int], tuple[Position, int]], view: View[U]
) -> Callable[[Position], Flow[U]]:
    """Return the `flow` of a machine with this `skip` and this view."""
    get = view.table.get

    def flow(position: Position) -> Flow[U]:
        if view.table.is_in_memory:
            return from_lists(skip, position, looked_up(skip, view, position))
        if view.table.is_ours:
            return from_lists(skip, position, read_ahead(skip, view, position))
        ticks: Iterator[int] = iterate(range(0))
        total = 0

        def items() -> Iterator[U]:
            nonlocal position, ticks, total
            size = 64
            while True:
                after, count = skip(position, size)
                if not count:
                    position = after
                    return
                indices = view.ahead(position, range(count))
                ticks = iterate(indices if isinstance(indices, range) else indices.tolist())
                total = count
                try:
                    for index in ticks:
                        yield get(index)
                except IndexError:
                    view.ahead(position, range(0))  # raises if the data have changed
                    raise
                position, ticks, total = after, iterate(range(0)), 0
                size = min(size * 8, _LARGEST)

        def snapshot() -> Position:
            taken = total - remaining(ticks)
            return skip(position, taken)[0] if taken else position

        return Flow(items(), snapshot)

    return flow


def looked_up(
    skip: Callable[[Position, int], tuple[Position, int]], view: View[U], position: Position
) -> Iterator[Sequence[U]]:
    """Yield a view's items from a position on, in lists of 64, 512 and then `LIST_SIZE` items."""
    table, size = view.table, 64
    while True:
        after, count = skip(position, size)
        if not count:
            return
        indices = view.ahead(position, range(count))
        for first in range(0, count, LIST_SIZE):
            some = indices[first : first + LIST_SIZE]
            try:
                items = items_at(table, some)
            except IndexError:
                view.ahead(position, range(0))  # raises if the data have changed
                raise
            yield items
        position, size = after, min(size * 8, _LARGEST)


def read_ahead(
    skip: Callable[[Position, int], tuple[Position, int]], view: View[U], position: Position
) -> Iterator[Sequence[U]]:
    """Yield a view's items from a position on, in lists that grow while reads are fast.

    A list has at most a quarter as many rows as came before it, so that a reader of few rows
    causes few unneeded reads.
    """
    rows, total, most, size = view.table.rows, 0, 1, 64
    assert rows is not None
    while True:
        after, count = skip(position, size)
        if not count:
            return
        indices = as_array(view.ahead(position, range(count)))
        first = 0
        while first < count:
            some, begun = indices[first : first + most], perf_counter()
            try:
                items = rows(some)
            except Exception:  # from one of them: the items before it come first
                yield from _one_by_one(view, position, some.tolist())
            else:
                yield items
            first += len(some)
            total += len(some)
            is_quick = perf_counter() - begun < _ROWS_SECONDS
            wanted = min(2 * most, total // _ROWS_SHARE, _ROWS) if is_quick else most // 2
            most = max(1, wanted)
        position, size = after, min(size * 8, _LARGEST)


def _one_by_one(view: View[U], position: Position, indices: list[int]) -> Iterator[list[U]]:
    try:
        for each in indices:
            yield [view.table.get(each)]
    except IndexError:
        view.ahead(position, range(0))  # raises if the data have changed
        raise


def items_at(table: Table[U], indices: Indices) -> Sequence[U]:
    """Return the items at indices, one by one or evenly spaced; `IndexError` if one is missing."""
    if isinstance(indices, range) and indices.step > 0 and table.spaced is not None:
        items = table.spaced(indices)
        if len(items) < len(indices):
            raise IndexError(f"index {indices[len(items)]} is out of range")
        return items
    numbers: Any = indices if isinstance(indices, range) else indices.tolist()
    return numbers if table.get is index else [*map(table.get, numbers)]


def from_lists(
    skip: Callable[[Position, int], tuple[Position, int]],
    position: Position,
    lists: Iterator[Sequence[U]],
) -> Flow[U]:
    """Build a flow from lists of items, which runs no user code within a list.

    Args:
        skip: The machine's `skip`, for positions within a list.
        position: The position before the first item.
        lists: Lists of up to `LIST_SIZE` items; an error belongs to the next item.
    """
    # Number of items up to the end of the current list, its iterator, and whether all have ended.
    at: tuple[int, Iterator[U], bool] = 0, iterate(()), False

    def blocks() -> Iterator[Iterator[U]]:
        nonlocal at
        count = 0
        for items in lists:
            count += len(items)
            at = count, iterate(items), False
            yield at[1]
        at = count, iterate(()), True

    def reached() -> tuple[Position, int]:
        count, items, is_over = at
        passed = count - remaining(items)
        steps = passed + is_over
        return skip(position, steps)[0] if steps else position, passed

    def taken() -> int:
        count, items, _ = at
        return count - remaining(items)

    return in_blocks(blocks(), lambda: reached()[0], taken, reached)

"""Flows: items from a position on, with the position reached; tables, for random access.

Items come one by one, or in blocks. An item that comes out of a source, and out of each stage
behind it, by way of a generator costs some 40 ns more than one out of a list. So a flow may
give `blocks` of items that are there already, such as a list's iterator, and whoever reads
the flow hands these on as they are. The position follows from what is left of the block at
hand.

What that saves, in ns of CPU time per item of `run` (CPython 3.11, 1,000,000 items):

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
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from lazyckpt.core.iterators import ENDLESS, Walk, iterate, make_ticks, remaining
from lazyckpt.core.prng import Indices
from lazyckpt.errors import SourceChanged

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T", covariant=True)
U = TypeVar("U")

Position: TypeAlias = Any
Pick: TypeAlias = Callable[[int, int], tuple[int, list[U]]]


_NO_ITEMS: Iterator[Any] = iterate(())


class Flow(Generic[T]):
    """Items from a position on, and a thunk for the position reached.

    `snapshot()` is right after every item and at the end, not after an error:
    then the flow is dropped. Before the first `next` it is the position that
    the flow was opened at. Iterate a flow once. A pending function `fn` rides
    along, so that `map` costs no layer of its own. `taken()` is given where it
    comes free: how many items were taken from `pull`, after an error too.

    `place()` is both, where that takes less time. `before()` is the position just before the
    item that was taken last, behind all that was dropped before it: from there the next item
    is that one, and nothing else is made. It is given where nobody has to note it at each;
    `noting()` is the same flow with a `before` that is noted so, in place of one that has
    not begun: where items are dropped only that flow can tell.

    `pick(n, index)` takes the next n items, of which only the one at `index` is wanted: it gives
    how many there are, and a list of that one, if it is one of them. It is given where that
    takes less than to make them all.

    `blocks` gives the same items as `pull`: one or the other is read. It comes with `taken`,
    which is right whatever interrupts it. `chunks` is there where workers make the items.
    """

    __slots__ = (
        "before",
        "block",
        "blocks",
        "chunks",
        "fn",
        "noting",
        "pick",
        "place",
        "pull",
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
        place: Callable[[], tuple[Position, int]] | None = None,
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
        self.place = place
        self.before = before
        self.noting = noting
        self.pick = pick
        self.block: Iterator[Any] = _NO_ITEMS  # at hand, out of `blocks`

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

    def placed(self, snapshot: Callable[[], Position]) -> Flow[T]:
        """The same items at other positions."""
        return Flow(self.pull, snapshot, self.fn, self.taken, blocks=self.blocks)

    @property
    def has_blocks(self) -> bool:
        """Whether its items come in blocks."""
        return self.blocks is not None and self.fn is None

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

    def close(self) -> None:
        """Have no more made."""


class Table(NamedTuple, Generic[T]):
    """What random access reads from: one item, or many at once.

    `rows` and `stacked` are None where many at once are no cheaper than one by one.
    `is_ours` says that to get an item runs none of a user's code: `rows` may read some before
    they are asked for, and without `rows` they are in memory. `spaced` gives the items of a
    rising range, where that is cheaper too.
    """

    get: Callable[[int], T]
    rows: Callable[[Indices], list[T]] | None = None
    stacked: Callable[[Indices], Any] | None = None
    is_ours: bool = False
    spaced: Callable[[range], Sequence[T]] | None = None

    @property
    def is_there(self) -> bool:
        """Whether its items need no making: to have one that nobody wants costs nothing."""
        return self.is_ours and self.rows is None


BlockStarts: TypeAlias = "Callable[[], NDArray[np.int64]]"


class View(NamedTuple, Generic[T]):
    """The vectorized mode: items as a table, and the order in which to read it.

    `ahead(position, offsets)` gives the table's indices of the items that come
    `offsets` items after the position; the offsets must not run past the end.
    `block_starts()` tells which items of an epoch are the first ones of the blocks that
    the data are stored in, in rising order; some may be none of its items. It is
    None where that is not known.
    """

    table: Table[T]
    ahead: Callable[[Position, Indices], Indices]
    block_starts: BlockStarts | None = None

    def moved(self, start: int, stride: int = 1) -> BlockStarts | None:
        """`block_starts` of every `stride`-th item, from number `start` on."""
        starts = self.block_starts
        return starts and (lambda: -((start - starts()) // stride))


def close_stream(flow: Flow[Any]) -> None:
    """Close what the items come from, unless it is about to give one, and end its block."""
    if flow.chunks is not None:
        flow.chunks.close()
    for stream in (flow.blocks, flow.pull):
        if isinstance(stream, GeneratorType) and not stream.gi_running:
            stream.close()
    deque(flow.block, 0)


def counted(items: Iterable[U]) -> tuple[Iterator[U], Callable[[], int]]:
    """The items, and a thunk that tells how many were taken, at no Python cost an item."""
    if isinstance(items, Flow) and items.taken is not None and items.fn is None:
        return items.pull, items.taken
    count = make_ticks()
    return compress(items, count), lambda: ENDLESS - remaining(count)


def picking(
    flow: Flow[U],
) -> tuple[Iterator[U], Callable[[], int], Pick[U]]:
    """As of `counted`, and the flow's `pick`, or one that calls what is pending once at most."""
    items, taken = counted(flow)
    pick = flow.pick or partial(_picked, flow.pull if flow.fn else items, flow.fn)
    if items is flow.pull or not (flow.pick or flow.fn):  # it counts those too
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
    """The flow, and its `before`, which is noted at each item where the flow has none."""
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


class FirstItems(islice):  # type: ignore[type-arg]  # it takes none when it runs
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
"""Types of iterators that run no code of a user's."""


def in_blocks(
    blocks: Iterator[Iterator[U]],
    snapshot: Callable[[], Position],
    taken: Callable[[], int],
    place: Callable[[], tuple[Position, int]] | None = None,
    before: Callable[[], Position] | None = None,
) -> Flow[U]:
    """A flow of blocks of items, of which iterators over a sequence cost no more than that.

    `taken` says how many items were taken, whatever interrupts.
    """
    pull = chain.from_iterable(blocks)
    return Flow(pull, snapshot, None, taken, None, blocks, place, before)


def blocks_of(flow: Flow[U]) -> tuple[Iterable[Iterator[U]], Callable[[], int], Pick[U]]:
    """The items of a flow as blocks, how many were taken, and its `pick`."""
    if flow.blocks is not None and flow.taken is not None and not (flow.fn or flow.pick):
        return flow.blocks, flow.taken, partial(_picked, flow.pull, None)
    items, taken, pick = picking(flow)
    return (items,), taken, pick


def put_back(flow: Flow[U], block: Iterator[U]) -> None:
    """Have `pull` go on with a block, as somebody's code is in it."""
    assert flow.blocks is not None
    flow.pull, flow.blocks = chain.from_iterable(chain([block], flow.blocks)), None


def next_walk(flow: Flow[U]) -> Iterator[U] | None:
    """The next block of a flow, also as its `block`; None at the end, or if it is put back."""
    assert flow.blocks is not None
    block = next(flow.blocks, None)
    if block is not None and type(block) not in WALKS:
        put_back(flow, block)
        return None
    if block is not None:
        flow.block = block
    return block


def pass_over(flow: Flow[Any], count: int) -> None:
    """Read items of a flow again, without what comes of them."""
    found = 0 if flow.pick is None else flow.pick(count, -1)[0]
    while found < count and flow.has_blocks and (block := next_walk(flow)) is not None:
        found += sum(1 for _ in islice(block, count - found))
    found += sum(1 for _ in islice(flow.pull, count - found))
    if found < count:
        raise SourceChanged(
            f"reading {count} items again yielded {found}: "
            "a source or function doesn't yield the same items twice"
        )

"""Iterators that order, group or join what they get."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import lazyckpt as lz
from lazyckpt.compat.infinibatch import stages
from lazyckpt.compat.infinibatch.legacy import refilled
from lazyckpt.compat.infinibatch.protocol import (
    Behind,
    Checkpoint,
    CheckpointableIterator,
    Walk,
    apart,
    as_many,
    drawing,
    kept,
    piped,
)
from lazyckpt.compat.infinibatch.twister import Seed, located
from lazyckpt.core.checks import checked, function, integer, optional, positive
from lazyckpt.core.flow import Position
from lazyckpt.errors import InvalidState


class BufferedShuffleIterator(Behind):
    """A shuffle with a buffer: each item takes a random slot, and what was there is given.

    The slots are those of `random.Random(seed).randrange`. [D] None is an item like
    any other; `buffer_size` is checked here; the state holds no items.

    State: a place before the oldest item in the buffer and counts. A restore reads
    the source again from there, about 12 times the buffer. A state of Infinibatch
    itself, which holds items, is found by reading from the beginning; not where the
    source has None items, or where its generator had more than 2**27 words drawn.
    """

    def __init__(
        self, source_iterator: CheckpointableIterator, buffer_size: int, seed: Seed = 0
    ) -> None:
        name = "BufferedShuffleIterator"
        size = checked(name, "buffer_size", buffer_size, positive)
        shuffle = stages.infinibatch_reservoir(size, **drawing(name, seed))
        super().__init__(source_iterator, shuffle)

    def _position(self, found: Checkpoint) -> Position:
        arguments = self._pipeline.calls[-1].arguments
        seed, origin = arguments["seed"], arguments["origin"]
        place, words = located(seed, origin, found["random_state"])
        left = sum(item is not None for item in found["buffer"])
        begin = self._upstream(None)
        counts = refilled(arguments["buffer_size"], seed, origin, words, left)
        if place != origin:
            raise InvalidState("the generator of this state is too far from its seed")
        return begin, origin, 0, 0, *counts


class BlockwiseShuffleIterator(Behind):
    """Consecutive blocks of items, each shuffled by `random.Random(seed)`, the short last one too.

    State: the place before the current block, how many random words were drawn
    before it, and how many of its items were given. A restore reads one block again.
    """

    def __init__(
        self, source_iterator: CheckpointableIterator, block_size: int, seed: Seed = 0
    ) -> None:
        name = "BlockwiseShuffleIterator"
        size = checked(name, "block_size", block_size, positive)
        blocks = stages.infinibatch_blocks(size, **drawing(name, seed))
        super().__init__(source_iterator, blocks)

    def _position(self, found: Checkpoint) -> Position:
        state = found["source_state"] or {"recurrent_state": None, "source_state": None}
        inner = state["source_state"]
        before = None if inner is None else inner["source_state"]
        anchor, given = self._within(before, found["flattened_items_yielded"])
        return anchor, *self._drawn(state["recurrent_state"]), given


class BucketedReadaheadBatchIterator(Behind):
    """Batches of items alike: sections of `read_ahead` items, sorted by `key`, the largest first.

    - `key`: None leaves the section's order
    - `batch_size`: an int, or a function of a batch's first item; at least 1 is taken
    - `boundary_key`: a new batch begins where its value changes
    - `shuffle`: gives the batches of a section in an order by `random.Random(seed)`

    [D] `read_ahead` is checked here; NumPy's ints are ints; None as a boundary key
    is a `ValueError` that names the item.

    State: the place before the section, how many random words were drawn before
    it, and how many of its batches were given. A restore reads one section again.
    """

    def __init__(
        self,
        source_iterator: CheckpointableIterator,
        read_ahead: int,
        key: Callable[[Any], Any] | None,
        batch_size: int | Callable[[Any], int],
        boundary_key: Callable[[Any], Any] | None = None,
        shuffle: bool = True,
        seed: Seed = 0,
    ) -> None:
        name = "BucketedReadaheadBatchIterator"
        buckets = stages.infinibatch_buckets(
            checked(name, "read_ahead", read_ahead, positive),
            checked(name, "key", key, optional(function)),
            batch_size
            if callable(batch_size)
            else checked(name, "batch_size", batch_size, integer),
            checked(name, "boundary_key", boundary_key, optional(function)),
            bool(shuffle),
            **drawing(name, seed),
        )
        super().__init__(source_iterator, buckets)

    def _position(self, found: Checkpoint) -> Position:
        words = self._drawn(found["random_state"])
        return self._upstream(found["source_state"]), *words, found["num_served"]


class WindowedIterator(Behind):
    """Tuples of `width` consecutive items, each beginning one item after the last.

    [D] `width` is checked here.

    State: the place of the next window's first item.
    """

    def __init__(self, source_iterator: CheckpointableIterator, width: int) -> None:
        width = checked("WindowedIterator", "width", width, positive)
        super().__init__(source_iterator, lz.sliding_window(width))

    def _position(self, found: Checkpoint) -> Position:
        return self._later(found["source_state"], found["item_index"])


class FixedBatchIterator(Behind):
    """Lists of `batch_size` items, the last one shorter.

    State: that of the source.
    """

    def __init__(self, source_iterator: CheckpointableIterator, batch_size: int) -> None:
        size = checked("FixedBatchIterator", "batch_size", batch_size, positive)
        super().__init__(source_iterator, lz.batch(size))

    def _position(self, found: Checkpoint) -> Position:
        return self._upstream(found["source_state"])


class ZipIterator(Walk):
    """Tuples of one item from each source, until the shortest ends.

    [Q] It begins where its sources are, as `MapIterator` does. [D] No sources, a
    state with another number of them, or the same iterator twice are refused.

    State: that of each source.
    """

    def __init__(self, *source_iterators: CheckpointableIterator) -> None:
        pipes = [piped(each, "source_iterators") for each in source_iterators]
        apart(source_iterators)
        begin = tuple(map(kept, source_iterators)), 0
        super().__init__(lz.zip(*pipes), *source_iterators, begin=begin)

    def _position(self, found: Checkpoint) -> Position:
        states = found["input_states"]
        as_many(states, len(self._sources))
        return tuple(self._upstream(each, number) for number, each in enumerate(states)), 0


class MultiplexIterator(Walk):
    """For every index that the control iterator gives, the next item of that source.

    [D] A source that has ended is a `PipelineError` which says so. [Q] Negative
    indices are refused, as those too large are: -1 is more often a mistake than
    the last source. The same iterator twice is refused.

    State: that of the control iterator and of each source.
    """

    def __init__(
        self,
        control_iterator: CheckpointableIterator,
        source_iterators: Sequence[CheckpointableIterator],
    ) -> None:
        sources = list(source_iterators)
        pipes = [piped(each, "source_iterators") for each in sources]
        control = piped(control_iterator, "control_iterator")
        apart([control_iterator, *sources])
        super().__init__(lz.multiplex(control, pipes), control_iterator, *sources)

    def _position(self, found: Checkpoint) -> Position:
        states = found["source_iterator_states"]
        as_many(states, len(self._sources) - 1)
        rest = [self._upstream(each, number) for number, each in enumerate(states, 1)]
        return self._upstream(found["control_iterator_state"]), tuple(rest)

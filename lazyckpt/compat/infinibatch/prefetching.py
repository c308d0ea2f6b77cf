"""Iterators whose items are made ahead, by other processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lazyckpt as lz
from lazyckpt.compat.infinibatch.ahead import made_ahead
from lazyckpt.compat.infinibatch.protocol import Checkpoint, CheckpointableIterator, Walk, piped
from lazyckpt.core.checks import boolean, checked, positive
from lazyckpt.core.flow import Position


class ParallelMapIterator(Walk):
    """`transform(item)` for every item, by several processes, in order.

    [D] The processes start with the first item, and `close` ends them.

    - `num_items_per_process`: times `num_processes` items are held ready

    State: that of the source.
    """

    def __init__(
        self,
        source_iterator: CheckpointableIterator,
        transform: Callable[[Any], Any],
        num_processes: int,
        num_items_per_process: int,
    ) -> None:
        mapped, name = piped(source_iterator) | lz.map(transform), "ParallelMapIterator"
        workers = checked(name, "num_processes", num_processes, positive)
        each = checked(name, "num_items_per_process", num_items_per_process, positive)
        super().__init__(made_ahead(mapped, workers, workers * each), source_iterator)

    def _position(self, found: Checkpoint) -> Position:
        inner = found["source_state"]
        state = None if inner is None else inner["source_state"]
        return self._later(state, self._within(state, found["flattened_items_yielded"])[1])


class PrefetchIterator(Walk):
    """The items as they are, made ahead by a process; stages behind it run here.

    - `buffer_size`: items held ready; of small ones, that are soon made, some lots more
    - `buffer_in_main_process`: no matter; they always are
    - `log_empty_buffer_warning`: log "prefetch buffer is empty" where an item is
      asked for and none is ready

    [D] An exception in the source arrives, after the items before it. Where
    processes are not forked, what can't be pickled is made ahead by a thread.
    `close` ends the process, and may be called twice; then `next` and `setstate`
    raise `RuntimeError`, and `getstate` works. What is dropped without it gives a
    `ResourceWarning`. One inside another is made by the outer one's process.

    State: that of the source, whatever the buffer.
    """

    def __init__(
        self,
        source_iterator: CheckpointableIterator,
        buffer_size: int,
        buffer_in_main_process: bool = False,
        log_empty_buffer_warning: bool = False,
    ) -> None:
        pipe, name = piped(source_iterator), "PrefetchIterator"
        size = checked(name, "buffer_size", buffer_size, positive)
        logs = checked(name, "log_empty_buffer_warning", log_empty_buffer_warning, boolean)
        super().__init__(made_ahead(pipe, 1, size, logs), source_iterator)

    def _position(self, found: Checkpoint) -> Position:
        return self._later(found["source_state"], found["item_offset"])

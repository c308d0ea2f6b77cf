"""Items of a run that are computed before they are delivered."""

from __future__ import annotations

import math
from collections import deque
from typing import Generic, TypeVar

from lazyckpt.core.call import Chain
from lazyckpt.epochs import EpochLoader
from lazyckpt.errors import PipelineError
from lazyckpt.run import Run
from lazyckpt.state.state import AnyState, State

T = TypeVar("T")


class Lookahead(Generic[T]):
    """Items of a run that are computed before they are delivered, each with the state after it.

    Attributes:
        items: The items, in order.
        error: The error raised in place of the next item.
        is_over: True if there is no next item in the requested epochs.
    """

    def __init__(self, run: Run[T]) -> None:
        self._run = run
        self._epochs = EpochLoader(run)
        self._begin()

    def _begin(self) -> None:
        self.items: deque[tuple[T, State]] = deque()
        self.error: Exception | None = None
        self.is_over = False
        self._restart()

    def _restart(self) -> None:
        self._pairs = self._run.with_state()
        self._is_whole = self._epochs.is_fresh  # True if no item of the epoch was read

    @property
    def end(self) -> State:
        """The state after the last of the items."""
        return self._run.state

    def go_to(self, state: AnyState) -> None:
        """Drop the items and continue from a state."""
        self._run.load_state_dict(state)
        self._begin()

    def begin(self, epoch: int, state: State) -> None:
        """Drop the items and go to the start of an epoch, counting the items before a state."""
        self._run.load_state_dict(state)
        self._epochs.advance(epoch)
        self._begin()

    def change(self, pipeline: Chain) -> None:
        """Continue as a different pipeline after the last of the items."""
        self._run.change(pipeline)
        self._begin()

    def epoch(self) -> int:
        """Return the epoch of the next item: the current one, or the next if that is over.

        Clears an error, and tries that item again.
        """
        self.error, self.is_over = None, False
        if not self.items:
            is_fresh = self._epochs.is_fresh
            self.fill(1, self._epochs.epoch)
            if self.is_over and not is_fresh:
                self._advance()
                self.fill(1, self._epochs.epoch)
        if self.items:
            return self._run.pipeline.machine.epoch(self.items[0][1].position)
        return self._epochs.epoch

    def fill(self, size: int, last: float) -> None:
        """Compute items until there are `size`, or until epoch `last` ends."""
        self.is_over = self.is_over and self._epochs.epoch >= last
        while len(self.items) < size and self.error is None and not self.is_over:
            try:
                self.items.append(next(self._pairs))
                self._is_whole = False
            except StopIteration:
                self._go_on(last)
            except BaseException as error:
                self._pairs = self._run.with_state()  # the error has ended the iterator
                if not isinstance(error, Exception):
                    raise
                self.error = error

    def _go_on(self, last: float) -> None:
        if self._is_whole and last == math.inf:
            self.error = PipelineError("an epoch of the stream is empty, so epochs have no size")
        elif self._epochs.epoch < last:
            self._advance()
        else:
            self.is_over = True
            self._pairs = self._run.with_state()

    def _advance(self) -> None:
        self._epochs.advance()
        self.is_over = False
        self._restart()

"""`Run`: the one mutable object, an iterator over a pipeline that knows its state."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import chain, islice
from math import inf
from typing import Any, NoReturn, TypeVar

from lazyckpt.core.call import Chain, runnable
from lazyckpt.core.checks import brief, checked, natural, plural, positive
from lazyckpt.core.flow import counted
from lazyckpt.core.machine import rank_of
from lazyckpt.core.pictured import Legend, Pictured
from lazyckpt.delivery import Delivery, lasting
from lazyckpt.epochs import EpochLoader
from lazyckpt.errors import PipelineError
from lazyckpt.executors.executor import Executor
from lazyckpt.failures.skip_log import Skipped
from lazyckpt.state.rebase import followed, matching
from lazyckpt.state.state import State, as_state, flat
from lazyckpt.stats import Stats

T = TypeVar("T")


class Run(Iterator[T], Pictured):
    """An iterator over a pipeline that knows its position. Create it with `lazyckpt.run`.

    `state` always reflects the last delivered item, also after an error; iterating again then
    tries the failed item again. Leaving a loop early loses nothing: the next loop continues. A run
    is not thread-safe; to use states in another thread, take them from `with_state`.
    """

    def __init__(
        self,
        pipeline: Chain,
        state: State | str | bytes | Mapping[str, Any] | None = None,
        *,
        strict: bool = True,
        executor: Executor | None = None,
        skips: bool = False,
    ) -> None:
        self._strict = strict
        self._delivery: Delivery[T] = Delivery(pipeline, executor, skips)
        self._delivery.go_to(None if state is None else self._fitting(state))
        self._items, self._thread = lasting(self._delivery.blocks), get_ident()

    def _fitting(self, state: State | str | bytes | Mapping[str, Any]) -> State:
        found = as_state(state, [*map(rank_of, self.pipeline.machines)])
        is_ours = found.rank is None and found.stages == self.pipeline.entries
        return found if is_ours or not self._strict else matching(found, self.pipeline)

    @property
    def pipeline(self) -> Chain:
        """The pipeline of the run; after `change`, the new one."""
        return self._delivery.pipeline

    @property
    def state(self) -> State:
        """The state after the last delivered item. Reading it has no side effects."""
        return self._delivery.state()

    @property
    def skipped(self) -> Skipped:
        """Number of items skipped before the last delivered one, as an int.

        Its `first` describes the first 8 of them, or fewer if descriptions are long: the stage, the
        position just after the item, as a state would contain it, and the error. These are part of
        the state. So they cover the whole stream, over any number of resumes, and items that are
        re-read are not counted again. They don't depend on the executor.

        >>> import lazyckpt as lz
        >>> run = lz.run(lz.source(["1", "b", "3"]) | lz.map(int), on_error="skip")
        >>> list(run), run.skipped
        ([1, 3], 1)
        >>> print(*run.skipped.first)
        map(int) before (0, 2): ValueError: invalid literal for int() with base 10: 'b'
        """
        return self._delivery.here().skipped

    @property
    def stats(self) -> Stats:
        """Throughput of the run, and the time its consumer waits. Any thread may read it.

        With workers, waiting is always measured. Without workers, the time in `next` is measured
        from the first read on, for about 0.1 µs per item; so read it once before the loop.

        >>> import lazyckpt as lz
        >>> run = lz.run(lz.source(range(10)))
        >>> before = run.stats
        >>> (next(run), next(run)), (run.stats - before).items
        ((0, 1), 2)
        """
        return self._delivery.stats()

    def state_dict(self) -> dict[str, Any]:
        """Return the state as a dict, for any checkpointer.

        Returns:
            A flat dict of ints and strings.
        """
        return flat(self.state)

    def load_state_dict(self, state: State | str | bytes | Mapping[str, Any]) -> None:
        """Go to a state, before, during or after iteration. A running loop continues from there.

        Args:
            state: A `State`, its JSON string or its dict.

        Raises:
            StateMismatch: If the state belongs to a different pipeline.
            InvalidState: If it is not a state, or doesn't fit the pipeline.
            PipelineError: If the run waits for an item in a different thread.
        """
        self._delivery.go_to(self._fitting(state))

    def change(self, pipeline: Chain) -> None:
        """Replace the pipeline, from the next item on. A running loop continues.

        The state is carried over as by `rebase`. Items already delivered stay delivered. Items
        computed ahead are computed again by the new pipeline, with new workers if there are any.
        If the rest of the items would not follow exactly, nothing changes. A function counts as
        different if its code or a value that it holds differs. On several ranks, all ranks must
        change after the same item. To audit a run later, keep the pipeline and the state of each
        change: `trace`, `seen` and `replay` work between two changes.

        Args:
            pipeline: The new pipeline; nothing happens if it equals the current one.

        Raises:
            StateMismatch: If the state can't be carried over; the message says why.
            PipelineError: If the run is closed, or an item is being computed.

        >>> import lazyckpt as lz
        >>> run = lz.run(lz.source(range(10)) | lz.batch(2))
        >>> next(run)
        [0, 1]
        >>> run.change(lz.source(range(10)) | lz.batch(5))
        >>> list(run)
        [[2, 3, 4, 5, 6], [7, 8, 9]]
        """
        found = runnable("Run.change", pipeline)
        self._delivery.change(found, lambda state: followed(state, found, self.pipeline))

    def advance(self, n: int) -> None:
        """Skip the next `n` items: immediately with random access, otherwise by computing them.

        With random access, workers still compute a few items if that is faster than a restart.

        Args:
            n: Number of items, an int >= 0.

        Raises:
            IndexError: If fewer items are left; with random access, the run keeps its position.
            PipelineError: If the run is closed, or waits for an item in a different thread.

        >>> import lazyckpt as lz
        >>> run = lz.run(lz.source(range(10**9)))
        >>> run.advance(123_456_789)
        >>> next(run)
        123456789
        """
        n = checked("Run.advance", "n", n, natural)
        self._delivery.check_open()
        passed = self._delivery.pass_over(n)
        if passed is None:
            passed = sum(1 for _ in islice(self, n))
        if passed < n:
            raise IndexError(f"Run.advance: n={brief(n)}, but only {passed:,} items are left")

    def with_state(self) -> Iterator[tuple[T, State]]:
        """Yield each item together with the state after it."""
        delivery = self._delivery
        delivery.check_open()
        for item in self:
            try:
                state = delivery.state()
            except BaseException:  # the item was not delivered, so deliver it again
                delivery.take_back()
                raise
            yield item, state

    def epoch(self, size: int | None = None) -> Iterator[T]:
        """Yield the rest of the current epoch, or all of the next one if nothing is left.

        An epoch is one pass over the stream, each in a new order if it is shuffled. With `size`, an
        epoch has that number of items, across the ends of the stream, and ends after each multiple
        of it. The position within an epoch follows from the state, so a call yields the same items
        before and after a resume: at item 3 of 5, it yields 2 items. After an error, the iterator
        tries the failed item again.

        Args:
            size: Number of items per epoch; None for one pass.

        Returns:
            An iterator over the items.

        Raises:
            PipelineError: If a pass over the stream is empty, and `size` is given.

        >>> import lazyckpt as lz
        >>> run = lz.run(lz.source(["a", "b", "c"]))
        >>> list(run.epoch()), list(run.epoch(4)), list(run.epoch(4))
        (['a', 'b', 'c'], ['a'], ['b', 'c', 'a', 'b'])
        """
        if size is not None:
            size = checked("Run.epoch", "size", size, positive)
        return chain.from_iterable(self._epoch(size))

    def _epoch(self, size: int | None) -> Iterator[Iterator[T]]:
        """Yield the epoch's items, and after an error those from the failed one on."""
        epochs = EpochLoader(self)
        given, fresh = 0, epochs.is_fresh
        wanted = None if size is None else size - self._delivered % size
        while wanted is None or given < wanted:
            before = given
            items, taken = counted(islice(self, None if wanted is None else wanted - given))
            yield items
            given += taken()
            if self._delivery.is_closed:
                return
            if not self._delivery.is_ended:
                continue  # after an error
            if given == wanted or (size is None and (given or fresh)):
                return
            if fresh and given == before:
                raise PipelineError(f"epoch(size={size}): a pass over the stream is empty")
            epochs.advance()
            fresh = True

    @property
    def allow_buffering(self) -> AbstractContextManager[None]:
        """Return a context in which workers of a `gated` executor compute items ahead. It nests."""
        return Buffering(self.unpause, self.pause)

    def pause(self) -> None:
        """Stop computing items ahead.

        Threads finish their current item, and processes the items already sent to them. Items that
        you wait for are still computed. Each `pause` needs an `unpause`, as with a lock. It has no
        effect while ranks share work, as other ranks may need these items.
        """
        if (session := self._delivery.session) is not None:
            session.add_buffering(-1)

    def unpause(self) -> None:
        """Compute items ahead again, or for the first time if the executor is `gated`."""
        if (session := self._delivery.session) is not None:
            session.add_buffering(1, fill=not self._delivery.is_closed)

    def close(self) -> None:
        """Release everything that is open: files, threads, processes.

        It is safe to call from a signal handler or from the pipeline's own functions. No item is
        delivered after that: a loop ends without an error. An item in progress is delivered after
        reopening. The state stays readable. Entering the run reopens it. Items that workers had
        ready are kept, unless ranks share work.
        """
        self._delivery.close()

    def __enter__(self) -> Run[T]:
        self._delivery.open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[T]:
        self._delivery.check_open()
        return lasting(self._delivery.blocks)

    def __next__(self) -> T:
        if get_ident() != self._thread:  # two threads in one chain of C code would end it, or worse
            self._delivery.check_free()
            self._items, self._thread = lasting(self._delivery.blocks), get_ident()
        while True:
            try:
                return next(self._items)
            except StopIteration:  # also after an interrupt, or after a state was loaded
                self._items = lasting(self._delivery.blocks)
                self._delivery.check_open()
                if self._delivery.is_ended:
                    raise

    def __reduce__(self) -> NoReturn:
        raise TypeError("a run can't be pickled or copied; use its state or state_dict()")

    def __repr__(self) -> str:
        return f"<run of {self.pipeline!r}, {plural(self._delivered, 'item')} delivered>"

    def _legend(self) -> Legend:
        try:
            state = self.state
        except Exception as error:  # a state that can't be stored
            found = plural(self._delivered, "item"), f"{type(error).__name__}: {error}"
            return Legend(self.pipeline, {}, found)
        told = state._legend()
        return told._replace(stages=self.pipeline, share=self._share(state))

    def _share(self, state: State) -> float | None:
        """Return the completed share of the epoch, if its length is known."""
        machine, items = self.pipeline.machine, state.own_items
        if not machine.length or machine.length == inf or items is None:
            return None
        done = items / machine.length - machine.epoch(state.position)
        return done if 0 <= done <= 1 else None

    @property
    def _delivered(self) -> int:
        return self._delivery.cursor.delivered()


class Buffering(AbstractContextManager[None]):
    """A context that can be entered repeatedly, also within itself."""

    def __init__(self, unpause: Callable[[], None], pause: Callable[[], None]) -> None:
        self._unpause, self._pause = unpause, pause

    def __enter__(self) -> None:
        self._unpause()

    def __exit__(self, *error: object) -> None:
        self._pause()

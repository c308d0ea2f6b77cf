"""`Run`: the one mutable object, an iterator over a pipeline that knows its state."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import islice
from math import inf
from typing import Any, NoReturn, TypeVar

from lazyckpt.core.call import Chain, runnable
from lazyckpt.core.checks import brief, checked, natural, plural, positive
from lazyckpt.core.flow import counted
from lazyckpt.core.pictured import Legend, Pictured
from lazyckpt.core.ranks import rank_of
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
    """An iterator over a pipeline that knows where it is. `lazyckpt.run` makes it.

    Its state is that after the last delivered item, whenever you read it. After an
    error it still is, and iterating again tries the same item again. Leaving a loop
    early loses nothing: the next loop goes on. A run is for one thread at a time; to
    have states in another thread, take them from `with_state`.
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
        return matching(found, self.pipeline) if self._strict else found

    @property
    def pipeline(self) -> Chain:
        """What it runs: since `change`, what it was changed to."""
        return self._delivery.pipeline

    @property
    def state(self) -> State:
        """The state after the last delivered item. Reading it disturbs nothing."""
        return self._delivery.state()

    @property
    def skipped(self) -> Skipped:
        """How many items were left out before the last delivered one, as an int.

        Its `first` are texts of the first 8, or of fewer if they are long: the
        stage, the position just behind the item, as a state would have it there,
        and the error. They are part of the state, and so count for the whole stream,
        however often it was resumed: what is read again is not counted again. They
        don't depend on the executor.

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
        """How fast the run is, and how much its consumer waits. Any thread may read it.

        Workers' waits are always measured. Without workers the time in `next` is measured
        from the first read on, for about 0.1 µs an item; so read it once before the loop.

        >>> import lazyckpt as lz
        >>> run = lz.run(lz.source(range(10)))
        >>> before = run.stats
        >>> (next(run), next(run)), (run.stats - before).items
        ((0, 1), 2)
        """
        return self._delivery.stats()

    def state_dict(self) -> dict[str, Any]:
        """The state, for any checkpointer.

        Returns:
            A flat dict of ints and texts.
        """
        return flat(self.state)

    def load_state_dict(self, state: State | str | bytes | Mapping[str, Any]) -> None:
        """Go to a state, before, within or after iteration. A loop under way goes on from there.

        Args:
            state: A `State`, its JSON text or its dict.

        Raises:
            StateMismatch: The state is another pipeline's.
            InvalidState: It is no state, or does not fit the pipeline.
        """
        self._delivery.go_to(self._fitting(state))

    def change(self, pipeline: Chain) -> None:
        """Go on as another pipeline, from the next item on. A loop under way goes on too.

        The state is carried over as `rebase` does: what was delivered stays delivered, what
        was ahead is made again by the new pipeline, with new workers where there are some.
        Where the rest of the items would not follow exactly, nothing changes. A function
        is another one if its code differs, or a value that it holds. On several
        ranks all change after the same item. To see again what a run gave, keep the
        pipeline and the state of each change: `trace`, `seen` and `replay` take those of
        one stretch.

        Args:
            pipeline: What comes now; nothing happens if the run has an equal one.

        Raises:
            StateMismatch: A state cannot follow; with the reason.
            PipelineError: The run is closed, or an item is being made.

        >>> import lazyckpt as lz
        >>> run = lz.run(lz.source(range(10)) | lz.batch(2))
        >>> next(run)
        [0, 1]
        >>> run.change(lz.source(range(10)) | lz.batch(5))
        >>> list(run)
        [[2, 3, 4, 5, 6], [7, 8, 9]]
        """
        found = runnable("Run.change", pipeline)
        self._delivery.check_at_rest("change")
        if found != self.pipeline:
            self._delivery.go_to(followed(self.state, found, self.pipeline), found)

    def advance(self, n: int) -> None:
        """Go on behind the next n items: at once with random access, else by making them.

        Workers make them too where they are few, for that is sooner done.

        Args:
            n: How many, an int >= 0.

        Raises:
            IndexError: Fewer are left.

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
        """Each item together with the state after it."""
        delivery = self._delivery
        delivery.check_open()
        for item in self:
            try:
                state = delivery.state()
            except BaseException:  # the item has gone no further, so it comes again
                delivery.take_back()
                raise
            yield item, state

    def epoch(self, size: int | None = None) -> Iterator[T]:
        """The rest of this epoch, or the next one where nothing is left.

        An epoch is a pass over the stream, each in a new order if it is shuffled; or
        it has `size` items, across the ends of the stream, and the epochs begin after
        each multiple of them. Where the run is in its epoch follows from its state, so
        a call gives the same before and after a resume: at item 3 of 5, 2 items.

        Args:
            size: How many items an epoch has.

        Returns:
            An iterator over the items.

        Raises:
            PipelineError: A pass over the stream is empty, and `size` is given.

        >>> import lazyckpt as lz
        >>> run = lz.run(lz.source(["a", "b", "c"]))
        >>> list(run.epoch()), list(run.epoch(4)), list(run.epoch(4))
        (['a', 'b', 'c'], ['a'], ['b', 'c', 'a', 'b'])
        """
        if size is not None:
            size = checked("Run.epoch", "size", size, positive)
        return self._epoch(size)

    def _epoch(self, size: int | None) -> Iterator[T]:
        epochs = EpochLoader(self)
        given, fresh = 0, epochs.is_fresh
        wanted = None if size is None else size - self._delivered % size
        while wanted is None or given < wanted:
            before = given
            items, taken = counted(islice(self, None if wanted is None else wanted - given))
            yield from items
            given += taken()
            if (
                given == wanted
                or not self._delivery.is_ended
                or (size is None and (given or fresh))
            ):
                return
            if fresh and given == before:
                raise PipelineError(f"epoch(size={size}): an epoch of the stream is empty")
            epochs.advance()
            fresh = True

    @property
    def allow_buffering(self) -> AbstractContextManager[None]:
        """A context in which workers may make items ahead, where the executor is `gated`. Nests."""
        return Buffering(self.unpause, self.pause)

    def pause(self) -> None:
        """Make nothing ahead from now on.

        Threads finish what they are at, and processes what they have been given. Items that
        you wait for are still made. Each `pause` needs an `unpause`, as a lock does.
        """
        if (session := self._delivery.session) is not None:
            session.add_buffering(-1)

    def unpause(self) -> None:
        """Make items ahead again, or for the first time where the executor is `gated`."""
        if (session := self._delivery.session) is not None:
            session.add_buffering(1, fill=not self._delivery.is_closed)

    def close(self) -> None:
        """Release everything that is open: files, threads, processes.

        A signal's handler and the pipeline's own functions may close it too: no item
        is delivered after that, and one that is being made comes again. The state
        stays readable. Entering the run opens it again, with what workers had ready.
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
        if get_ident() != self._thread:  # two in one chain of C code would end it, or worse
            self._delivery.check_free()
            self._items, self._thread = lasting(self._delivery.blocks), get_ident()
        while True:
            try:
                return next(self._items)
            except StopIteration:  # also after an interrupt, and where a state was loaded
                self._items = lasting(self._delivery.blocks)
                self._delivery.check_open()
                if self._delivery.is_ended:
                    raise

    def __reduce__(self) -> NoReturn:
        raise TypeError("a run can't be pickled or copied: take its state, or its state_dict()")

    def __repr__(self) -> str:
        return f"<run of {self.pipeline!r}, {plural(self._delivered, 'item')} delivered>"

    def _legend(self) -> Legend:
        try:
            state = self.state
        except Exception as error:  # of what no state can hold
            found = plural(self._delivered, "item"), f"{type(error).__name__}: {error}"
            return Legend(self.pipeline, {}, found)
        told = state._legend()
        return told._replace(stages=self.pipeline, share=self._share(state))

    def _share(self, state: State) -> float | None:
        """How much of the epoch is done, if its length is known."""
        machine, items = self.pipeline.machine, state.own_items
        if not machine.length or machine.length == inf or items is None:
            return None
        done = items / machine.length - machine.epoch(state.position)
        return done if 0 <= done <= 1 else None

    @property
    def _delivered(self) -> int:
        return self._delivery.cursor.delivered()


class Buffering(AbstractContextManager[None]):
    """A context that can be entered again and again, within itself too."""

    def __init__(self, unpause: Callable[[], None], pause: Callable[[], None]) -> None:
        self._unpause, self._pause = unpause, pause

    def __enter__(self) -> None:
        self._unpause()

    def __exit__(self, *error: object) -> None:
        self._pause()

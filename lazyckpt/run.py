"""`Run`: the one mutable object, an iterator over a pipeline that knows its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import chain, compress, islice, repeat
from operator import length_hint
from time import perf_counter
from typing import Any, NoReturn, TypeAlias, TypeVar
from weakref import ref

from lazyckpt.block_iterator import BlockIterator, lasting, raising
from lazyckpt.core.call import Chain
from lazyckpt.core.checks import checked, positive
from lazyckpt.core.entries import size as entries_size
from lazyckpt.core.flow import Chunks, Flow, Position, counted
from lazyckpt.core.lengths import is_raised_here
from lazyckpt.core.machine import Machine, entered
from lazyckpt.cursor import Cursor, Mark, MarkTimer
from lazyckpt.diagram import diagram
from lazyckpt.epochs import EpochLoader
from lazyckpt.errors import PipelineError
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.failures.notes import add_note, annotated
from lazyckpt.failures.skip_log import SkipLog, Skipped, with_marks, without_marks
from lazyckpt.failures.skipping import skipping
from lazyckpt.state.rebase import matching
from lazyckpt.state.state import Rebased, State, as_state, flat

T = TypeVar("T")

# A block, weakly, so that a loop which is left lets go of the run, and its ticks.
_UnderWay: TypeAlias = tuple[Callable[[], Any], Iterator[bool]]
_NONE: _UnderWay = (lambda: None, iter(()))


class Run(BlockIterator[T], Iterator[T]):
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
        self._pipeline = pipeline
        self._strict, self._skips = strict, skips
        skip_log = SkipLog(entries_size(pipeline.entries))
        made = skipping(pipeline, skip_log) if skips else pipeline
        self._session = None if executor is None else executor.open(made)
        self._machine = made.machine if self._session is None else self._session.machine
        if self._machine is not pipeline.machine:  # made of data that may have changed since
            pipeline.machine.check(pipeline.machine.init(0))
        skip_log.is_direct = skip_log.is_direct or self._session is None
        self._cursor: Cursor[T] = Cursor(
            self._machine, skip_log, partial(_again, pipeline, skips=skips)
        )
        self._timer = MarkTimer()
        self._closed = False
        self._ended = False
        self._under_way = _NONE
        self._load(state)

    @property
    def state(self) -> State:
        """The state after the last delivered item. Reading it disturbs nothing."""
        # There may be one for each item: so no more calls than it takes.
        opened = self._cursor.opened
        block = self._under_way[0]()
        is_at_rest = self._session is not None or block is None or not block.gi_running
        if opened is not None and is_at_rest:
            position, items = opened.flow.snapshot(), opened.before + opened.counted()
            skipped = self._cursor.skip_log.before_delivered()
            if self._cursor.opened is opened and not self._skips:
                return State(self._pipeline.entries, items, position, skipped, self._rebased)
        here = self._here()
        return self._state(here.position, here.items, here.skipped)

    def _here(self) -> Mark:
        """Where the item delivered last is, also while another is being made."""
        cursor = self._cursor
        is_at_rest = self._session is not None or not self._is_making
        if is_at_rest and not (here := cursor.here()).behind:
            return here
        try:
            if is_at_rest and not self._closed:
                cursor.open()  # and go on from there, so that nothing is read a third time
                return cursor.here()
            return cursor.find()
        except Exception as error:
            kept = self._state_at_mark()
            add_note(
                error,
                f"lazyckpt: so the state after {cursor.delivered():,} items can't be found "
                f"now; that after {kept.items:,} is {kept.to_json()}",
            )
            raise

    @property
    def _is_making(self) -> bool:
        """Whether an item is being made: a signal's handler asks, or a function of the pipeline."""
        block = self._under_way[0]()
        return block is not None and bool(block.gi_running)

    def _state(self, position: Position, items: int, skipped: Skipped) -> State:
        if self._skips:
            position, marks = without_marks(position)
            skipped = skipped.with_marks(marks)
        return State(self._pipeline.entries, items, position, skipped, self._rebased)

    def _state_at_mark(self) -> State:
        mark = self._cursor.mark
        return self._state(mark.position, mark.items, mark.skipped)

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
        return self._here().skipped

    def state_dict(self) -> dict[str, Any]:
        """The state, for any checkpointer.

        Returns:
            A flat dict of ints and texts.
        """
        return flat(self.state, skips=self._skips)

    def load_state_dict(self, state: State | str | bytes | Mapping[str, Any]) -> None:
        """Go to a state, before, within or after iteration. A loop under way goes on from there.

        Args:
            state: A `State`, its JSON text or its dict.

        Raises:
            StateMismatch: The state is another pipeline's.
            InvalidState: It is no state, or does not fit the pipeline.
        """
        self._load(as_state(state))

    def with_state(self) -> Iterator[tuple[T, State]]:
        """Each item together with the state after it."""
        self._check_open()
        before = self.state
        for item in self:
            try:
                state = self.state
            except BaseException:  # the item has gone no further, so it comes again
                self._load(before)
                raise
            yield item, state
            is_last = self._cursor.delivered() == state.items
            before = state if is_last else self.state

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
        epochs = EpochLoader(self, self._pipeline.machine)
        given, fresh = 0, epochs.is_fresh
        wanted = None if size is None else size - self._cursor.delivered() % size
        while wanted is None or given < wanted:
            before = given
            items, taken = counted(islice(self, None if wanted is None else wanted - given))
            yield from items
            given += taken()
            if given == wanted or not self._ended or (size is None and (given or fresh)):
                return
            if fresh and given == before:
                raise PipelineError(f"epoch(size={size}): an epoch of the stream is empty")
            epochs.advance()
            fresh = True

    @property
    def allow_buffering(self) -> AbstractContextManager[None]:
        """A context in which workers may make items ahead, where the executor is `gated`. Nests."""
        return Buffering(self.resume, self.pause)

    def pause(self) -> None:
        """Make nothing ahead from now on, except for chunks under way.

        What is waited for is still made. Each `pause` needs a `resume`, as a lock does.
        """
        if self._session is not None:
            self._session.add_buffering(-1)

    def resume(self) -> None:
        """Make items ahead again, or for the first time where the executor is `gated`."""
        if self._session is not None:
            self._session.add_buffering(1, fill=not self._closed)

    def close(self) -> None:
        """Release everything that is open: files, threads, processes.

        A signal's handler and the pipeline's own functions may close it too: no item
        is delivered after that, and one that is being made comes again. The state
        stays readable. Entering the run opens it again, with what workers had ready.
        """
        self._closed = True
        if self._session is None or self._is_making:
            if not self._is_making:
                self._cursor.set_mark()
            self._drop()
        else:
            self._end_block()
        if self._session is not None:
            self._session.stop()

    def __enter__(self) -> Run[T]:
        if self._session is not None:
            self._session.start()
        self._closed = False
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]  # not itself
        self._check_open()
        return chain.from_iterable(lasting(self._next_blocks))

    def _check_open(self) -> None:
        if self._closed:
            raise PipelineError("the run is closed; enter it again, or start one from its state")

    def _block(self) -> Iterator[T] | None:
        self._check_open()
        return self.next_block()

    def next_block(self) -> Iterator[T] | None:
        """What is left of the block under way, which all loops share, and perhaps more.

        Returns:
            Some items, or None at the end. After an error they are others.
        """
        blocks = self._next_blocks()
        return None if blocks is None else chain.from_iterable(blocks)

    def _next_blocks(self) -> Iterator[Iterator[T]] | None:
        if self._ended or self._closed:
            return None
        flow = self._cursor.flow
        if flow is not None and flow.chunks is not None:
            chunk = self._chunk(flow, flow.chunks)
            return iter(() if chunk is None else (chunk,))
        find, ticks = self._under_way
        found = find()
        if flow is None or flow.has_blocks:
            if found is not None and not found.gi_running:  # so that its loop asks again
                found.close()
            found = self._pass_on()
            self._under_way = ref(found), ticks
            return found
        if found is None or found.gi_frame is None:
            ticks = repeat(True, self._timer.stride)
            found = self._deliver(ticks)
            self._under_way = ref(found), ticks
        return iter((compress(found, ticks),))

    def _chunk(self, flow: Flow[T], chunks: Chunks[T]) -> Iterator[T] | None:
        """Items that workers have made: they need no watching."""
        try:
            chunk = chunks.next_chunk()
        except BaseException as error:
            self._drop()
            if self._closed and isinstance(error, TaskLost):  # by a signal's handler
                self.close()  # of workers that were about to start
                return None
            return raising(self._annotated(error))
        if self._closed or self._cursor.flow is not flow:  # by a signal's handler meanwhile
            return iter(())
        self._ended = chunk is None
        return chunk

    def _pass_on(self) -> Iterator[Iterator[T]]:
        """Blocks of items that are there, as many as are given between two looks at the clock."""
        cursor, ticks = self._cursor, repeat(True, self._timer.stride)
        try:
            flow, opened, begun = cursor.open(), cursor.opened, perf_counter()
            if opened is None or flow.blocks is None or flow.fn is not None:
                return
            yield flow.block  # what is left of it
            for _, block in zip(ticks, flow.blocks, strict=False):
                if not flow.hold(block) or cursor.opened is not opened:
                    return  # of the latter a signal's handler has closed it meanwhile
                yield block
        except BaseException as error:
            if isinstance(error, GeneratorExit) and is_raised_here(error):
                raise  # this was closed, where else a function raised it
            self._drop()
            raise self._annotated(error)  # noqa: B904  # the same error, or one with its own cause
        if cursor.opened is opened:
            self._finish(begun, is_last=length_hint(ticks) > 0)

    def _deliver(self, ticks: Iterator[bool]) -> Iterator[T]:
        """The next items, as many as are given between two looks at the clock."""
        cursor, size, fn = self._cursor, length_hint(ticks), None
        try:
            flow = cursor.open()
            cursor.count(ticks)
            fn, begun, before = flow.fn, perf_counter(), cursor.delivered()
            items = islice(flow.pull, size)
            if cursor.flow is not flow:  # closed by a signal's handler meanwhile
                return
            if fn is None:
                yield from items
            else:
                for item in items:
                    made = fn(item)
                    yield made
                    del item, made
        except BaseException as error:
            if isinstance(error, GeneratorExit) and is_raised_here(error):
                raise  # this was closed, where else a function raised it
            if "item" not in locals():
                fn = None  # which is not to blame
            self._drop()
            raise self._annotated(error)  # noqa: B904  # the same error, or one with its own cause
        if cursor.flow is not flow:  # dropped in the middle of an item
            return
        self._finish(begun, is_last=cursor.delivered() < before + size)

    def _finish(self, begun: float, *, is_last: bool) -> None:
        """Look at the clock, or note the end."""
        if is_last:
            self._ended = True
        else:
            self._timer.finish_block(begun, self._cursor.set_mark)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a run can't be pickled or copied: take its state, or its state_dict()")

    def __repr__(self) -> str:
        return f"<run of {self._pipeline!r}, {self._cursor.delivered():,} items delivered>"

    def _repr_html_(self) -> str:
        return (
            f"<div>Run({self._cursor.delivered():,} items delivered)</div>{diagram(self._pipeline)}"
        )

    def _load(self, state: State | str | bytes | Mapping[str, Any] | None) -> None:
        self._rebased: Rebased | None = None
        if state is None:
            return self._go_to(self._machine.init(0), 0, Skipped())
        found = as_state(state)
        if self._strict:
            matching(found, self._pipeline)
        self._rebased = found.rebased
        position, skipped = found.position, found.skipped
        if self._skips:
            position, skipped = with_marks(position, skipped.marks), skipped.with_marks(())
        self._go_to(position, found.items, skipped)

    def _go_to(self, position: Position, items: int, skipped: Skipped) -> None:
        flow = entered(self._machine, position)
        self._drop()
        self._ended = False
        self._cursor.go_to(Mark(position, items, skipped), flow)

    def _drop(self) -> None:
        """Close the flow: blocks end first, for none may go on with its items."""
        if self._cursor.flow is None:
            return
        if self._session is not None:  # whose positions are right after an error too
            self._cursor.set_mark()
        self._end_block()
        self._cursor.close()

    def _end_block(self) -> None:
        """End the block under way, so that loops ask for another."""
        flow = self._cursor.flow
        if flow is not None and flow.chunks is not None:
            flow.chunks.end_chunk()
        block = self._under_way[0]()
        if block is not None and not block.gi_running:
            block.close()
        self._under_way = _NONE

    def _annotated(self, error: BaseException) -> BaseException:
        cursor = self._cursor
        cursor.jump()
        return annotated(
            error,
            self._pipeline.calls,
            cursor.delivered(),
            lambda: self._state_at_mark().to_json(),
            cursor.mark.behind,
        )


@dataclass(frozen=True)
class Buffering(AbstractContextManager[None]):
    """A context that can be entered again and again, within itself too."""

    resume: Callable[[], None]
    pause: Callable[[], None]

    def __enter__(self) -> None:
        self.resume()

    def __exit__(self, *error: object) -> None:
        self.pause()


def _again(pipeline: Chain, *, skips: bool) -> tuple[Machine[Any], SkipLog]:
    """The pipeline's machine with a skip log of its own, to read items again."""
    skip_log = SkipLog(entries_size(pipeline.entries))
    skip_log.is_direct = True
    return (skipping(pipeline, skip_log) if skips else pipeline).machine, skip_log

"""Delivery of items by a run: blocks shared by all loops, and the state after the last item."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable, Generator, Iterator
from itertools import chain, compress, islice
from time import perf_counter
from typing import Any, Generic, TypeAlias, TypeVar
from weakref import ref

from lazyckpt.core.call import Chain
from lazyckpt.core.checks import is_raised_here
from lazyckpt.core.flow import WALKS, Chunks, Flow, Position, put_back
from lazyckpt.core.iterators import make_ticks, remaining
from lazyckpt.core.machine import entered, finest
from lazyckpt.cursor import Execution, Mark, MarkTimer, prepared
from lazyckpt.errors import PipelineError
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.failures.marks import with_marks, without_marks
from lazyckpt.failures.notes import add_note, annotated
from lazyckpt.failures.skip_log import Skipped
from lazyckpt.state.codec import Rebased
from lazyckpt.state.state import State
from lazyckpt.stats import Stats

T = TypeVar("T")

# A weak reference to a block, so that an abandoned loop releases the run; and its ticks.
_UnderWay: TypeAlias = tuple[Callable[[], Any], Iterator[bool]]
_NO_BLOCK: _UnderWay = (lambda: None, iter(()))
_NO_ITEM: Any = object()
_FEW = 64  # items that two processes compute in about the time of a restart


class Delivery(Generic[T]):
    """Delivers a pipeline's items to the consumer.

    Args:
        pipeline: The pipeline.
        executor: The executor; None to compute items in this thread.
        skips: If True, skip failing items.

    Attributes:
        pipeline: The current pipeline.
        machine: The machine of the pipeline.
        session: The executor's workers.
        cursor: The position of the last delivered item.
        is_ended: Whether that item was the last one.
        is_closed: Whether delivery has stopped.
    """

    def __init__(self, pipeline: Chain, executor: Executor | None, skips: bool) -> None:
        self._executor, self._skips = executor, skips
        self._use(prepared(pipeline, executor, skips=skips))
        self.is_closed = self.is_ended = False
        self._waiting_in = 0  # the thread that waits for workers, or changes the pipeline
        self._rebased: Rebased | None = None
        self._timer = MarkTimer()
        self._clock = RunClock()
        self._before = 0  # items delivered by earlier cursors, or skipped
        self._under_way = _NO_BLOCK

    def _use(self, execution: Execution[T]) -> None:
        self.pipeline, self.session, self.machine, self.cursor, self._own_rank = execution
        self._entries = self.pipeline.entries

    def state(self) -> State:
        """The state after the last delivered item."""
        # There may be one per item, so make as few calls as possible.
        cursor = self.cursor
        opened, block = cursor.opened, self._under_way[0]()
        is_at_rest = block is None or not block.gi_running or self.session is not None
        if opened is not None and is_at_rest and not self._skips:
            position, counted = opened.reached()
            items, skipped = opened.before + counted, cursor.mark.skipped  # no more are skipped
            if cursor.opened is opened:
                return State(self._entries, items, position, skipped, self._rebased, self._rank)
        here = self.here()
        return self._state(here.position, here.items, here.skipped)

    def stats(self) -> Stats:
        """Return how fast items were delivered; safe to call from any thread."""
        cursor, clock, session = self.cursor, self._clock, self.session
        is_open, seconds = cursor.opened is not None, clock.seconds
        skipped = cursor.skip_log.before_delivered() if is_open else cursor.mark.skipped
        return Stats(
            cursor.delivered() - self._before,
            seconds,
            clock.waited,
            clock.watch(seconds),
            0 if session is None else session.ready,
            int(skipped),
            0 if session is None else session.losses,
        )

    def here(self) -> Mark:
        """Return the mark at the last delivered item, also while another is being computed."""
        cursor = self.cursor
        is_at_rest = self.session is not None or not self.is_making
        if is_at_rest and not (here := cursor.here()).since:
            return here
        try:
            if is_at_rest and not self.is_closed:
                cursor.open()  # and continue from there, so that nothing is read a third time
                return cursor.here()
            return cursor.find()
        except Exception as error:
            kept = self._state_at_mark()
            add_note(
                error,
                f"lazyckpt: so the state after {cursor.delivered():,} items can't be computed "
                f"now; the state after {kept.items:,} items is {kept.to_json()}",
            )
            raise

    @property
    def is_making(self) -> bool:
        """Whether an item is being computed: for signal handlers, and functions of the pipeline."""
        block = self._under_way[0]()
        return block is not None and bool(block.gi_running)

    def _state(self, position: Position, items: int, skipped: Skipped) -> State:
        if self._skips:
            position, marks = without_marks(position)
            skipped = skipped.at(marks, tuple(self.cursor.skip_log.lost))
        return State(self._entries, items, position, skipped, self._rebased, self._rank)

    def _state_at_mark(self) -> State:
        mark = self.cursor.mark
        return self._state(mark.position, mark.items, mark.skipped)

    def go_to(self, state: State | None, pipeline: Chain | None = None) -> None:
        """Continue from a state, or from the beginning; with a new pipeline, if one is given."""
        self.check_thread("load_state_dict")
        position, items, skipped = self.machine.init(0), 0, Skipped()
        rebased = rank = None
        given = self.cursor.delivered() - self._before
        if state is not None:
            position, items, skipped = state.position, state.items, state.skipped
            rebased, rank = state.rebased, state.rank
        if self._skips:
            position, skipped = with_marks(position, skipped.marks), skipped.at((), skipped.lost)
        flow = self._flow(pipeline, position)
        self.is_ended, self._rebased = False, rebased
        self._rank = finest(self._own_rank, rank)
        self.cursor.go_to(Mark(position, items, skipped), flow)
        self._before = items - given

    def change(self, pipeline: Chain, follow: Callable[[State], State | None]) -> None:
        """Continue with a pipeline, from the state that `follow` makes of the current one.

        A different thread that asks for an item meanwhile gets an error.
        """
        self.check_at_rest("change")
        if pipeline == self.pipeline:
            return
        self._waiting_in = get_ident()
        try:
            self._end_block()  # so that whoever iterates has to ask for one
            delivered = self.cursor.delivered()
            state = follow(self.state())
            self._check_rest("change", is_busy=self.cursor.delivered() != delivered)
            self.go_to(state, pipeline)
        finally:
            self._waiting_in = 0

    def _flow(self, pipeline: Chain | None, position: Position) -> Flow[T]:
        """Return a flow from a position on; an open flow is closed once the new one exists."""
        if pipeline is None:
            flow = entered(self.machine, position)
            self.drop()
            return flow
        found: Execution[T] = prepared(pipeline, self._executor, skips=self._skips)
        session, before = found.session, self.session
        try:
            if before is not None and session is not None:
                session.take_over(before)
            flow = entered(found.machine, position)
        except BaseException:
            if session is not None:
                session.stop()
            raise
        self.drop()
        if before is not None:
            before.stop()
        self._use(found)
        return flow

    def check_free(self) -> None:
        """Raise an error if an item is being computed, for another thread or within this one."""
        self.check_thread("next", is_busy=self.is_making)

    def check_thread(self, name: str, *, is_busy: bool = False) -> None:
        """Raise an error if another thread waits for an item."""
        if is_busy or self._waiting_in not in (0, get_ident()):
            raise PipelineError(f"{name}: an item is being computed; use one thread at a time")

    def check_at_rest(self, name: str) -> None:
        """Raise an error if an item is being computed, or the run is closed."""
        self.check_open()
        self._check_rest(name, is_busy=bool(self._waiting_in))

    def _check_rest(self, name: str, *, is_busy: bool) -> None:
        if self.is_making or is_busy:
            raise PipelineError(
                f"{name}: an item is being computed; call it between two items, in the thread that "
                "iterates"
            )

    def take_back(self) -> None:
        """Deliver the last delivered item again."""
        self._end_block()
        self.cursor.close()
        self.is_ended = False
        self.cursor.take_back()

    def pass_over(self, count: int) -> int | None:
        """Skip items without computing them, or stay if there are fewer.

        Returns:
            How many of them exist; None if they must be computed, or if workers would have them
            sooner than they could restart.
        """
        self.check_thread("advance")
        skip = self.machine.skip
        if skip is None:
            return None
        is_few = self.session is not None and count < _FEW
        if is_few and skip(self.here().position, count)[1] == count:
            return None
        if not self.is_making:
            self.cursor.set_mark()  # a position at the end differs from that after the last item
        self.drop()
        before = self.cursor.delivered()
        passed = self.cursor.pass_over(count)
        self._before += self.cursor.delivered() - before
        return passed

    def blocks(self) -> Iterator[Iterator[T]] | None:
        """Return the rest of the current block, which all loops share, and possibly more.

        Returns:
            An iterator over blocks of items, or None at the end. After an error it is a new one.

        Raises:
            PipelineError: If an item is being computed.
        """
        if self.is_ended or self.is_closed:
            return None
        self.check_free()
        self._clock.start()
        flow = self.cursor.flow
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
            ticks = make_ticks(self._timer.stride)
            found = self._deliver(ticks)
            self._under_way = ref(found), ticks
        return iter((compress(found, ticks),))

    def _chunk(self, flow: Flow[T], chunks: Chunks[T]) -> Iterator[T] | None:
        """Return items that workers have computed; they need no watching."""
        self._waiting_in, begun = get_ident(), perf_counter()
        try:
            chunk = chunks.next_chunk()
        except BaseException as error:
            has_begun = flow.taken is None or flow.taken() > 0
            self.drop()
            if self.session is not None and not has_begun:  # workers may still wait for ranks
                self.session.give_up()
            if self.is_closed and isinstance(error, TaskLost):  # by a signal handler
                self.close()  # of workers that were about to start
                return None
            return raising(self._annotated(error))
        finally:
            self._waiting_in = 0
            self._clock.add_wait(perf_counter() - begun)
        if self.is_closed or self.cursor.flow is not flow:  # by a signal handler meanwhile
            return iter(())
        if chunk is None:
            self._end()
        return chunk

    def _pass_on(self) -> Iterator[Iterator[T]]:
        """Yield blocks of existing items, each delivered between two looks at the clock."""
        cursor, ticks = self.cursor, make_ticks(self._timer.stride)
        try:
            flow, opened, begun = cursor.open(), cursor.opened, perf_counter()
            if opened is None or flow.blocks is None or flow.fn is not None:
                return
            yield flow.block  # the rest of it
            clock, blocks = self._clock, flow.blocks
            for _, block in zip(
                ticks, clock.timed(blocks) if clock.is_watching else blocks, strict=False
            ):
                if type(block) not in WALKS:
                    put_back(flow, block)
                    return
                flow.block = block
                if cursor.opened is not opened:  # closed by a signal handler meanwhile
                    return
                yield block
        except BaseException as error:
            if isinstance(error, GeneratorExit) and is_raised_here(error):
                raise  # this generator was closed; otherwise a function raised it
            self.drop()
            raise self._annotated(error)  # noqa: B904  # the same error, or one with its own cause
        if cursor.opened is opened:
            self._finish(begun, is_last=remaining(ticks) > 0)

    def _deliver(self, ticks: Iterator[bool]) -> Iterator[T]:
        """Yield the next items, up to the next look at the clock."""
        cursor, size, fn = self.cursor, remaining(ticks), None
        item: Any = _NO_ITEM
        try:
            flow = cursor.open()
            cursor.count(ticks)
            fn, begun, before = flow.fn, perf_counter(), cursor.delivered()
            items = islice(flow.pull, size)
            if cursor.flow is not flow:  # closed by a signal handler meanwhile
                return
            if (clock := self._clock).is_watching:
                waiting_since = begun
                for item in items:
                    made = item if fn is None else fn(item)
                    clock.waited += perf_counter() - waiting_since
                    yield made
                    item = made = _NO_ITEM
                    waiting_since = perf_counter()
            elif fn is None:
                yield from items
            else:
                for item in items:
                    yield fn(item)
                    item = _NO_ITEM
        except BaseException as error:
            if isinstance(error, GeneratorExit) and is_raised_here(error):
                raise  # this generator was closed; otherwise a function raised it
            if item is _NO_ITEM:
                fn = None  # not to blame: notes are made of what the traceback holds
            self.drop()
            raise self._annotated(error)  # noqa: B904  # the same error, or one with its own cause
        if cursor.flow is not flow:  # dropped in the middle of an item
            return
        self._finish(begun, is_last=cursor.delivered() < before + size)

    def _finish(self, begun: float, *, is_last: bool) -> None:
        """Look at the clock, or record the end."""
        if is_last:
            self._end()
        else:
            self._timer.finish_block(begun, self.cursor.set_mark)

    def _end(self) -> None:
        self.is_ended = True
        self._clock.stop()

    def drop(self) -> None:
        """Close the flow. Blocks end first, because none may continue with the flow's items."""
        if self.cursor.flow is None:
            return
        if self.session is not None:  # its positions are valid after an error too
            self.cursor.set_mark()
        self._end_block()
        self.cursor.close()

    def close(self) -> None:
        """Stop delivery, and release everything that is open."""
        self.is_closed = True
        self._clock.stop()
        if self.is_making or self.session is None or self.session.meets:
            if not self.is_making:
                self.cursor.set_mark()
            self.drop()
        else:
            self._end_block()
        if self.session is not None:
            self.session.stop()

    def open(self) -> None:
        """Resume delivery."""
        if self.session is not None:
            self.session.start()
        self.is_closed = False

    def check_open(self) -> None:
        """Raise an error if delivery has stopped."""
        if self.is_closed:
            raise PipelineError("the run is closed; enter it again, or start a run from its state")

    def _end_block(self) -> None:
        """End the current block, so that loops ask for a new one."""
        flow = self.cursor.flow
        if flow is not None and flow.chunks is not None:
            flow.chunks.end_chunk()
        block = self._under_way[0]()
        if block is not None and not block.gi_running:
            block.close()
        self._under_way = _NO_BLOCK

    def _annotated(self, error: BaseException) -> BaseException:
        if isinstance(error, TaskLost):
            error = PipelineError(
                "the run was changed in a different thread while an item was computed; nothing is "
                "lost: ask for the item again, and change it in the thread that iterates"
            )
        cursor = self.cursor
        cursor.jump()
        return annotated(
            error,
            self.pipeline.calls,
            cursor.delivered(),
            lambda: self._state_at_mark().to_json(),
            cursor.mark.since,
        )


class RunClock:
    """Measures how long a run was active, and how long its consumer waited.

    Attributes:
        waited: Seconds that the consumer waited.
        is_watching: Whether waiting is measured item by item. With workers it is always measured
            chunk by chunk.
    """

    __slots__ = ("_before", "_begun", "_unwatched", "is_watching", "waited")

    def __init__(self) -> None:
        self.waited, self.is_watching = 0.0, False
        self._begun: float | None = None
        self._before = 0.0
        self._unwatched: float | None = None  # seconds before waiting was measured

    def start(self) -> None:
        """Start the clock, unless it is running."""
        if self._begun is None:
            self._begun = perf_counter()

    def stop(self) -> None:
        """Stop the clock until the next start."""
        self._before, self._begun = self.seconds, None

    @property
    def seconds(self) -> float:
        begun = self._begun
        return self._before if begun is None else self._before + perf_counter() - begun

    def watch(self, seconds: float) -> float:
        """Start to measure waiting; return for how many seconds it has been measured."""
        if self._unwatched is None:
            self._unwatched, self.is_watching = seconds, True
        return seconds - self._unwatched

    def add_wait(self, seconds: float) -> None:
        """Add a wait for a chunk of items, which all of the run's waits are."""
        self.waited += seconds
        if self._unwatched is None:
            self._unwatched = 0.0

    def timed(self, items: Iterator[T]) -> Iterator[T]:
        """Yield the items; the time that each takes counts as waiting."""
        begun = perf_counter()
        for item in items:
            self.waited += perf_counter() - begun
            yield item
            begun = perf_counter()


def lasting(ask: Callable[[], Iterator[Iterator[T]] | None]) -> Iterator[T]:
    """Iterate over the items of one block after another; an error doesn't end the iterator."""
    return chain.from_iterable(_lasting(ask))


def _lasting(
    ask: Callable[[], Iterator[Iterator[T]] | None],
) -> Generator[Iterator[T], None, None]:
    blocks: Iterator[Iterator[T]] | None = iter(())
    while True:
        try:  # an interrupt may come at any `yield`
            while blocks is not None:
                yield from blocks
                blocks = ask()
            return
        except GeneratorExit:
            raise
        except BaseException as error:
            blocks = iter((raising(error),))


def raising(error: BaseException) -> Iterator[Any]:
    """Yield a block that raises an error; the chain of blocks survives it."""
    try:
        raise error
    finally:
        del error  # its traceback contains this frame: avoid a cycle
    yield  # type: ignore[unreachable]  # makes this a generator

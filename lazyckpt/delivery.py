"""How a run delivers: blocks of items that all loops share, and the state after the last one."""

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
from lazyckpt.core.machine import entered
from lazyckpt.core.ranks import finest
from lazyckpt.cursor import Execution, Mark, MarkTimer, prepared
from lazyckpt.errors import PipelineError
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.failures.marks import with_marks, without_marks
from lazyckpt.failures.notes import add_note, annotated
from lazyckpt.failures.skip_log import Skipped
from lazyckpt.state.codec import Rebased
from lazyckpt.state.state import State
from lazyckpt.stats import RunClock, Stats

T = TypeVar("T")

# A block, weakly, so that a loop which is left lets go of the run, and its ticks.
_UnderWay: TypeAlias = tuple[Callable[[], Any], Iterator[bool]]
_NO_BLOCK: _UnderWay = (lambda: None, iter(()))
_NO_ITEM: Any = object()
_FEW = 64  # items that two processes make in about the time that it takes them to begin anew


class Delivery(Generic[T]):
    """A pipeline's items on their way to who asks for them.

    Args:
        pipeline: What gives them.
        executor: Who makes them, if not this thread.
        skips: Whether those that fail are left out.

    Attributes:
        pipeline: What gives them now.
        machine: That of the pipeline.
        session: The executor's workers.
        cursor: Where the item delivered last is.
        is_ended: Whether that was the last one.
        is_closed: Whether nothing is delivered any more.
    """

    def __init__(self, pipeline: Chain, executor: Executor | None, skips: bool) -> None:
        self._executor, self._skips = executor, skips
        self._use(prepared(pipeline, executor, skips=skips))
        self.is_closed = self.is_ended = False
        self._waiting_in = 0  # the thread that waits for workers
        self._rebased: Rebased | None = None
        self._timer = MarkTimer()
        self._clock = RunClock()
        self._before = 0  # items that others have delivered, or that were passed over
        self._under_way = _NO_BLOCK

    def _use(self, execution: Execution[T]) -> None:
        self.pipeline, self.session, self.machine, self.cursor, self._own_rank = execution
        self._entries = self.pipeline.entries

    def state(self) -> State:
        """The state after the last delivered item."""
        # There may be one for each item: so no more calls than it takes.
        cursor = self.cursor
        opened, block = cursor.opened, self._under_way[0]()
        is_at_rest = block is None or not block.gi_running or self.session is not None
        if opened is not None and is_at_rest and not self._skips:
            position, counted = opened.place()
            items, skipped = opened.before + counted, cursor.mark.skipped  # more are not left out
            if cursor.opened is opened:
                return State(self._entries, items, position, skipped, self._rebased, self._rank)
        here = self.here()
        return self._state(here.position, here.items, here.skipped)

    def stats(self) -> Stats:
        """How fast items were delivered, for any thread that asks."""
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
        """Where the item delivered last is, also while another is being made."""
        cursor = self.cursor
        is_at_rest = self.session is not None or not self.is_making
        if is_at_rest and not (here := cursor.here()).behind:
            return here
        try:
            if is_at_rest and not self.is_closed:
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
    def is_making(self) -> bool:
        """Whether an item is being made: a signal's handler asks, or a function of the pipeline."""
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
        """Go on from a state, or from the beginning; as another pipeline, if one is given."""
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

    def _flow(self, pipeline: Chain | None, position: Position) -> Flow[T]:
        """A flow from a position on; what was open is closed once there is one."""
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
        """Raise an error where an item is being made, for another thread or within this one."""
        if self.is_making or self._waiting_in not in (0, get_ident()):
            raise PipelineError("next: an item is being made; a run is for one thread at a time")

    def check_at_rest(self, name: str) -> None:
        """Raise an error where an item is being made, or nothing is delivered any more."""
        self.check_open()
        if self.is_making or self._waiting_in:
            raise PipelineError(
                f"{name}: an item is being made; call it between two items, in the thread that "
                "takes them"
            )

    def take_back(self) -> None:
        """Have the item that was delivered last come again."""
        self._end_block()
        self.cursor.close()
        self.is_ended = False
        self.cursor.take_back()

    def pass_over(self, count: int) -> int | None:
        """Go on behind so many items without making them, or stay if there are fewer.

        Returns:
            How many there are of these; None where they have to be made, or where workers
            have them sooner than they would begin anew.
        """
        is_few = self.session is not None and count < _FEW
        if self.machine.skip is None or is_few:
            return None
        self.drop()
        before = self.cursor.delivered()
        passed = self.cursor.pass_over(count)
        self._before += self.cursor.delivered() - before
        return passed

    def blocks(self) -> Iterator[Iterator[T]] | None:
        """What is left of the block under way, which all loops share, and perhaps more.

        Returns:
            Some blocks of items, or None at the end. After an error they are others.

        Raises:
            PipelineError: An item is being made.
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
        """Items that workers have made: they need no watching."""
        self._waiting_in, begun = get_ident(), perf_counter()
        try:
            chunk = chunks.next_chunk()
        except BaseException as error:
            self.drop()
            if self.is_closed and isinstance(error, TaskLost):  # by a signal's handler
                self.close()  # of workers that were about to start
                return None
            return raising(self._annotated(error))
        finally:
            self._waiting_in = 0
            self._clock.add_wait(perf_counter() - begun)
        if self.is_closed or self.cursor.flow is not flow:  # by a signal's handler meanwhile
            return iter(())
        if chunk is None:
            self._end()
        return chunk

    def _pass_on(self) -> Iterator[Iterator[T]]:
        """Blocks of items that are there, as many as are given between two looks at the clock."""
        cursor, ticks = self.cursor, make_ticks(self._timer.stride)
        try:
            flow, opened, begun = cursor.open(), cursor.opened, perf_counter()
            if opened is None or flow.blocks is None or flow.fn is not None:
                return
            yield flow.block  # what is left of it
            clock, blocks = self._clock, flow.blocks
            for _, block in zip(
                ticks, clock.timed(blocks) if clock.is_watching else blocks, strict=False
            ):
                if type(block) not in WALKS:
                    put_back(flow, block)
                    return
                flow.block = block
                if cursor.opened is not opened:  # closed by a signal's handler meanwhile
                    return
                yield block
        except BaseException as error:
            if isinstance(error, GeneratorExit) and is_raised_here(error):
                raise  # this was closed, where else a function raised it
            self.drop()
            raise self._annotated(error)  # noqa: B904  # the same error, or one with its own cause
        if cursor.opened is opened:
            self._finish(begun, is_last=remaining(ticks) > 0)

    def _deliver(self, ticks: Iterator[bool]) -> Iterator[T]:
        """The next items, as many as are given between two looks at the clock."""
        cursor, size, fn = self.cursor, remaining(ticks), None
        item: Any = _NO_ITEM
        try:
            flow = cursor.open()
            cursor.count(ticks)
            fn, begun, before = flow.fn, perf_counter(), cursor.delivered()
            items = islice(flow.pull, size)
            if cursor.flow is not flow:  # closed by a signal's handler meanwhile
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
                raise  # this was closed, where else a function raised it
            if item is _NO_ITEM:
                fn = None  # which is not to blame: who reads the traceback finds what it holds
            self.drop()
            raise self._annotated(error)  # noqa: B904  # the same error, or one with its own cause
        if cursor.flow is not flow:  # dropped in the middle of an item
            return
        self._finish(begun, is_last=cursor.delivered() < before + size)

    def _finish(self, begun: float, *, is_last: bool) -> None:
        """Look at the clock, or note the end."""
        if is_last:
            self._end()
        else:
            self._timer.finish_block(begun, self.cursor.set_mark)

    def _end(self) -> None:
        self.is_ended = True
        self._clock.stop()

    def drop(self) -> None:
        """Close the flow: blocks end first, for none may go on with its items."""
        if self.cursor.flow is None:
            return
        if self.session is not None:  # whose positions are right after an error too
            self.cursor.set_mark()
        self._end_block()
        self.cursor.close()

    def close(self) -> None:
        """Deliver nothing more, and release what is open."""
        self.is_closed = True
        self._clock.stop()
        if self.session is None or self.is_making:
            if not self.is_making:
                self.cursor.set_mark()
            self.drop()
        else:
            self._end_block()
        if self.session is not None:
            self.session.stop()

    def open(self) -> None:
        """Deliver again."""
        if self.session is not None:
            self.session.start()
        self.is_closed = False

    def check_open(self) -> None:
        """Raise an error where nothing is delivered any more."""
        if self.is_closed:
            raise PipelineError("the run is closed; enter it again, or start one from its state")

    def _end_block(self) -> None:
        """End the block under way, so that loops ask for another."""
        flow = self.cursor.flow
        if flow is not None and flow.chunks is not None:
            flow.chunks.end_chunk()
        block = self._under_way[0]()
        if block is not None and not block.gi_running:
            block.close()
        self._under_way = _NO_BLOCK

    def _annotated(self, error: BaseException) -> BaseException:
        cursor = self.cursor
        cursor.jump()
        return annotated(
            error,
            self.pipeline.calls,
            cursor.delivered(),
            lambda: self._state_at_mark().to_json(),
            cursor.mark.behind,
        )


def lasting(ask: Callable[[], Iterator[Iterator[T]] | None]) -> Iterator[T]:
    """The items of one iterator over blocks after another. An error doesn't end them."""
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
    """A block that is an error, which the chain of blocks outlives."""
    try:
        raise error
    finally:
        del error  # its traceback has this frame, which would be a cycle
    yield  # type: ignore[unreachable]  # which makes it a generator

"""How a run delivers: blocks of items that all loops share, and the state after the last one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import compress, islice, repeat
from operator import length_hint
from time import perf_counter
from typing import Any, Generic, TypeAlias, TypeVar
from weakref import ref

from lazyckpt.block_iterator import raising
from lazyckpt.core.call import Chain
from lazyckpt.core.entries import size as entries_size
from lazyckpt.core.flow import Chunks, Flow, Position
from lazyckpt.core.lengths import is_raised_here
from lazyckpt.core.machine import Machine, entered
from lazyckpt.cursor import Cursor, Mark, MarkTimer
from lazyckpt.errors import PipelineError
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.failures.notes import add_note, annotated
from lazyckpt.failures.skip_log import SkipLog, Skipped, with_marks, without_marks
from lazyckpt.failures.skipping import skipping
from lazyckpt.state.state import Rebased, State

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
        machine: That of the pipeline.
        session: The executor's workers.
        cursor: Where the item delivered last is.
        is_ended: Whether that was the last one.
        is_closed: Whether nothing is delivered any more.
    """

    def __init__(self, pipeline: Chain, executor: Executor | None, skips: bool) -> None:
        self._calls, self._entries, self._skips = pipeline.calls, pipeline.entries, skips
        skip_log = SkipLog(entries_size(pipeline.entries))
        made = skipping(pipeline, skip_log) if skips else pipeline
        self.session = None if executor is None else executor.open(made)
        self.machine = made.machine if self.session is None else self.session.machine
        if self.machine is not pipeline.machine:  # made of data that may have changed since
            pipeline.machine.check(pipeline.machine.init(0))
        skip_log.is_direct = skip_log.is_direct or self.session is None
        again = partial(_again, pipeline, skips=skips)
        self.cursor: Cursor[T] = Cursor(self.machine, skip_log, again)
        self.is_closed = self.is_ended = False
        self._rebased: Rebased | None = None
        self._timer = MarkTimer()
        self._under_way = _NO_BLOCK

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
                return State(self._entries, items, position, skipped, self._rebased)
        here = self.here()
        return self._state(here.position, here.items, here.skipped)

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
            skipped = skipped.with_marks(marks)
        return State(self._entries, items, position, skipped, self._rebased)

    def _state_at_mark(self) -> State:
        mark = self.cursor.mark
        return self._state(mark.position, mark.items, mark.skipped)

    def go_to(self, state: State | None) -> None:
        """Go on from a state, or from the beginning. Of another pipeline's it knows nothing."""
        position, items, skipped, rebased = self.machine.init(0), 0, Skipped(), None
        if state is not None:
            position, items, skipped = state.position, state.items, state.skipped
            rebased = state.rebased
        if self._skips:
            position, skipped = with_marks(position, skipped.marks), skipped.with_marks(())
        flow = entered(self.machine, position)
        self.drop()
        self.is_ended, self._rebased = False, rebased
        self.cursor.go_to(Mark(position, items, skipped), flow)

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
        return self.cursor.pass_over(count)

    def blocks(self) -> Iterator[Iterator[T]] | None:
        """What is left of the block under way, which all loops share, and perhaps more.

        Returns:
            Some blocks of items, or None at the end. After an error they are others.
        """
        if self.is_ended or self.is_closed:
            return None
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
            ticks = repeat(True, self._timer.stride)
            found = self._deliver(ticks)
            self._under_way = ref(found), ticks
        return iter((compress(found, ticks),))

    def _chunk(self, flow: Flow[T], chunks: Chunks[T]) -> Iterator[T] | None:
        """Items that workers have made: they need no watching."""
        try:
            chunk = chunks.next_chunk()
        except BaseException as error:
            self.drop()
            if self.is_closed and isinstance(error, TaskLost):  # by a signal's handler
                self.close()  # of workers that were about to start
                return None
            return raising(self._annotated(error))
        if self.is_closed or self.cursor.flow is not flow:  # by a signal's handler meanwhile
            return iter(())
        self.is_ended = chunk is None
        return chunk

    def _pass_on(self) -> Iterator[Iterator[T]]:
        """Blocks of items that are there, as many as are given between two looks at the clock."""
        cursor, ticks = self.cursor, repeat(True, self._timer.stride)
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
            self.drop()
            raise self._annotated(error)  # noqa: B904  # the same error, or one with its own cause
        if cursor.opened is opened:
            self._finish(begun, is_last=length_hint(ticks) > 0)

    def _deliver(self, ticks: Iterator[bool]) -> Iterator[T]:
        """The next items, as many as are given between two looks at the clock."""
        cursor, size, fn = self.cursor, length_hint(ticks), None
        item: Any = _NO_ITEM
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
                    item = made = _NO_ITEM
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
            self.is_ended = True
        else:
            self._timer.finish_block(begun, self.cursor.set_mark)

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
            self._calls,
            cursor.delivered(),
            lambda: self._state_at_mark().to_json(),
            cursor.mark.behind,
        )


def _again(pipeline: Chain, *, skips: bool) -> tuple[Machine[Any], SkipLog]:
    """The pipeline's machine with a skip log of its own, to read items again."""
    skip_log = SkipLog(entries_size(pipeline.entries))
    skip_log.is_direct = True
    return (skipping(pipeline, skip_log) if skips else pipeline).machine, skip_log

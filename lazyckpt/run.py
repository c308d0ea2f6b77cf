"""`Run`: the one mutable object, a walk through a pipeline that knows its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import chain, islice
from time import perf_counter
from types import GeneratorType
from typing import Any, Generic, NoReturn, TypeVar
from weakref import ref

from lazyckpt.core.call import Chain
from lazyckpt.core.checks import checked, positive
from lazyckpt.core.entries import size
from lazyckpt.core.flow import Flow, Lots, Position, counted
from lazyckpt.core.machine import entered
from lazyckpt.errors import InvalidState, PipelineError, SourceChanged
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.parts import Stale
from lazyckpt.failures.notes import blame
from lazyckpt.failures.skip_log import Skipped, Tally, marked, unmarked
from lazyckpt.failures.skipping import skipping
from lazyckpt.state.rebase import matching
from lazyckpt.state.state import Rebased, State, as_state, flat

T = TypeVar("T")

_KEPT = 1e-3  # seconds of work that an error may make a run do again
_SHARE = 50  # or this many times what a mark costs, if that is more
_LONGEST = 1024  # items between two looks at the clock


class Run(Iterator[T], Generic[T]):
    """A walk through a pipeline: an iterator that knows where it is. Made by `lazyckpt.run`.

    Its state is that after the last delivered item, whenever it is read. After
    an error it still is, and iterating again tries the same item again. Leaving
    a loop early loses nothing: the next loop goes on. A run is for one thread
    at a time; to take states in another one, take them from `with_state`.
    """

    # Where a run stands is a mark, a position known to be good, and the number
    # of items delivered since. While a flow is open its snapshot is the
    # position; after an error the flow is dropped, and the position is found
    # from the mark: at once with random access, else by going over that many
    # items again. Marks are set about every millisecond, and for items that
    # take so long at each, so that this is little work.

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
        self._tally, self._skips = Tally(size(pipeline.entries)), skips
        made = skipping(pipeline, self._tally) if skips else pipeline
        self._session = None if executor is None else executor.open(made)
        self._machine = made.machine if self._session is None else self._session.machine
        self._tally.is_here = self._tally.is_here or self._session is None
        self._strict = strict
        self._closed = False
        self._stream: Iterator[Any] | None = None
        self._loop: Iterator[T] | None = None
        self._ended = False
        # Weak, so that a loop which is left lets go of the run.
        self._under_way: Callable[[], Iterator[T] | None] = lambda: None
        self._stride = 1
        self._marked, self._keep = 0.0, 0.0
        self._load(state)

    @property
    def state(self) -> State:
        """The state after the last delivered item. Taking it disturbs nothing."""
        if self._flow is None and self._behind:
            self._find()
        position = self._mark[0] if self._flow is None else self._flow.snapshot()
        return self._stated(position, self._delivered(), self.skipped)

    def _stated(self, position: Position, items: int, skipped: Skipped) -> State:
        if self._skips:
            position, marks = unmarked(position)
            skipped = skipped.marked(marks)
        return State(self._pipeline.entries, items, position, skipped, self._rebased)

    @property
    def skipped(self) -> Skipped:
        """How many items were left out before the last one delivered, as an int.

        Its `first` are texts of the first 8, or of fewer if they are long: the
        stage, the position just behind the item, as a state would have it there,
        and the error. They are part of the state, and so of the whole stream,
        however often it was resumed: what is read again is not counted again.
        Whatever the executor, they are those of the item delivered last.

        >>> import lazyckpt as lz
        >>> run = lz.run(lz.source(["1", "b", "3"]) | lz.map(int), on_error="skip")
        >>> list(run), run.skipped
        ([1, 3], 1)
        >>> print(*run.skipped.first)
        map(int) before (0, 2): ValueError: invalid literal for int() with base 10: 'b'
        """
        if self._flow is None and self._behind:
            self._find()
        return self._mark[2] if self._flow is None else self._tally.now()

    def state_dict(self) -> dict[str, Any]:
        """The state as a flat dict of ints and texts, for any checkpointer."""
        return flat(self.state, skips=self._skips)

    def load_state_dict(self, state: State | str | bytes | Mapping[str, Any]) -> None:
        """Go to a state, before, within or after iteration; a loop under way goes on from there."""
        self._load(as_state(state))

    def with_state(self) -> Iterator[tuple[T, State]]:
        """Every item together with the state after it."""
        for item in self:
            yield item, self.state

    def epoch(self, size: int | None = None) -> Iterator[T]:
        """The rest of this epoch, or the next one where nothing is left; or exactly `size` items.

        - `size`: how many items to give, over ends of the stream

        At the end of the stream its next epoch begins, in a new order if it is
        shuffled. Every call goes on from where the run is, and so does a run
        from its state. `size` items are counted from the call on: what a
        resumed run has left of them is `size - state.items % size`.

        `PipelineError` if an epoch is empty and `size` is given.

        >>> import lazyckpt as lz
        >>> run = lz.run(lz.source(["a", "b", "c"]))
        >>> list(run.epoch()), list(run.epoch(2)), list(run.epoch(4))
        (['a', 'b', 'c'], ['a', 'b'], ['c', 'a', 'b', 'c'])
        """
        if size is not None:
            size = checked("Run.epoch", "size", size, positive)
        return self._epoch(size)

    def _epoch(self, size: int | None) -> Iterator[T]:
        given, fresh = 0, self._is_fresh()
        while size is None or given < size:
            before = given
            items, taken = counted(islice(self, None if size is None else size - given))
            yield from items
            given += taken()
            if given == size or not self._ended or (size is None and (given or fresh)):
                return
            if fresh and given == before:
                raise PipelineError(f"epoch(size={size}): an epoch of the stream is empty")
            following = self._machine.epoch(self.state.position) + 1
            self._place(self._machine.init(following), self._delivered(), self.skipped)
            fresh = True

    def _is_fresh(self) -> bool:
        position, machine = self.state.position, self._machine
        return bool(position == machine.init(machine.epoch(position)))

    @property
    def allow_buffering(self) -> AbstractContextManager[None]:
        """A context in which workers may make items ahead, where the executor is `gated`. Nests."""
        return self._buffering()

    @contextmanager
    def _buffering(self) -> Iterator[None]:
        self.resume()
        try:
            yield
        finally:
            self.pause()

    def pause(self) -> None:
        """Make nothing ahead from now on, but for the chunks that are under way.

        What is waited for is made. Every `pause` wants a `resume`, as a lock does.
        """
        if self._session is not None:
            self._session.buffering(-1)

    def resume(self) -> None:
        """Make items ahead again, or for the first time where the executor is `gated`."""
        if self._session is not None:
            self._session.buffering(1, fill=not self._closed)

    def close(self) -> None:
        """Let go of everything held open: files, threads, processes.

        The state stays readable, and entering the run reopens it, with what
        workers had ready.
        """
        self._closed = True
        if self._session is not None:
            self._leave()
            self._session.stop()
            return
        if self._flow is not None:
            with suppress(InvalidState):
                self._set_mark()
        self._drop()

    def __enter__(self) -> Run[T]:
        if self._session is not None:
            self._session.start()
        self._closed = False
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[T]:
        self._check_open()
        # The chain outlives an error in a block, as a generator would not.
        return chain.from_iterable(iter(self._block, None))

    def _check_open(self) -> None:
        if self._closed:
            raise PipelineError("the run is closed; enter it again, or start one from its state")

    def __next__(self) -> T:
        if self._loop is None:
            self._check_open()
            self._loop = chain.from_iterable(iter(_blocks(ref(self)), None))
        return next(self._loop)

    def _block(self) -> Iterator[T] | None:
        """The block under way, which all loops share, or the next one."""
        if self._ended or self._closed:
            return None
        if self._flow is not None and self._flow.lots is not None:
            return self._lot(self._flow.lots)
        block = self._under_way()
        if not isinstance(block, GeneratorType) or block.gi_frame is None:
            block = self._deliver()
            self._under_way = ref(block)
        return block

    def _lot(self, lots: Lots[T]) -> Iterator[T] | None:
        """Items that are there already: a block that needs no watching."""
        try:
            lot = lots.lot()
        except BaseException as error:
            self._drop()
            if self._closed and isinstance(error, Stale):  # by a signal's handler
                self.close()  # of workers that were about to come
                return None
            return _raising(self._blamed(error))
        self._ended = lot is None
        return lot

    def _deliver(self) -> Iterator[T]:
        """The next items, as many as are given between two looks at the clock."""
        stride, waits = self._stride, 0
        try:
            items = self._open()
            assert self._flow is not None
            fn, begun, before = self._flow.fn, perf_counter(), self._delivered()
            if fn is None:
                yield from islice(items, stride)
            else:
                for item in islice(items, stride):
                    waits = 1
                    made = fn(item)
                    waits = 0  # from here to where it is delivered nothing can interrupt
                    yield made
                    del made
        except BaseException as error:
            if isinstance(error, GeneratorExit) and _is_from_here(error):
                raise  # this was closed, where else a function raised it
            if not waits:
                fn = None  # not under way, so not to be blamed
            elif self._items is items:
                self._opened_at -= 1  # it was taken, and will be again
            self._drop()
            raise self._blamed(error)  # noqa: B904  # the same error, or one with its own cause
        if self._items is not items:  # dropped in the middle of an item
            return
        if self._delivered() < before + stride:
            self._ended = True
            return
        done = perf_counter()
        self._stride = min(2 * stride, _LONGEST) if done - begun < _KEPT else max(stride // 2, 1)
        if done - self._marked > self._keep:
            with suppress(InvalidState):  # of a user's own state, raised when it is asked for
                self._set_mark()
            self._marked = perf_counter()
            self._keep = max(_KEPT, _SHARE * (self._marked - done))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a run can't be pickled or copied: take its state, or its state_dict()")

    def __repr__(self) -> str:
        return f"<run of {self._pipeline!r}, {self._delivered():,} items delivered>"

    def _load(self, state: State | str | bytes | Mapping[str, Any] | None) -> None:
        self._rebased: Rebased | None = None
        if state is None:
            return self._place(self._machine.init(0), 0, Skipped())
        found = as_state(state)
        if self._strict:
            matching(found, self._pipeline)
        self._rebased = found.rebased
        position, skipped = found.position, found.skipped
        if self._skips:
            position, skipped = marked(position, skipped.marks), skipped.marked(())
        self._place(position, found.items, skipped)

    def _place(self, position: Position, items: int, skipped: Skipped) -> None:
        flow = entered(self._machine, position)
        self._drop()
        self._tally.begin(skipped)
        mark: tuple[Position, int, Skipped] = position, items, skipped
        self._mark, self._behind, self._ended = mark, 0, False
        self._start(flow)

    def _open(self) -> Iterator[Any]:
        if self._flow is None:
            self._jump()
            self._tally.begin(self._mark[2])
            flow: Flow[T] = self._machine.flow(self._mark[0])
            again = sum(1 for _ in islice(flow.pull, self._behind))
            if again < self._behind:
                raise SourceChanged(
                    f"going over {self._behind} items again gave {again}: "
                    "a source or function does not repeat itself"
                )
            self._start(flow)
        return self._items

    def _jump(self) -> None:
        """Set the mark where the run stands, where that takes no reading."""
        if self._machine.skip is not None and self._behind:
            position = self._machine.skip(self._mark[0], self._behind)[0]
            mark = position, self._delivered(), self._mark[2]
            self._mark, self._behind = mark, 0

    def _at_mark(self) -> State:
        return self._stated(*self._mark)

    def _find(self) -> None:
        """Open a flow where the run stands, for its state."""
        try:
            self._open()
        except Exception as error:
            kept = self._at_mark()
            error.add_note(
                f"lazyckpt: so the state after {self._delivered():,} items can't be found at "
                f"present; that after {kept.items:,} is {kept.to_json()}"
            )
            raise

    def _start(self, flow: Flow[T]) -> None:
        items, taken = counted(flow.pull) if flow.taken is None else (flow.pull, flow.taken)
        self._opened_at = self._mark[1] + self._behind - taken()
        self._items, self._taken = items, taken
        self._stream = flow.pull
        self._flow: Flow[T] | None = flow  # last, for an interrupt may come at any time

    def _drop(self) -> None:
        self._loop = None
        if self._stream is None:
            return
        if self._session is not None and self._flow is not None:
            with suppress(InvalidState):  # its positions are right after an error too
                self._set_mark()
        self._behind = self._delivered() - self._mark[1]
        self._leave()
        self._flow = None
        if isinstance(self._stream, GeneratorType) and not self._stream.gi_running:
            self._stream.close()
        self._stream = None
        self._items, self._taken = iter(()), int

    def _leave(self) -> None:
        """End the block under way, so that loops ask for another."""
        if self._flow is not None and self._flow.lots is not None:
            self._flow.lots.leave()
        block = self._under_way()
        if isinstance(block, GeneratorType) and not block.gi_running:
            block.close()

    def _set_mark(self) -> None:
        assert self._flow is not None
        self._mark = self._flow.snapshot(), self._delivered(), self._tally.now()

    def _delivered(self) -> int:
        if self._flow is None:
            return self._mark[1] + self._behind
        return self._opened_at + self._taken()

    def _blamed(self, error: BaseException) -> BaseException:
        self._jump()
        delivered = self._delivered()
        return blame(
            error, self._pipeline.calls, delivered, lambda: self._at_mark().to_json(), self._behind
        )


def _blocks(run: ref[Run[T]]) -> Callable[[], Iterator[T] | None]:
    """The blocks of a run which this does not keep alive: one that is dropped lets go at once."""

    def block() -> Iterator[T] | None:
        found = run()
        return None if found is None else found._block()

    return block


def _is_from_here(error: BaseException) -> bool:
    trace = error.__traceback__  # no name in the frame it is about, which would be a cycle
    return trace is not None and trace.tb_next is None


def _raising(error: BaseException) -> Iterator[Any]:
    """A block that is an error, which the chain of blocks outlives."""
    try:
        raise error
    finally:
        del error  # its traceback has this frame, which would be a cycle
    yield  # type: ignore[unreachable]  # which makes it a generator

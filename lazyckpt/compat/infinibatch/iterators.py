"""Infinibatch's iterators, each a pipeline with the old protocol."""

from __future__ import annotations

import collections.abc
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any
from weakref import ref

import lazyckpt as lz
from lazyckpt.checks import (
    Unfit,
    boolean,
    brief,
    checked,
    function,
    integer,
    natural,
    optional,
    positive,
)
from lazyckpt.compat.infinibatch import legacy, stages
from lazyckpt.compat.infinibatch.ahead import executing, is_ahead, led, live
from lazyckpt.compat.infinibatch.twister import Seed, as_int, fresh, located
from lazyckpt.errors import ArgumentError, InvalidState
from lazyckpt.executors.executor import Session
from lazyckpt.frozen import freeze, storable
from lazyckpt.machine import Position, entered
from lazyckpt.pipeline import Pipeline, Stage
from lazyckpt.run import Run
from lazyckpt.state import State, as_state, matching

__all__ = [
    "BlockwiseShuffleIterator",
    "BucketedReadaheadBatchIterator",
    "BufferedShuffleIterator",
    "CheckpointableIterator",
    "ChunkedSourceIterator",
    "FixedBatchIterator",
    "InfinitePermutationSourceIterator",
    "MapIterator",
    "MultiplexIterator",
    "NativeCheckpointableIterator",
    "ParallelMapIterator",
    "PrefetchIterator",
    "RandomIterator",
    "RecurrentIterator",
    "SamplingRandomMapIterator",
    "SelectManyIterator",
    "WindowedIterator",
    "ZipIterator",
    "create_source_iterator",
]

Checkpoint = Mapping[str, Any]


class CheckpointableIterator(collections.abc.Iterator[Any]):
    """The protocol: an iterator that knows its state. Derive from it to write your own.

    A stage takes one of your own as its source if what its `getstate` gives is
    made of JSON values and tuples. It then belongs to the stage.
    """

    def __iter__(self) -> CheckpointableIterator:
        return self

    @abstractmethod
    def __next__(self) -> Any:
        """The next item."""

    @abstractmethod
    def getstate(self) -> Any:
        """A checkpoint of the whole pipeline up to here; iterating on doesn't change it."""

    @abstractmethod
    def setstate(self, checkpoint: Any) -> None:
        """Go to a checkpoint, or with None to the beginning."""

    @abstractmethod
    def close(self) -> None:
        """End the workers of all prefetching in the pipeline."""


class _Stage(CheckpointableIterator):
    """A pipeline under the old protocol. It walks on its own: the iterators it is made of stay."""

    # What `next` calls stands in a slot of each object, and is a method of the run's
    # C iterator once there is one: a method of this class would cost as much again.
    __slots__ = ("__next__",)

    if TYPE_CHECKING:

        def __next__(self) -> Any: ...

    _run: Run[Any] | None = None
    _is_closed = False

    def __init__(
        self,
        pipeline: Pipeline[Any],
        *sources: CheckpointableIterator,
        begin: Position | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._sources = sources
        self._begin = begin
        self._sessions: list[Session] = []
        self._leave()

    def _leave(self) -> None:
        self.__next__ = partial(_started, ref(self))  # type: ignore[method-assign]

    def _enter(self, run: Run[Any]) -> None:
        self.__next__ = iter(run).__next__  # type: ignore[method-assign]

    def getstate(self) -> dict[str, Any]:
        """The state as a dict of JSON values: lazyckpt's, which knows its pipeline."""
        return (self._state() if self._run is None else self._run.state).to_dict()

    def setstate(self, checkpoint: Checkpoint | str | None) -> None:
        """Go to a state of this pipeline, or of the same one in Infinibatch; None is the beginning.

        Errors: `StateMismatch` for a state of another pipeline, `InvalidState`
        for what is none; `RuntimeError` for a source that became too short and,
        if anything is made ahead, after `close`.
        """
        self._check_open()
        if checkpoint is None:
            state = lz.init(self._pipeline)
        elif isinstance(checkpoint, Mapping) and "lazyckpt" not in checkpoint:
            state = State(self._pipeline.identity, 0, self._translate(checkpoint))
        else:
            state = matching(as_state(checkpoint), self._pipeline)
        if self._run is None:
            entered(self._pipeline.machine, state.position)
            self._begin = state.position
        else:
            self._run.load_state_dict(state)
            self._enter(self._run)

    def close(self) -> None:
        if not self._is_closed and is_ahead(self._pipeline):
            self._is_closed = True
            self._leave()
            if self._run is not None:
                self._run.close()
            for session in self._sessions:
                session.stop()
        for each in self._sources:
            each.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self._pipeline, self._sources, self.getstate())

    def __repr__(self) -> str:
        return f"<{type(self).__name__.strip('_')} {self._pipeline!r}>"

    def __del__(self) -> None:
        if self._run is not None and not self._is_closed and is_ahead(self._pipeline):
            warnings.warn(f"unclosed PrefetchIterator {self!r}", ResourceWarning, 2, source=self)

    def _start(self) -> None:
        self._check_open()
        pipeline, executor = self._pipeline, None
        if is_ahead(pipeline):
            executor = led(pipeline)
            pipeline = live(pipeline, self._sessions) if executor is None else pipeline
        self._run = Run(pipeline, self._state(), executor=executor)
        self._enter(self._run)

    def _state(self) -> State:
        begin = self._pipeline.machine.init(0) if self._begin is None else self._begin
        return State(self._pipeline.identity, 0, begin)

    def _place(self) -> Position:
        return (self._state() if self._run is None else self._run.state).position

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError(f"{self!r} has been closed")

    def _translate(self, found: Checkpoint) -> Position:
        """The position that a state of Infinibatch's own stands for."""
        try:
            position = self._position(found)
            entered(self._pipeline.machine, position)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise InvalidState(
                f"neither a lazyckpt state nor one of Infinibatch's {type(self).__name__}: "
                f"{brief(found)} ({error!r})"
            ) from None
        return position

    def _position(self, found: Checkpoint) -> Position:
        raise KeyError("a state of another library")

    def _upstream(self, found: Checkpoint | None, number: int = 0, later: int = 0) -> Position:
        """The same for a source, so many items later; None is its beginning."""
        source = self._sources[number]
        machine = _piped(source).machine
        position = machine.init(0) if found is None else None
        if position is None and isinstance(source, _Stage):
            position = source._position(found)  # type: ignore[arg-type]
        elif position is None:
            position = 0, freeze(found, type(source).__name__)
        flow = machine.flow(position)
        if sum(1 for _ in islice(flow, later)) < later:
            raise InvalidState(f"the state stands {later} items on, where there are fewer")
        return flow.snapshot() if later else position

    def _drawn(self, state: Any) -> tuple[int, int]:
        """Where the generator is: origin and words."""
        arguments = self._pipeline.calls[-1].arguments
        if state is None:
            return arguments["origin"], 0
        return located(arguments["seed"], arguments["origin"], state)


def _started(iterator: ref[_Stage]) -> Any:
    """The first item."""
    found = iterator()
    assert found is not None
    found._start()
    return next(found)


def _restored(
    kind: type[_Stage],
    pipeline: Pipeline[Any],
    sources: tuple[CheckpointableIterator, ...],
    state: dict[str, Any],
) -> _Stage:
    found = kind.__new__(kind)
    _Stage.__init__(found, pipeline, *sources)
    found.setstate(state)
    return found


def _piped(source: Any, name: str = "source_iterator") -> Pipeline[Any]:
    """The pipeline of a source; `ValueError` for what is no CheckpointableIterator."""
    if isinstance(source, _Stage):
        return source._pipeline
    if isinstance(source, CheckpointableIterator):
        return stages.infinibatch_foreign(source)
    raise ArgumentError(
        f"{name} must be a CheckpointableIterator, got {brief(source)} ({type(source).__name__})"
    )


def _kept(source: CheckpointableIterator) -> Position:
    """Where a partly consumed source is."""
    if isinstance(source, _Stage):
        return source._place()
    return 0, freeze(source.getstate(), type(source).__name__)


def _apart(iterators: Sequence[Any]) -> None:
    if len(set(map(id, iterators))) < len(iterators):
        raise ArgumentError("the same iterator stands twice; give two of them")


def _seed(name: str, seed: Any) -> Seed:
    def check(value: Any) -> Seed:
        value = bytes(value) if isinstance(value, bytearray) else value
        if hasattr(value, "dtype"):
            value = value.item()
        if value is not None and not isinstance(value, (int, float, str, bytes)):
            raise Unfit("an int, float, str, bytes or None")
        return value

    found: Seed = checked(name, "seed", seed, check)
    return found


def _random(seed: Seed, name: str) -> dict[str, Any]:
    """The arguments of a stage that draws."""
    seed = _seed(name, seed)
    return {"seed": seed, "origin": fresh(seed)}


class NativeCheckpointableIterator(_Stage):
    """The items of an iterable that can be iterated over again.

    State: a count of items. A restore goes there at once in a list, tuple or
    range, and replays anything else.
    Errors: `ValueError` for an iterator; `RuntimeError`, with both numbers, where
    a source has become too short for the state.

    >>> it = NativeCheckpointableIterator("abc")
    >>> next(it), next(it)
    ('a', 'b')
    >>> state = it.getstate()
    >>> list(it), it.setstate(state), list(it)
    (['c'], None, ['c'])
    """

    def __init__(self, iterable: Iterable[Any]) -> None:
        if iter(iterable) is iterable:
            raise ArgumentError(
                "NativeCheckpointableIterator: iterable must be one that begins anew each time, "
                f"got the iterator {brief(iterable)}"
            )
        super().__init__(stages.infinibatch_native(iterable))

    def _position(self, found: Checkpoint) -> Position:
        return 0, found["num_items_yielded"]


def create_source_iterator(
    source_items: Sequence[Any],
    train: bool = True,
    seed: Seed = None,
    shuffle: bool = True,
    num_instances: int = 1,
    instance_rank: int = 0,
) -> CheckpointableIterator:
    """An `InfinitePermutationSourceIterator` to train, else a `ChunkedSourceIterator`.

    Errors: `ValueError` for `shuffle` without `train`.
    """
    if not train and shuffle:
        raise ArgumentError("shuffling is not supported when train=False")
    if train:
        return InfinitePermutationSourceIterator(
            source_items, seed, shuffle, num_instances, instance_rank
        )
    return ChunkedSourceIterator(source_items, num_instances, instance_rank)


def ChunkedSourceIterator(  # noqa: N802  # its name
    source_items: Sequence[Any], num_instances: int = 1, instance_rank: int = 0
) -> CheckpointableIterator:
    """One of `num_instances` contiguous parts, sizes differing by at most 1, once.

    [D] A negative rank is refused, as one that is too large is.
    """
    return _Chunked(lz.source(list(source_items)) | _ranked(num_instances, instance_rank, True))


class _Chunked(_Stage):
    def _position(self, found: Checkpoint) -> Position:
        return (0, 0), found["num_items_yielded"]


def _ranked(num_instances: int, instance_rank: int, contiguous: bool = False) -> Stage[Any, Any]:
    count = checked("source", "num_instances", num_instances, positive)
    rank = checked("source", "instance_rank", instance_rank, natural)
    if rank >= count:
        raise ArgumentError(
            f"source: instance_rank must be below num_instances={count}, got instance_rank={rank}"
        )
    return lz.shard(num_shards=count, index=rank, contiguous=contiguous)


class InfinitePermutationSourceIterator(_Stage):
    """One permutation of the items after another; rank r of W gets item r, r + W, r + 2 W, ...

    The order is that of `random.Random(seed).shuffle`. The items are copied, and
    [D] so is each that is given, unless it is a number, a string or None: changing
    it in place changes nothing later.

    [D] `seed=None` is a seed drawn by chance, which the state holds, where there is
    one rank. Ranks have to share their permutations, and nothing connects them:
    with several, None is the seed 0. Negative ranks are refused.

    State: how many random words were drawn before this permutation, and the place
    in it; the same on all ranks. A restore jumps over the words, in less than 0.1 s
    however many they are, and draws one permutation.
    Errors: `ValueError` for no items, or a rank out of range.

    >>> it = InfinitePermutationSourceIterator("to be or not".split(), seed=1)
    >>> [next(it) for _ in range(6)]
    ['not', 'to', 'or', 'be', 'not', 'be']
    """

    def __init__(
        self,
        source_items: Sequence[Any],
        seed: Seed = 0,
        shuffle: bool = True,
        num_instances: int = 1,
        instance_rank: int = 0,
    ) -> None:
        items = list(source_items)
        if not items:
            raise ArgumentError("source must not be empty")
        ranks = _ranked(num_instances, instance_rank)
        seed = 0 if seed is None and num_instances > 1 else seed
        drawing = _random(seed, "InfinitePermutationSourceIterator")
        if not (atomic := set(map(type, items)) <= stages.ATOMS):
            items = deepcopy(items)
        if shuffle:
            pipe = stages.infinibatch_permutations(items, **drawing) | ranks
        else:
            pipe = lz.source(items) | lz.repeat() | ranks
        super().__init__(pipe if atomic else pipe | lz.map(deepcopy))

    def _position(self, found: Checkpoint) -> Position:
        machine = self._pipeline.machine
        source, *rest = (call.arguments for call in self._pipeline.calls)
        rank = next(each["index"] for each in rest if "index" in each)
        state, index = found["random_state"], found["index"] - rank
        if "seed" not in source:
            data = source["data"]
            cycle = (lz.source(data) | lz.repeat()).machine
            assert cycle.skip is not None
            place: Position = cycle.skip(cycle.init(0), index % len(data))[0]
            return place
        if state is None:
            return machine.init(0)
        seed, size = source["seed"], len(source["items"])
        origin, goal = located(seed, source["origin"], state)
        return 0, origin, *legacy.earlier(size, seed, origin, goal, index)


class MultiplexIterator(_Stage):
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
        pipes = [_piped(each, "source_iterators") for each in sources]
        control = _piped(control_iterator, "control_iterator")
        _apart([control_iterator, *sources])
        super().__init__(lz.multiplex(control, pipes), control_iterator, *sources)

    def _position(self, found: Checkpoint) -> Position:
        states = found["source_iterator_states"]
        _same_number(states, len(self._sources) - 1)
        rest = [self._upstream(each, number) for number, each in enumerate(states, 1)]
        return self._upstream(found["control_iterator_state"]), tuple(rest)


def _same_number(states: Sequence[Any], count: int) -> None:
    if len(states) != count:
        raise InvalidState(f"the state has {len(states)} sources, the iterator {count}")


class SelectManyIterator(_Stage):
    """The items of `collection_selector(item)`, or of the item itself, one after another.

    [D] An exception is tried again by the next call, not taken for the end; a
    StopIteration raised by the selector is a `PipelineError`. A set is refused: its
    order doesn't outlive the process.

    State: the place before the current collection, and how many of its items were
    given. A restore selects that collection again, and passes over those.
    Errors: `RuntimeError` where the collection became shorter.
    """

    def __init__(
        self,
        source_iterator: CheckpointableIterator,
        collection_selector: Callable[[Any], Iterable[Any]] | None = None,
    ) -> None:
        selector = checked(
            "SelectManyIterator", "collection_selector", collection_selector, optional(function)
        )
        pipe = _piped(source_iterator)
        super().__init__(
            pipe | lz.flat_map(_itself if selector is None else selector), source_iterator
        )

    def _position(self, found: Checkpoint) -> Position:
        return self._upstream(found["source_state"]), found["flattened_items_yielded"]


def _itself(item: Any) -> Any:
    return item


class BufferedShuffleIterator(_Stage):
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
        pipe, name = _piped(source_iterator), "BufferedShuffleIterator"
        size = checked(name, "buffer_size", buffer_size, positive)
        shuffle = stages.infinibatch_reservoir(size, **_random(seed, name))
        super().__init__(pipe | shuffle, source_iterator)

    def _position(self, found: Checkpoint) -> Position:
        arguments = self._pipeline.calls[-1].arguments
        seed, origin = arguments["seed"], arguments["origin"]
        place, words = located(seed, origin, found["random_state"])
        left = sum(item is not None for item in found["buffer"])
        begin = self._upstream(None)
        counts = legacy.refilled(arguments["buffer_size"], seed, origin, words, left)
        if place != origin:
            raise InvalidState("the generator of this state is too far from its seed")
        return begin, origin, 0, 0, *counts


class MapIterator(_Stage):
    """`transform(item)` for every item.

    [Q] It begins where its source is, and `setstate(None)` goes to the source's
    beginning, as in Infinibatch; the source itself stays where it is. The state's
    position has no layer for it, its description of the pipeline has.
    [D] A StopIteration raised by `transform` is a `PipelineError`.
    """

    def __init__(
        self, source_iterator: CheckpointableIterator, transform: Callable[[Any], Any]
    ) -> None:
        pipe = _piped(source_iterator)
        super().__init__(pipe | lz.map(transform), source_iterator, begin=_kept(source_iterator))

    def _position(self, found: Checkpoint) -> Position:
        return self._upstream(found)


def ParallelMapIterator(  # noqa: N802  # its name
    source_iterator: CheckpointableIterator,
    transform: Callable[[Any], Any],
    num_processes: int,
    num_items_per_process: int,
) -> CheckpointableIterator:
    """`transform(item)` for every item, by several processes, in order.

    [D] The processes start with the first item, and `close` ends them.

    - `num_items_per_process`: times `num_processes` items are held ready

    State: that of the source.
    """
    pipe, name = _piped(source_iterator), "ParallelMapIterator"
    workers = checked(name, "num_processes", num_processes, positive)
    each = checked(name, "num_items_per_process", num_items_per_process, positive)
    return _Parallel(_ahead(pipe | lz.map(transform), workers, workers * each), source_iterator)


def _ahead(pipe: Pipeline[Any], workers: int, size: int, logs: bool = False) -> Pipeline[Any]:
    executor = executing(pipe, workers, size)
    return pipe | stages.infinibatch_ahead(executor=executor, logs=logs)


class _Parallel(_Stage):
    def _position(self, found: Checkpoint) -> Position:
        inner = found["source_state"]
        state = None if inner is None else inner["source_state"]
        return self._upstream(state, later=found["flattened_items_yielded"])


class ZipIterator(_Stage):
    """Tuples of one item from each source, until the shortest ends.

    [Q] It begins where its sources are, as `MapIterator` does. [D] No sources, a
    state with another number of them, or the same iterator twice are refused.

    State: that of each source.
    """

    def __init__(self, *source_iterators: CheckpointableIterator) -> None:
        pipes = [_piped(each, "source_iterators") for each in source_iterators]
        _apart(source_iterators)
        zipped = lz.zip(*pipes)
        begin = tuple(map(_kept, source_iterators)), 0
        super().__init__(zipped, *source_iterators, begin=begin)

    def _position(self, found: Checkpoint) -> Position:
        states = found["input_states"]
        _same_number(states, len(self._sources))
        return tuple(self._upstream(each, number) for number, each in enumerate(states)), 0


class WindowedIterator(_Stage):
    """Tuples of `width` consecutive items, each beginning one item after the last.

    [D] `width` is checked here.

    State: the place of the next window's first item.
    """

    def __init__(self, source_iterator: CheckpointableIterator, width: int) -> None:
        pipe = _piped(source_iterator)
        checked("WindowedIterator", "width", width, positive)
        super().__init__(pipe | lz.sliding_window(width), source_iterator)

    def _position(self, found: Checkpoint) -> Position:
        return self._upstream(found["source_state"], later=found["item_index"])


class FixedBatchIterator(_Stage):
    """Lists of `batch_size` items, the last one shorter.

    State: that of the source.
    """

    def __init__(self, source_iterator: CheckpointableIterator, batch_size: int) -> None:
        pipe = _piped(source_iterator)
        checked("FixedBatchIterator", "batch_size", batch_size, positive)
        super().__init__(pipe | lz.batch(batch_size), source_iterator)

    def _position(self, found: Checkpoint) -> Position:
        return self._upstream(found["source_state"])


class RandomIterator(_Stage):
    """What `random.Random(seed).random()` gives.

    [D] With `seed=None`, `setstate(None)` begins the same stream again.

    State: how many random words were drawn.
    """

    def __init__(self, seed: Seed = 0) -> None:
        super().__init__(stages.infinibatch_random(**_random(seed, "RandomIterator")))

    def _position(self, found: Checkpoint) -> Position:
        return 0, *self._drawn(found["random_state"])


class RecurrentIterator(_Stage):
    """The outputs of `step_function(state, item) -> (state, output)`.

    The step may change its state in place. [D] The state has to be made of JSON
    values and tuples to be saved: `getstate` refuses another with `InvalidState`,
    iterating doesn't mind.

    State: the source's, and your own as it is.
    """

    def __init__(
        self,
        source_iterator: CheckpointableIterator,
        step_function: Callable[[Any, Any], tuple[Any, Any]],
        initial_state: Any = None,
    ) -> None:
        pipe = _piped(source_iterator)
        step, first = step_function, initial_state
        try:
            storable(first)
        except Unfit:
            step, first = _Boxed(step_function, deepcopy(initial_state)), []
        super().__init__(pipe | lz.scan(step, first), source_iterator)

    def _position(self, found: Checkpoint) -> Position:
        return self._upstream(found["source_state"]), freeze(found["recurrent_state"], "scan")


class _Boxed:
    """A step whose first state is no value of a state: it goes in a list."""

    def __init__(self, step: Callable[[Any, Any], tuple[Any, Any]], first: Any) -> None:
        self.step, self.first = step, first

    def __call__(self, held: list[Any], item: Any) -> tuple[list[Any], Any]:
        state, output = self.step(held[0] if held else deepcopy(self.first), item)
        return [state], output


def SamplingRandomMapIterator(  # noqa: N802  # its name
    source_iterator: CheckpointableIterator,
    transform: Callable[[Random, Any], Any],
    seed: Seed = 0,
) -> CheckpointableIterator:
    """`transform(random, item)` for every item, with one `random.Random(seed)` for all.

    [D] With `seed=None` the seed drawn is in the state.

    State: the source's, and how many random words were drawn; where `transform`
    gives the generator another seed or state, all its 624 words, 5 KB.
    """
    pipe, name = _piped(source_iterator), "SamplingRandomMapIterator"
    fn = checked(name, "transform", transform, function)
    stage = stages.infinibatch_random_map(fn, **_random(seed, name))
    return _SamplingRandomMap(pipe | stage, source_iterator)


class _SamplingRandomMap(_Stage):
    def _position(self, found: Checkpoint) -> Position:
        state = found["recurrent_state"]
        words = self._drawn(state)
        return self._upstream(found["source_state"]), *words, as_int(state[2])


def BlockwiseShuffleIterator(  # noqa: N802  # its name
    source_iterator: CheckpointableIterator, block_size: int, seed: Seed = 0
) -> CheckpointableIterator:
    """Consecutive blocks of items, each shuffled by `random.Random(seed)`, the short last one too.

    State: the place before the current block, how many random words were drawn
    before it, and how many of its items were given. A restore reads one block again.
    """
    pipe, name = _piped(source_iterator), "BlockwiseShuffleIterator"
    size = checked(name, "block_size", block_size, positive)
    return _Blockwise(
        pipe | stages.infinibatch_blocks(size, **_random(seed, name)), source_iterator
    )


class _Blockwise(_Stage):
    def _position(self, found: Checkpoint) -> Position:
        state = found["source_state"] or {"recurrent_state": None, "source_state": None}
        inner = state["source_state"]
        before = self._upstream(None if inner is None else inner["source_state"])
        return before, *self._drawn(state["recurrent_state"]), found["flattened_items_yielded"]


def PrefetchIterator(  # noqa: N802  # its name
    source_iterator: CheckpointableIterator,
    buffer_size: int,
    buffer_in_main_process: bool = False,
    log_empty_buffer_warning: bool = False,
) -> CheckpointableIterator:
    """The items as they are, made ahead by a process; stages behind it run here.

    - `buffer_size`: items held ready; from 64 on, 64 of them, or of lots of small ones
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
    pipe, name = _piped(source_iterator), "PrefetchIterator"
    size = checked(name, "buffer_size", buffer_size, positive)
    logs = checked(name, "log_empty_buffer_warning", log_empty_buffer_warning, boolean)
    return _Prefetch(_ahead(pipe, 1, size, logs), source_iterator)


class _Prefetch(_Stage):
    def _position(self, found: Checkpoint) -> Position:
        return self._upstream(found["source_state"], later=found["item_offset"])


class BucketedReadaheadBatchIterator(_Stage):
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
        pipe, name = _piped(source_iterator), "BucketedReadaheadBatchIterator"
        buckets = stages.infinibatch_buckets(
            checked(name, "read_ahead", read_ahead, positive),
            checked(name, "key", key, optional(function)),
            batch_size
            if callable(batch_size)
            else checked(name, "batch_size", batch_size, integer),
            checked(name, "boundary_key", boundary_key, optional(function)),
            bool(shuffle),
            **_random(seed, name),
        )
        super().__init__(pipe | buckets, source_iterator)

    def _position(self, found: Checkpoint) -> Position:
        words = self._drawn(found["random_state"])
        return self._upstream(found["source_state"]), *words, found["num_served"]

"""The stages that draw as `random.Random` does, and sources that are objects.

Combinators, but no public names, and so not in the registry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import chain, count, groupby, islice
from operator import length_hint
from random import Random
from typing import Any

import numpy as np

from lazyckpt.call import Call, define
from lazyckpt.catalogue import Combinator, registry
from lazyckpt.combinators.sources import source
from lazyckpt.compat.infinibatch.twister import Seed, Tracked, Words, told
from lazyckpt.errors import SourceChanged
from lazyckpt.executors.executor import Executor
from lazyckpt.frozen import freeze, thaw
from lazyckpt.machine import Flow, Machine, Position, Table, View, counted, machine, placed, within
from lazyckpt.noise import Indices, affine, as_array
from lazyckpt.pipeline import Pipeline, Stage

ATOMS = {int, float, bool, complex, str, bytes, type(None)}
_EMPTY: Any = object()
_ours: dict[str, Combinator] = {}


class _Call(Call):
    """A call that pickles without the registry."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _called, (self.name, self.arguments, self.site)


def _called(name: str, arguments: dict[str, Any], site: str) -> Call:
    return _Call(_ours[name], arguments, site)


def _stage(build: Callable[..., Machine[Any]]) -> Callable[..., Stage[Any, Any]]:
    return _private(build, Stage, is_source=False, free=("origin",))


def _private(build: Callable[..., Machine[Any]], kind: Any, **options: Any) -> Callable[..., Any]:
    def wrap(call: Call) -> Any:
        return kind((_Call(call.combinator, call.arguments, call.site),))

    public = define(build, wrap, **options)
    _ours[build.__name__] = registry.pop(build.__name__)
    return public


def _source(
    describe: Callable[..., dict[str, Any]],
) -> Callable[[Callable[..., Machine[Any]]], Callable[..., Pipeline[Any]]]:
    return lambda build: _private(build, Pipeline, is_source=True, describe=describe)


@_source(lambda iterable: {})
def infinibatch_native(iterable: Iterable[Any]) -> Machine[Any]:
    """The items of anything that can be iterated over again.

    State: the epoch and a count of items.
    """
    if type(iterable) in (list, tuple, range):
        built: Machine[Any] = source(iterable).machine

        def indexed(position: Position) -> Flow[Any]:
            _, index = placed("NativeCheckpointableIterator", position)
            if index > (length := len(iterable)):  # type: ignore[arg-type]
                raise _shrunk(index, length)
            return built.flow(position)

        return built._replace(flow=indexed)

    def flow(position: Position) -> Flow[Any]:
        epoch, index = placed("NativeCheckpointableIterator", position)
        stream, taken = counted(iterable)
        if sum(1 for _ in islice(stream, index)) < index:
            raise _shrunk(index, taken())
        return Flow(stream, lambda: (epoch, taken()))

    return machine(init=lambda epoch: (epoch, 0), epoch=_first, flow=flow)


def _shrunk(index: int, length: int) -> SourceChanged:
    return SourceChanged(f"the state stands after item {index} of a source that now has {length}")


def _first(position: Position) -> int:
    return int(position[0])


@_source(lambda iterator: {"type": type(iterator).__name__})
def infinibatch_foreign(iterator: Any) -> Machine[Any]:
    """A user's own CheckpointableIterator, as it is.

    State: the user's own; it has to be made of JSON values and tuples.
    """
    turns = count()
    current = -1

    def flow(position: Position) -> Flow[Any]:
        epoch, mine = position
        turn = -1

        def items() -> Iterator[Any]:
            nonlocal turn, current
            turn = current = next(turns)
            iterator.setstate(None if mine == 0 else thaw(mine))
            for item in iterator:
                yield item
                if turn != current:
                    raise RuntimeError(f"{iterator!r} is used by two at once")

        def snapshot() -> Position:
            if turn < 0:
                return position
            return epoch, freeze(iterator.getstate(), type(iterator).__name__)

        return Flow(items(), snapshot)

    return machine(init=lambda epoch: (epoch, 0), epoch=_first, flow=flow)


@_source(lambda items, seed, origin: {"length": len(items), "seed": told(seed)})
def infinibatch_permutations(items: list[Any], seed: Seed, origin: int) -> Machine[Any]:
    """One permutation of the items after another, for ever.

    State: the epoch, the generator's place before the permutation, and a count
    of its items.
    """
    size = len(items)
    words: Words | None = None

    @lru_cache(max(2, (1 << 18) // size))
    def drawn(origin: int, place: int) -> tuple[Any, int]:
        """The permutation that begins at a place, and where the next one does."""
        nonlocal words
        if words is None or (words.origin, words.drawn) != (origin, place):
            words = Words(seed, origin, place)
        return words.permutation(size), words.drawn

    def skip(position: Position, n: int) -> tuple[Position, int]:
        epoch, origin, place, index = position
        within("InfinitePermutationSourceIterator", index, size)
        index += n
        while index > size:
            place, index = drawn(origin, place)[1], index - size
        return (epoch, origin, place, index), n

    def ahead(position: Position, offsets: Indices) -> Indices:
        _, origin, place, index = position
        places = affine(offsets, index)
        if isinstance(places, range) and len(places) and places[-1] < size:
            order = drawn(origin, place)[0]
            return np.asarray(order[places.start : places.stop : places.step], np.int64)
        wanted = as_array(places)
        orders = []
        for _ in range(int(wanted.max(initial=0)) // size + 1):
            order, place = drawn(origin, place)
            orders.append(order)
        return np.concatenate(orders)[wanted].astype(np.int64)

    get = items.__getitem__

    def step(position: Position) -> tuple[Position, Any]:
        return skip(position, 1)[0], get(int(ahead(position, range(1))[0]))

    return machine(
        init=lambda epoch: (epoch, origin, 0, 0),
        epoch=_first,
        step=step,
        skip=skip,
        length=math.inf,
        view=View(Table(get), ahead),
    )


@_source(lambda seed, origin: {"seed": told(seed)})
def infinibatch_random(seed: Seed, origin: int) -> Machine[float]:
    """The floats of `Random(seed).random()`.

    State: the epoch and the generator's place.
    """

    def flow(position: Position) -> Flow[float]:
        epoch, origin, place = position
        within("RandomIterator", place, math.inf)

        random = Tracked(seed, origin, place, 0).random.random
        items, taken = counted(iter(random, None))
        return Flow(items, lambda: (epoch, origin, place + 2 * taken()))

    def skip(position: Position, n: int) -> tuple[Position, int]:
        epoch, origin, place = position
        return (epoch, origin, place + 2 * n), n

    return machine(
        init=lambda epoch: (epoch, origin, 0), epoch=_first, flow=flow, skip=skip, length=math.inf
    )


@_stage
def infinibatch_random_map(
    upstream: Machine[Any], fn: Callable[[Random, Any], Any], seed: Seed, origin: int
) -> Machine[Any]:
    """`fn(random, item)` for every item, with one generator for all.

    State: the generator's place; where `fn` gives it another seed, all its words.
    """

    def flow(position: Position) -> Flow[Any]:
        before, origin, words, gauss = position
        items = upstream.flow(before)
        tracked: Tracked | None = None

        def made() -> Iterator[Any]:
            nonlocal tracked
            tracked = Tracked(seed, origin, words, gauss)
            random = tracked.random
            for item in items:
                yield fn(random, item)

        def snapshot() -> Position:
            place = (origin, words, gauss) if tracked is None else tracked.place()
            return items.snapshot(), *place

        return Flow(made(), snapshot)

    return machine(
        init=lambda epoch: (upstream.init(epoch), origin, 0, 0),
        epoch=lambda position: upstream.epoch(position[0]),
        flow=flow,
        length=upstream.length,
    )


@_stage
def infinibatch_blocks(
    upstream: Machine[Any], block_size: int, seed: Seed, origin: int
) -> Machine[Any]:
    """The items of consecutive blocks, each block shuffled.

    State: the place before the current block, the generator's there, and a count
    of its items given. Resume: reads one block again.
    """
    return _sections(upstream, block_size, lambda items: items, seed, origin)


@_stage
def infinibatch_buckets(
    upstream: Machine[Any],
    read_ahead: int,
    key: Callable[[Any], Any] | None,
    batch_size: int | Callable[[Any], Any],
    boundary_key: Callable[[Any], Any] | None,
    shuffle: bool,
    seed: Seed,
    origin: int,
) -> Machine[list[Any]]:
    """Batches of items alike, out of sections of `read_ahead` items.

    State: the place before the current section, the generator's there, and a
    count of its batches given. Resume: reads one section again.
    """

    def cut(items: list[Any]) -> list[list[Any]]:
        if key:
            items.sort(key=key, reverse=True)
        if not boundary_key:
            return list(_cut(items, batch_size))
        runs = (list(run) for _, run in groupby(items, _never_none(boundary_key)))
        return [batch for run in runs for batch in _cut(run, batch_size)]

    return _sections(upstream, read_ahead, cut, seed if shuffle else _EMPTY, origin)


def _cut(items: list[Any], size: int | Callable[[Any], Any]) -> Iterator[list[Any]]:
    at, total = 0, len(items)
    while at < total:
        wanted = size(items[at]) if callable(size) else size
        stop = at + max(1, math.ceil(min(wanted, total)))
        yield items[at:stop]
        at = stop


def _never_none(key: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def checked(item: Any) -> Any:
        found = key(item)
        if found is None:
            raise ValueError(f"boundary_key must not give None, and it does for {item!r}")
        return found

    return checked


def _sections(
    upstream: Machine[Any],
    size: int,
    made: Callable[[list[Any]], list[Any]],
    seed: Any,
    origin: int,
) -> Machine[Any]:
    """What is made of consecutive sections of items, shuffled within each."""

    def flow(position: Position) -> Flow[Any]:
        anchor, origin, place, given = position
        within("a section", place, math.inf), within("a section", given)
        before = upstream.flow(anchor)
        some: list[Any] = []
        ticks: Iterator[Any] = iter(some)

        def sections() -> Iterator[Iterator[Any]]:
            nonlocal anchor, place, given, some, ticks
            words = None if seed is _EMPTY else Words(seed, origin, place)
            stream, here = iter(before), anchor
            while items := list(islice(stream, size)):
                outputs = made(items)
                start = place if words is None else words.drawn
                if words is not None:
                    words.shuffle(outputs)
                if given > len(outputs):
                    raise _shrunk(given, len(outputs))
                begun: Any = iter(outputs)
                begun.__setstate__(given)
                anchor, place, some, ticks, given = here, start, outputs, begun, 0
                yield ticks
                here = before.snapshot()
            if given:
                raise _shrunk(given, 0)
            anchor, some = before.snapshot(), []
            place = place if words is None else words.drawn

        def snapshot() -> Position:
            return anchor, origin, place, len(some) - length_hint(ticks) if some else given

        return Flow(chain.from_iterable(sections()), snapshot)

    return machine(
        init=lambda epoch: (upstream.init(epoch), origin, 0, 0),
        epoch=lambda position: upstream.epoch(position[0]),
        flow=flow,
    )


@_stage
def infinibatch_reservoir(
    upstream: Machine[Any], buffer_size: int, seed: Seed, origin: int
) -> Machine[Any]:
    """A streaming shuffle: each item takes a random slot, and what was there is given.

    State: the place before an item not later than the oldest in the buffer, that
    item's number, the generator's place there, items read, and a count of those
    given at the end. Resume: reads again from that item, about 12 buffers.
    """
    block = min(max(buffer_size, 256), 1 << 16)

    def flow(position: Position) -> Flow[Any]:
        anchor, origin, start, place, arrived, flushed = position
        for number in (start, place, arrived, flushed):
            within("BufferedShuffleIterator", number, math.inf)
        before = upstream.flow(anchor)
        taken: Callable[[], int] = lambda: 0  # noqa: E731  # replaced when reading begins
        base = arrived
        rest: Iterator[int] = iter(())
        left = 0

        def outputs() -> Iterator[Any]:
            nonlocal anchor, start, place, base, taken, rest, left
            buffer: list[Any] = [_EMPTY] * buffer_size
            held = np.full(buffer_size, -1)  # the number of the item in each slot
            words = Words(seed, origin, place)
            marks: dict[int, tuple[Position, int]] = {start: (anchor, place)}
            base, goal = start, arrived
            stream, taken = counted(before)
            number = start
            ended = False
            while not ended:
                if number % block == 0 and number:
                    marks[number] = before.snapshot(), words.drawn
                    full = held[held >= 0]
                    oldest = int(full.min()) if number >= goal else -1
                    if oldest >= 0:
                        start = max(mark for mark in marks if mark <= oldest)
                        anchor, place = marks[start]
                        for mark in [mark for mark in marks if mark < start]:
                            del marks[mark]
                stop = number - number % block + block
                if number < goal:
                    stop = min(stop, goal)
                slots = words.below(buffer_size, stop - number)
                replays = number < goal
                for slot, item in zip(slots.tolist(), stream, strict=False):
                    out, buffer[slot] = buffer[slot], item
                    if out is not _EMPTY and not replays:
                        yield out
                read = base + taken()
                ended = read < stop
                held[slots[: read - number]] = np.arange(number, read)
                number = read
            if number < goal:
                raise _shrunk(goal, number)
            final = [slot for slot in range(buffer_size - 1, -1, -1) if buffer[slot] is not _EMPTY]
            if flushed > len(final):
                raise _shrunk(goal + flushed, number + len(final))
            left = len(final)
            rest = iter(final[flushed:])
            for slot in rest:
                yield buffer[slot]

        def snapshot() -> Position:
            given = left - length_hint(rest) if left else flushed
            return anchor, origin, start, place, base + taken(), given

        return Flow(outputs(), snapshot)

    return machine(
        init=lambda epoch: (upstream.init(epoch), origin, 0, 0, 0, 0),
        epoch=lambda position: upstream.epoch(position[0]),
        flow=flow,
        length=upstream.length,
    )


def _ahead(build: Callable[..., Machine[Any]]) -> Callable[..., Stage[Any, Any]]:
    return _private(build, Stage, is_source=False, free=("executor", "logs"), lockstep=True)


@_ahead
def infinibatch_ahead(upstream: Machine[Any], executor: Executor, logs: bool) -> Machine[Any]:
    """The items as they are; what comes before is made ahead, by an executor.

    State: none.
    """
    return upstream

"""Stages of Infinibatch's iterators for which lazyckpt has no combinator."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from functools import partial
from importlib import import_module
from itertools import chain
from random import Random
from typing import Any
from weakref import WeakValueDictionary

import lazyckpt as lz
from lazyckpt.compat.infinibatch.mersenne import Draws, Seed, check_place, origin_of, seedable
from lazyckpt.core.call import Chain
from lazyckpt.core.checks import brief, function, positive
from lazyckpt.core.flow import Flow, Position, counted, pass_over
from lazyckpt.core.machine import Machine, Rate, Reread, within
from lazyckpt.core.stages import passing, sourced, stateful
from lazyckpt.core.user_state import freeze, thaw
from lazyckpt.executors.ipc.serialization import has_cloudpickle
from lazyckpt.executors.session import Session

logger = logging.getLogger("lazyckpt.compat.infinibatch")

_PREFETCH = "infinibatch_prefetch"
_MISSING: Any = object()
_MOST = 1 << 62  # inputs

# The flow that reads a user's iterator, by the iterator's id: a function that is alive as long.
_readers: WeakValueDictionary[int, Callable[[], bool]] = WeakValueDictionary()


@lz.source_combinator(registered=False, describe=lambda iterable: {})
def infinibatch_native(iterable: Iterable[Any]) -> Machine[Any]:
    """Yield the items of a repeatable iterable. State: the epoch, a count of items."""

    def flow(position: Position) -> Flow[Any]:
        epoch, index = position
        stream, taken = counted(chain.from_iterable([iterable]))  # `iter` at the first item
        found: Flow[Any] = Flow(stream, lambda: (epoch, taken()))
        pass_over(found, index)
        return found

    name = "NativeCheckpointableIterator"
    return sourced(name, rereads=lambda position: (Reread(None, position[1]),), flow=flow)


@lz.source_combinator(registered=False, describe=lambda iterator: {"type": type(iterator).__name__})
def infinibatch_foreign(iterator: Any) -> Machine[Any]:
    """Yield the items of a user's CheckpointableIterator.

    State: a count of items, and its own state.
    """
    name = type(iterator).__name__
    shared = f"the same {name} is used by two stages at the same time"

    def flow(position: Position) -> Flow[Any]:
        epoch, index, mine = position

        def is_reading() -> bool:
            return _readers.get(id(iterator)) is is_reading

        def items() -> Iterator[Any]:
            _readers[id(iterator)] = is_reading
            iterator.setstate(None if mine == 0 else thaw(mine))
            for item in iterator:
                yield item
                if not is_reading():
                    raise RuntimeError(shared)

        def snapshot() -> Position:
            if is_reading():
                return epoch, index + taken(), freeze(iterator.getstate(), name)
            if taken():
                raise lz.InvalidState(shared)
            return position

        stream, taken = counted(items())
        return Flow(stream, snapshot, taken=taken)

    return sourced(name, first=(0,), check=lambda mine: mine == 0 or thaw(mine), flow=flow)


def boxed(
    step: Callable[[Any, Any], tuple[Any, Any]], first: Any, held: list[Any], item: Any
) -> tuple[list[Any], Any]:
    """Run a step function whose first state can't be stored in a state; a list holds it."""
    state, output = step(held[0] if held else deepcopy(first), item)
    return [state], output


@lz.combinator(registered=False, checks={"fn": function, "seed": seedable})
def infinibatch_random_map(
    upstream: Machine[Any], fn: Callable[[Random, Any], Any], seed: Seed
) -> Machine[Any]:
    """Call `fn(random, item)` for every item, with one generator for all.

    State: the generator's place.
    """
    name = "SamplingRandomMapIterator"

    def check(origin: Any, words: Any, spare: Any) -> None:
        check_place(origin, words)
        if not isinstance(thaw(spare), float | None):
            raise lz.InvalidState(f"{name}: a state with {brief(spare)} for a spare float")

    def flow(position: Position) -> Flow[Any]:
        before, origin, words, spare = position
        items, draws = upstream.flow(before), Draws(seed, origin, words, thaw(spare))
        random = draws.random

        def snapshot() -> Position:
            return items.snapshot(), *draws.mark, freeze(random.getstate()[2], name)

        return Flow((fn(random, item) for item in items), snapshot)

    return stateful(
        name,
        upstream,
        first=(origin_of(seed), 0, freeze(None, name)),
        check=check,
        rate=Rate(),
        flow=flow,
        length=upstream.length,
    )


@lz.combinator(registered=False, checks={"buffer_size": positive, "seed": seedable})
def infinibatch_reservoir(upstream: Machine[Any], buffer_size: int, seed: Seed) -> Machine[Any]:
    """Shuffle a stream with a buffer whose content is a function of the slots drawn.

    An input goes to the slot drawn for it, and the previous occupant, if there is one, is the next
    output. So a slot holds the last input that drew it. The state is (upstream's position at input
    `start`, `start`, a count, the place of the generator there), where `start` is no later than the
    oldest input held. The count is of inputs, plus the items flushed at the end. `start` is chosen
    after the first input of each block, among these inputs and 0, so it depends on the count alone.
    """
    name, block = "BufferedShuffleIterator", max(buffer_size, 256)

    def check(start: Any, count: Any, *mark: Any) -> None:
        within(name, count, _MOST), within(name, start, count)
        check_place(*mark)

    def flow(position: Position) -> Flow[Any]:
        anchor, start, count, *mark = position
        before, draws = upstream.flow(anchor), Draws(seed, *mark)

        def outputs() -> Iterator[Any]:
            nonlocal anchor, start, count, mark
            held, inputs = [_MISSING] * buffer_size, [_MOST] * buffer_size  # items, their numbers
            places = {start: (anchor, mark)}  # where a state may begin
            number, draw = start, draws.random.randrange
            for item in before:
                slot = draw(buffer_size)
                found, held[slot], inputs[slot] = held[slot], item, number
                if number and not number % block:
                    places[number + 1] = before.snapshot(), [*draws.mark]
                    oldest = min(inputs)
                    start = max(place for place in places if place <= oldest)
                    anchor, mark = places[start]
                    places = {place: places[place] for place in places if place >= start}
                number += 1
                if number > count:
                    count = number
                    if found is not _MISSING:
                        yield found
            left = [item for item in reversed(held) if item is not _MISSING]
            if count - number > len(left):
                raise lz.SourceChanged(
                    f"{name}: the state is after item {count}, but the source now has {number}"
                )
            for item in left[count - number :]:
                count += 1
                yield item

        return Flow(outputs(), lambda: (anchor, start, count, *mark))

    return stateful(
        name,
        upstream,
        first=(0, 0, origin_of(seed), 0),
        check=check,
        rate=Rate(1, buffer_size),
        rereads=lambda position: [Reread(position[0], position[2] - position[1])],
        flow=flow,
        length=upstream.length,
    )


@lz.combinator(registered=False, keeps_items=True, unrecorded=("begin", "logs"))
def infinibatch_prefetch(
    upstream: Machine[Any], begin: Callable[[], Any], logs: bool
) -> Machine[Any]:
    """Yield items unchanged, computed ahead by the workers of a session. State: none."""

    def look(session: Session) -> None:
        if logs and not session.ready:
            logger.warning("trying to fetch item, but prefetch buffer is empty")

    def flow(position: Position) -> Flow[Any]:
        made: Flow[Any] | None = None

        def items() -> Iterator[Any]:
            nonlocal made
            session = begin()
            try:
                made = session.machine.flow(position)
                look(session)
                for item in made:
                    yield item
                    look(session)
            finally:
                session.stop()

        return Flow(items(), lambda: position if made is None else made.snapshot())

    return passing(upstream)._replace(flow=flow, view=None)


def prefetched(
    pipeline: lz.Pipeline[Any], workers: int, buffer_size: int, logs: bool = False
) -> lz.Pipeline[Any]:
    """Return a pipeline that processes compute ahead, or threads if it can't be sent to processes.

    With `logs`, a warning is logged if an item is requested and none is ready.
    """
    make: Callable[..., lz.Executor] = lz.processes
    try:
        (import_module("cloudpickle") if has_cloudpickle() else pickle).dumps(pipeline)
    except Exception:
        make = lz.threads
    executor = make(workers, buffer_size=buffer_size)
    begin = partial(executor.open, without_prefetch(pipeline))
    return pipeline | infinibatch_prefetch(begin, logs)


def without_prefetch(pipeline: lz.Pipeline[Any]) -> lz.Pipeline[Any]:
    """Return the same pipeline without prefetching in any of its parts."""
    kept = [call for call in pipeline.calls if call.name != _PREFETCH]
    return lz.Pipeline(tuple([call.with_chains(without_prefetch) for call in kept]))


def has_prefetch(pipeline: Chain) -> bool:
    """Return whether any part of a pipeline is prefetched."""
    calls = pipeline.calls
    return any(call.name == _PREFETCH or any(map(has_prefetch, call.chains)) for call in calls)

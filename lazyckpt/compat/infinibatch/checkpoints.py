"""What Infinibatch's own checkpoints say, as positions in the pipelines that do the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from lazyckpt.compat.infinibatch.mersenne import Seed, as_int, located
from lazyckpt.compat.infinibatch.words import Words
from lazyckpt.core.checks import brief
from lazyckpt.core.machine import Machine, Position, entered, within
from lazyckpt.core.user_state import freeze
from lazyckpt.errors import InvalidState
from lazyckpt.pipeline import Pipeline

Checkpoint = Mapping[str, Any]

_AT_ONCE = 1 << 16


def converted(pipeline: Pipeline[Any], found: Checkpoint) -> Position:
    """The position that a checkpoint of Infinibatch's own stands for.

    Raises:
        InvalidState: It is none of the iterator that does what the pipeline does.
    """
    try:
        position = _position(pipeline, found)
        entered(pipeline.machine, position)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise InvalidState(
            "neither a lazyckpt state nor one of the same iterators in Infinibatch: "
            f"{brief(found)} ({error!r})"
        ) from None
    return position


def _position(pipeline: Pipeline[Any], found: Any) -> Position:
    """Of any checkpoint; None is the beginning."""
    if found is None:
        return pipeline.machine.init(0)
    last = pipeline.calls[-1]
    upstream: Pipeline[Any] = Pipeline(pipeline.calls[:-1])
    return _READERS[last.name](pipeline, upstream, last.arguments, found)


def _later(machine: Machine[Any], position: Position, count: int) -> Position:
    """So many items later. At its end Infinibatch still counts those that came last."""
    flow = machine.flow(position)
    passed = sum(1 for _ in islice(flow, within("a checkpoint", count)))
    if 0 < passed < count:
        raise InvalidState(f"the checkpoint stands {count} items on, where there are {passed}")
    return flow.snapshot()


def _drawn(arguments: Any, state: Any) -> tuple[int, int]:
    """Where the generator is: origin and words."""
    if state is None:
        return arguments["origin"], 0
    return located(arguments["seed"], arguments["origin"], state)


def _passed_on(pipeline: Any, upstream: Any, arguments: Any, found: Any) -> Position:
    return _position(upstream, found)


def _of_source_state(pipeline: Any, upstream: Any, arguments: Any, found: Any) -> Position:
    return _position(upstream, found["source_state"])


def _native(pipeline: Any, upstream: Any, arguments: Any, found: Any) -> Position:
    return 0, found["num_items_yielded"]


def _foreign(pipeline: Any, upstream: Any, arguments: Any, found: Any) -> Position:
    return 0, freeze(found, type(arguments["iterator"]).__name__)


def _random(pipeline: Any, upstream: Any, arguments: Any, found: Any) -> Position:
    return 0, *_drawn(arguments, found["random_state"])


def _sharded(pipeline: Any, upstream: Any, arguments: Any, found: Any) -> Position:
    if arguments["contiguous"]:
        return (0, 0), found["num_items_yielded"]
    source = upstream.calls[0].arguments
    state, index = found["random_state"], found["index"] - arguments["index"]
    if "seed" not in source:
        skip, start = upstream.machine.skip, upstream.machine.init(0)
        return skip(start, index % len(source["data"]))[0]
    if state is None:
        return pipeline.machine.init(0)
    origin, goal = _drawn(source, state)
    return 0, origin, *_permutation(len(source["items"]), source["seed"], origin, goal, index)


def _permutation(size: int, seed: Seed, origin: int, goal: int, index: int) -> tuple[int, int]:
    """The permutation in which an index is that is counted from one that begins at `goal`."""
    if index >= 0 or size == 1:
        return goal, index % size
    words, starts = Words(seed, origin, 0), [0]
    while starts[-1] < goal:
        words.permutation(size)
        starts.append(words.drawn)
    back = -(index // size)
    if starts[-1] != goal or back >= len(starts):
        raise InvalidState("the generator of this state was not begun with the iterator's seed")
    return starts[-1 - back], index + back * size


def _selected(pipeline: Any, upstream: Any, arguments: Any, found: Any) -> Position:
    start = _position(upstream, found["source_state"]), 0
    return _later(pipeline.machine, start, found["flattened_items_yielded"])


def _windows(pipeline: Any, upstream: Any, arguments: Any, found: Any) -> Position:
    start = _position(upstream, found["source_state"])
    return _later(upstream.machine, start, found["item_index"])


def _scanned(pipeline: Any, upstream: Any, arguments: Any, found: Any) -> Position:
    state = found["recurrent_state"]
    held = [state] if getattr(arguments["step"], "boxes", False) else state
    return _position(upstream, found["source_state"]), freeze(held, "scan")


def _random_map(pipeline: Any, upstream: Any, arguments: Any, found: Any) -> Position:
    state = found["recurrent_state"]
    drawn = _drawn(arguments, state)
    return _position(upstream, found["source_state"]), *drawn, as_int(state[2])


def _blocks(pipeline: Any, upstream: Any, arguments: Any, found: Any) -> Position:
    state = found["source_state"] or {"recurrent_state": None, "source_state": None}
    inner = state["source_state"]
    anchor = _position(upstream, None if inner is None else inner["source_state"])
    start = anchor, *_drawn(arguments, state["recurrent_state"]), 0
    return _later(pipeline.machine, start, found["flattened_items_yielded"])


def _buckets(pipeline: Any, upstream: Any, arguments: Any, found: Any) -> Position:
    anchor = _position(upstream, found["source_state"])
    drawn = _drawn(arguments, found["random_state"]) if arguments["shuffle"] else (0,)
    return _later(pipeline.machine, (anchor, *drawn, 0), found["num_served"])


def _reservoir(pipeline: Any, upstream: Any, arguments: Any, found: Any) -> Position:
    """The state holds the items: their places are found by drawing from the beginning."""
    origin, size = arguments["origin"], arguments["buffer_size"]
    place, words = _drawn(arguments, found["random_state"])
    if place != origin:
        raise InvalidState("the generator of this state is too far from its seed")
    stream, arrived = Words(arguments["seed"], origin, 0), 0
    taken = np.zeros(size, bool)
    while stream.drawn < words:
        drawn = stream.tried(size, min(_AT_ONCE, words - stream.drawn))
        slots = drawn[drawn < size]
        taken[slots] = True
        arrived += len(slots)
        if stream.drawn == words and drawn[-1] >= size:
            raise InvalidState("the generator of this state is within a draw")
    flushed = int(taken.sum()) - sum(item is not None for item in found["buffer"])
    return _position(upstream, None), 0, arrived + flushed, origin, 0


def _prefetched(pipeline: Any, upstream: Any, arguments: Any, found: Any) -> Position:
    if "item_offset" in found:
        state, count = found["source_state"], found["item_offset"]
    else:  # of a ParallelMapIterator, which takes batches apart
        inner, count = found["source_state"], found["flattened_items_yielded"]
        state = None if inner is None else inner["source_state"]
    return _later(Pipeline(_unmapped(upstream)).machine, _position(upstream, state), count)


def _unmapped(pipeline: Pipeline[Any]) -> Any:
    """The stages before those that only map, whose functions need not be called."""
    calls = pipeline.calls
    return calls[:-1] if calls[-1].name == "map" else calls


def _zipped(pipeline: Any, upstream: Any, arguments: Any, found: Any) -> Position:
    return _several(arguments["pipelines"], found["input_states"]), 0


def _multiplexed(pipeline: Any, upstream: Any, arguments: Any, found: Any) -> Position:
    rest = _several(arguments["pipelines"], found["source_iterator_states"])
    return _position(arguments["control"], found["control_iterator_state"]), rest


def _several(pipelines: Any, states: Any) -> Position:
    if len(states) != len(pipelines):
        raise InvalidState(f"the state has {len(states)} sources, the iterator {len(pipelines)}")
    return tuple(map(_position, pipelines, states))


_READERS: dict[str, Callable[[Any, Any, Any, Any], Position]] = {
    "batch": _of_source_state,
    "flat_map": _selected,
    "infinibatch_prefetch": _prefetched,
    "infinibatch_blocks": _blocks,
    "infinibatch_buckets": _buckets,
    "infinibatch_foreign": _foreign,
    "infinibatch_native": _native,
    "infinibatch_random": _random,
    "infinibatch_random_map": _random_map,
    "infinibatch_reservoir": _reservoir,
    "map": _passed_on,
    "multiplex": _multiplexed,
    "scan": _scanned,
    "shard": _sharded,
    "sliding_window": _windows,
    "zip": _zipped,
}

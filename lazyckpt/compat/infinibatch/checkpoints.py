"""Conversion of Infinibatch's own checkpoints to positions in the equivalent pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import lazyckpt as lz
from lazyckpt.compat.infinibatch.mersenne import Draws, located, origin_of, placed, restored
from lazyckpt.compat.infinibatch.stages import boxed, without_prefetch
from lazyckpt.core.checks import brief
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import within
from lazyckpt.core.user_state import freeze

Checkpoint = Mapping[str, Any]

_FAR = 1 << 27  # words after a seed that are searched for a generator's state


def converted(pipeline: lz.Pipeline[Any], found: Checkpoint) -> Position:
    """Return the position that a checkpoint of Infinibatch's own stands for.

    Raises:
        InvalidState: If it isn't a checkpoint of the equivalent iterator.
    """
    try:
        return _position(pipeline, found)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise lz.InvalidState(
            "neither a lazyckpt state nor a checkpoint of the same iterators in Infinibatch: "
            f"{brief(found)} ({error!r})"
        ) from None


def _position(pipeline: lz.Pipeline[Any], found: Any) -> Position:
    """Return the position of any checkpoint; None is the beginning."""
    machine, last = pipeline.machine, pipeline.calls[-1]
    if found is None:
        return machine.init(0)
    upstream: lz.Pipeline[Any] = lz.Pipeline(pipeline.calls[:-1])
    arguments = last.arguments

    def before() -> Position:
        return _position(upstream, found["source_state"])

    match last.name:
        case "infinibatch_native":
            return 0, found["num_items_yielded"]
        case "infinibatch_foreign":
            return 0, 0, freeze(found, type(arguments["iterator"]).__name__)
        case "shard" if arguments["contiguous"]:
            return (0, 0), found["num_items_yielded"]
        case "shard":
            return _permuted(upstream, found["random_state"], found["index"] - arguments["index"])
        case "map":
            return _position(upstream, found)
        case "batch":
            return before()
        case "sliding_window":
            return _later(upstream, before(), found["item_index"])
        case "flat_map" if "num_served" in found:  # batches that are cut, and perhaps shuffled
            cut = {"source_state": found["source_state"]}
            mixed = {"recurrent_state": found["random_state"], "source_state": cut}
            is_mixed = upstream.calls[-1].name == "infinibatch_random_map"
            start = _position(upstream, mixed if is_mixed else cut)
            return _later(pipeline, (start, 0), found["num_served"])
        case "flat_map":
            return _later(pipeline, (before(), 0), found["flattened_items_yielded"])
        case "scan":
            state = found["recurrent_state"]
            held = [state] if getattr(arguments["step"], "func", None) is boxed else state
            return before(), freeze(held, "scan")
        case "infinibatch_random_map":
            is_source = "random_state" in found  # a RandomIterator
            state = found["random_state" if is_source else "recurrent_state"]
            start = upstream.machine.init(0) if is_source else before()
            return start, *_drawn(arguments, state), freeze(state and state[2], "random.Random")
        case "infinibatch_reservoir":
            slots, size = len(found["buffer"]), arguments["buffer_size"]
            rest = without_prefetch(upstream).machine.flow(before())
            if slots > size or (slots < size and any(True for _ in rest)):  # it shrinks at the end
                raise lz.InvalidState(f"the state has a buffer of {slots}, the iterator of {size}")
            return upstream.machine.init(0), 0, *_refilled(arguments, found)
        case "infinibatch_prefetch" if "item_offset" in found:
            return _later(upstream, before(), found["item_offset"])
        case "infinibatch_prefetch":  # a ParallelMapIterator, which flattens batches
            mapped: lz.Pipeline[Any] = lz.Pipeline(upstream.calls[:-1])
            state = found["source_state"]
            start = _position(mapped, state and state["source_state"])
            return _later(mapped, start, found["flattened_items_yielded"])
        case "zip":
            return _several(arguments["pipelines"], found["input_states"]), 0
        case "multiplex":
            control = _position(arguments["control"], found["control_iterator_state"])
            states = found["source_iterator_states"]
            return ((control, *_several(arguments["pipelines"], states)),)
    raise KeyError(last.name)


def _several(pipelines: Any, states: Any) -> Position:
    if len(states) != len(pipelines):
        raise lz.InvalidState(f"the state has {len(states)} sources, the iterator {len(pipelines)}")
    return tuple(map(_position, pipelines, states))


def _later(pipeline: lz.Pipeline[Any], position: Position, count: int) -> Position:
    """Return the position `count` items later, which Infinibatch counts even at its end."""
    flow = without_prefetch(pipeline).machine.flow(position)
    passed = sum(1 for _ in islice(flow.pull, within("a checkpoint", count)))
    if 0 < passed < count:
        raise lz.InvalidState(f"the checkpoint is {count} items on, but there are only {passed}")
    return flow.snapshot()


def _drawn(arguments: Any, state: Any) -> tuple[int, int]:
    """Return the origin and the words of a generator."""
    seed, origin = arguments["seed"], origin_of(arguments["seed"])
    if state is None:
        return origin, 0
    return located(placed(seed, origin, 0).getstate(), origin, 0, restored(state).getstate(), _FAR)


def _permuted(upstream: lz.Pipeline[Any], state: Any, index: int) -> Position:
    """Return the position in permutations, or in a cycle.

    The index is counted from the last permutation drawn, and may be negative.
    """
    *calls, last = upstream.calls
    size, machine = len(calls[0].arguments["data"]), upstream.machine
    if last.name == "repeat":
        assert machine.skip is not None
        return machine.skip(machine.init(0), index % size)[0]
    if state is None:
        return machine.init(0)
    arguments = calls[-1].arguments
    origin, place = _drawn(arguments, state)
    later, index = divmod(index, size)
    if later < 0 and size > 1:  # one item takes no words
        draws, begins = Draws(arguments["seed"], origin, 0), [0]
        while begins[-1] < place:
            draws.random.shuffle(list(range(size)))
            begins.append(draws.mark[1])
        if begins[-1] != place or len(begins) <= -later:
            raise lz.InvalidState("this state's generator wasn't seeded with the iterator's seed")
        place = begins[later - 1]
    (before, _, _, spare), _ = machine.init(0)
    return _later(upstream, ((before, origin, place, spare), 0), index)


def _refilled(arguments: Any, found: Any) -> tuple[int, int, int]:
    """Return the items a buffer took and flushed, and its generator's mark before that."""
    size, arrived = arguments["buffer_size"], 0
    origin, words = _drawn(arguments, found["random_state"])
    if origin != origin_of(arguments["seed"]):
        raise lz.InvalidState("the generator of this state is too far from its seed")
    draw, taken = placed(arguments["seed"], origin, 0).getrandbits, set()
    for _ in range(words):
        slot = draw(size.bit_length())
        if slot < size:  # else a slot is drawn again
            arrived += 1
            taken.add(slot)
    flushed = len(taken) - sum(item is not None for item in found["buffer"])
    return arrived + flushed, origin, 0

"""Iterators that make other items of those they get."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from random import Random
from typing import Any

import lazyckpt as lz
from lazyckpt.compat.infinibatch.protocol import (
    Behind,
    Checkpoint,
    CheckpointableIterator,
    drawing,
    kept,
)
from lazyckpt.compat.infinibatch.stages import infinibatch_random_map
from lazyckpt.compat.infinibatch.twister import Seed, as_int
from lazyckpt.core.checks import Unfit, checked, function, optional
from lazyckpt.core.flow import Position
from lazyckpt.core.user_state import freeze, storable


class SelectManyIterator(Behind):
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
        super().__init__(source_iterator, lz.flat_map(selector or _itself))

    def _position(self, found: Checkpoint) -> Position:
        return self._within(found["source_state"], found["flattened_items_yielded"])


def _itself(item: Any) -> Any:
    return item


class MapIterator(Behind):
    """`transform(item)` for every item.

    [Q] It begins where its source is, and `setstate(None)` goes to the source's
    beginning, as in Infinibatch; the source itself stays where it is. The state's
    position has no layer for it, its description of the pipeline has.
    [D] A StopIteration raised by `transform` is a `PipelineError`.
    """

    def __init__(
        self, source_iterator: CheckpointableIterator, transform: Callable[[Any], Any]
    ) -> None:
        super().__init__(source_iterator, lz.map(transform), begin=kept(source_iterator))

    def _position(self, found: Checkpoint) -> Position:
        return self._upstream(found)


class RecurrentIterator(Behind):
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
        step, first = step_function, initial_state
        try:
            storable(first)
        except Unfit:
            step, first = _Boxed(step_function, deepcopy(initial_state)), []
        super().__init__(source_iterator, lz.scan(step, first))

    def _position(self, found: Checkpoint) -> Position:
        state = found["recurrent_state"]
        held = [state] if isinstance(self._pipeline.calls[-1].arguments["step"], _Boxed) else state
        return self._upstream(found["source_state"]), freeze(held, "scan")


class _Boxed:
    """A step whose first state is no value of a state: it goes in a list."""

    def __init__(self, step: Callable[[Any, Any], tuple[Any, Any]], first: Any) -> None:
        self.step, self.first = step, first

    def __call__(self, held: list[Any], item: Any) -> tuple[list[Any], Any]:
        state, output = self.step(held[0] if held else deepcopy(self.first), item)
        return [state], output


class SamplingRandomMapIterator(Behind):
    """`transform(random, item)` for every item, with one `random.Random(seed)` for all.

    [D] With `seed=None` the seed drawn is in the state.

    State: the source's, and how many random words were drawn; where `transform`
    gives the generator another seed or state, all its 624 words, 5 KB.
    """

    def __init__(
        self,
        source_iterator: CheckpointableIterator,
        transform: Callable[[Random, Any], Any],
        seed: Seed = 0,
    ) -> None:
        name = "SamplingRandomMapIterator"
        fn = checked(name, "transform", transform, function)
        super().__init__(source_iterator, infinibatch_random_map(fn, **drawing(name, seed)))

    def _position(self, found: Checkpoint) -> Position:
        state = found["recurrent_state"]
        words = self._drawn(state)
        return self._upstream(found["source_state"]), *words, as_int(state[2])

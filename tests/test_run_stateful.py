"""A run, stepped, snapshotted, restored, branched and serialised at random."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

import lazyckpt as lz
from lazyckpt.testing import equal, strategies
from lazyckpt.testing.laws import room_of_states

ENOUGH = 80


class Walks(RuleBasedStateMachine):
    """However one gets to a state, what follows is the rest of the list."""

    states = Bundle("states")

    @initialize(pipeline=strategies.pipelines(), target=states)
    def begin(self, pipeline: lz.Pipeline[Any]) -> lz.State:
        self.pipeline = pipeline
        self.expected = list(islice(pipeline, ENOUGH))
        self.is_whole = len(self.expected) < ENOUGH
        self.run = lz.run(pipeline)
        return lz.init(pipeline)

    def check(self, number: int, item: Any) -> None:
        assert equal(item, self.expected[number]), (number, item, self.expected[number])

    @rule(count=st.integers(1, 5))
    def go_on(self, count: int) -> None:
        for _ in range(count):
            number = self.run.state.items
            if number >= ENOUGH:
                return
            item = next(self.run, lz.errors.Exhausted)
            if item is lz.errors.Exhausted:
                assert self.is_whole
                assert number == len(self.expected)
                return
            self.check(number, item)
            assert self.run.state.items == number + 1

    @rule(count=st.integers(0, 5))
    def loop_and_leave(self, count: int) -> None:
        number = self.run.state.items
        for item in islice(self.run, min(count, ENOUGH - number)):
            self.check(number, item)
            number += 1

    @rule(target=states)
    def snapshot(self) -> lz.State:
        return self.run.state

    @rule(state=states)
    def restore(self, state: lz.State) -> None:
        self.run.load_state_dict(state.to_dict())
        assert self.run.state == state

    @rule(state=states)
    def branch(self, state: lz.State) -> None:
        self.run = lz.run(self.pipeline, state)

    @rule(state=consumes(states), target=states)
    def serialise(self, state: lz.State) -> lz.State:
        copy = lz.State.from_json(json.dumps(json.loads(state.to_json()), indent=1))
        assert copy == state
        assert hash(copy) == hash(state)
        return copy

    @rule(state=states, target=states)
    def step(self, state: lz.State) -> Any:
        if state.items >= ENOUGH:
            return multiple()
        try:
            after, item = lz.step(self.pipeline, state)
        except lz.errors.Exhausted as end:
            assert self.is_whole
            assert state.items == len(self.expected)
            return end.state
        self.check(state.items, item)
        return after

    @rule()
    def close_and_enter(self) -> None:
        before = self.run.state
        self.run.close()
        assert self.run.state == before
        self.run.__enter__()

    @invariant()
    def states_are_small(self) -> None:
        with_own = room_of_states(self.pipeline) + 500
        assert len(self.run.state.to_json()) <= with_own


TestWalks = Walks.TestCase

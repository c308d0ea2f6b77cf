"""A tracked run: items taken, finished, returned, late, saved and resumed at random."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing import equal, strategies

MOST = 30
TIMEOUT = 10
STEPS = 35


def odd(x: int) -> int:
    if x % 3 == 0:
        raise ValueError(x)
    return x


def numbers(ranges: Iterable[tuple[int, int]]) -> set[int]:
    return {*chain.from_iterable(range(start, stop) for start, stop in ranges)}


class Tracking:
    """A tracked run next to a model of it: sets of numbers."""

    def __init__(self, start: Callable[[], lz.Run[Any]], most: int, dice: random.Random) -> None:
        self.start, self.most, self.dice = start, most, dice
        self.now = 0
        self.saved: list[tuple[str, set[int]]] = []
        self.old: list[tuple[lz.types.Ticket, str]] = []  # tickets that are refused, and why
        self.new: dict[int, lz.types.Ticket] = {}
        with start() as run:
            self.expected = list(run)
        self.resume(None, set())

    def resume(self, state: str | None, finished: set[int]) -> None:
        self.old += [(ticket, "") for ticket in self.new.values()]
        self.old = [(ticket, "another run|before a resume") for ticket, _ in self.old[-20:]]
        self.finished, self.bound = set(finished), self.most
        if state is not None:
            found = lz.State.from_json(state)
            assert isinstance(found, lz.types.TrackedState)
            self.bound = max(self.most, len(found.finished))
        self.new = {}
        self.given_at: dict[int, int] = {}
        self.due: set[int] = set()
        self.next = 0
        if state is not None and self.dice.random() < 0.5:
            self.tracked.load_state_dict(json.loads(state))
            return
        if state is not None:
            self.tracked.close()
        self.tracked = lz.tracked(
            self.start(), state, max_in_flight=self.most, timeout=TIMEOUT, max_wait=0,
            clock=lambda: self.now,
        )  # fmt: skip

    def wanted(self) -> int | None:
        """The item that comes next."""
        late = {n for n, at in self.given_at.items() if at + TIMEOUT <= self.now}
        if self.due | late:
            return min(self.due | late)
        number = self.next
        while number in self.finished:
            number += 1
        return number if number < len(self.expected) and len(self.new) < self.most else None

    def take(self) -> None:
        number = self.wanted()
        if number is None:
            is_over = len(self.finished) == len(self.expected)
            with pytest.raises(StopIteration if is_over else lz.errors.TooManyInFlight):
                next(self.tracked)
            return
        ticket, item = next(self.tracked)
        assert ticket.number == number
        assert equal(item, self.expected[number])
        if number in self.given_at:
            self.old.append((self.new[number], "out of date"))
            del self.given_at[number]
        self.due.discard(number)
        self.new[number] = ticket
        self.given_at[number] = self.now
        self.next = max(self.next, number + 1)

    def ack(self) -> None:
        if not self.given_at:
            return
        number = self.dice.choice([*self.given_at])
        ticket = self.new.pop(number)
        del self.given_at[number]
        self.tracked.ack(json.loads(json.dumps(ticket)) if number % 2 else ticket)
        self.finished.add(number)
        self.old = [(each, "used" if each[:3] == ticket[:3] else why) for each, why in self.old]
        self.old.append((ticket, "used"))

    def nack(self) -> None:
        if not self.given_at:
            return
        number = self.dice.choice([*self.given_at])
        self.tracked.nack(self.new[number])
        self.old.append((self.new[number], "out of date"))
        del self.given_at[number]
        self.due.add(number)

    def refused(self) -> None:
        for ticket, why in self.old:
            with pytest.raises(lz.errors.TicketError, match=why):
                self.dice.choice([self.tracked.ack, self.tracked.nack])(ticket)

    def wait(self) -> None:
        self.now += self.dice.choice([1, TIMEOUT // 2, TIMEOUT])

    def save(self) -> None:
        self.saved.append((self.tracked.state.to_json(), set(self.finished)))

    def go_on(self) -> None:
        self.save()
        self.resume(*self.saved[-1])

    def go_back(self) -> None:
        if self.saved:
            self.resume(*self.dice.choice(self.saved))

    def close_and_enter(self) -> None:
        self.tracked.close()
        self.tracked.__enter__()

    def check(self) -> None:
        """The state lists the finished items in few ranges, and survives JSON."""
        state = self.tracked.state
        found = numbers((state.items + a, state.items + b) for a, b in state.finished)
        assert {*range(state.items)} | found == self.finished
        assert len(state.finished) <= self.bound
        assert lz.State.from_json(state.to_json()) == state
        assert lz.State.from_dict(self.tracked.state_dict()) == state

    def finish(self) -> None:
        """The remaining items come in order, each item once."""
        with lz.tracked(self.start(), self.tracked.state, max_in_flight=1) as rest:
            given = []
            for ticket, item in rest:
                given.append(ticket.number)
                assert equal(item, self.expected[ticket.number])
                rest.ack(ticket)
        assert given == [n for n in range(len(self.expected)) if n not in self.finished]
        self.tracked.close()


def walk(tracking: Tracking) -> None:
    often = [tracking.take] * 6 + [tracking.ack] * 4
    rules = [
        *often, tracking.nack, tracking.wait, tracking.go_on, tracking.save, tracking.go_back,
        tracking.refused, tracking.close_and_enter,
    ]  # fmt: skip
    for _ in range(STEPS):
        tracking.dice.choice(rules)()
        tracking.check()
    tracking.finish()


streams = st.integers(5, MOST).map(lambda n: lz.source(range(n)) | lz.filter(bool))
tables = st.integers(5, MOST).map(lambda n: lz.source(range(n)) | lz.shuffle(seed=n))
executors = st.sampled_from([None, None, None, lz.threads(2, buffer_size=3)])
seeds = st.integers(0, 2**32)
few = settings(max_examples=settings().max_examples // 2)  # each is a walk


@few
@given(strategies.pipelines() | streams | tables, executors, st.integers(1, 8), seeds)
def test_every_item_is_finished_once(pipeline: Any, executor: Any, most: int, seed: int) -> None:
    pipeline = pipeline | lz.take(MOST)
    walk(Tracking(lambda: lz.run(pipeline, executor=executor), most, random.Random(seed)))


@few
@given(st.integers(0, 45), executors, st.integers(1, 8), seeds)
def test_and_what_fails_is_left_out(size: int, executor: Any, most: int, seed: int) -> None:
    pipeline = lz.source(range(size)) | lz.map(odd)
    walk(
        Tracking(
            lambda: lz.run(pipeline, executor=executor, on_error="skip"), most, random.Random(seed)
        )
    )

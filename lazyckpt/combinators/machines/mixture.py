"""`Mixture`: machines of which one gives each item, under `mix`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain, compress, islice
from operator import ne
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from lazyckpt.combinators.machines.join import named
from lazyckpt.combinators.machines.proportions import (
    Choices,
    Proportions,
    Scheduled,
    Weights,
    random_choices,
)
from lazyckpt.combinators.repeat import repeated
from lazyckpt.combinators.schedule import known_weights
from lazyckpt.core.checks import brief
from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import EPOCH_BITS, End, Machine, Rate, within
from lazyckpt.core.prng import derive
from lazyckpt.core.stages import joining
from lazyckpt.errors import InvalidState

A = TypeVar("A")

Stop: TypeAlias = Literal[
    "first_exhausted", "all_exhausted", "all_exhausted_without_replacement", "never"
]
RESTARTING = ("all_exhausted", "never")
DROPPING = "all_exhausted_without_replacement"


class Mixture(Generic[A]):
    """Machines of which one gives each item, as a machine.

    Its own part: how many items each has given, with those of pipelines that are
    gone behind them; and whether the end was reached. Where pipelines drop out, that is
    a bit for each that has, the lowest for the first.
    """

    def __init__(
        self,
        machines: Sequence[Machine[A]],
        weights: Weights | Scheduled,
        seed: int | None,
        stop: Stop,
        deterministic: bool,
    ) -> None:
        self.machines = machines
        self.again: list[Machine[A]] = [
            repeated(each, None, f"mix: {named(n)}") for n, each in enumerate(machines)
        ]
        self.weights, self.seed, self.stop = weights, seed, stop
        self.proportions = Proportions(weights) if deterministic and not callable(weights) else None
        self.restarts = stop in RESTARTING
        self.drops = stop == DROPPING
        self.shift = EPOCH_BITS if self.restarts else 0
        rows = known_weights(weights)
        self.needed = [not rows or any(row[n] for row in rows) for n in range(len(machines))]
        needed = sum(is_needed << n for n, is_needed in enumerate(self.needed))
        self.last = needed if self.drops else 1
        ahead = self.again if self.restarts else machines
        self.jumps = [each.skip for each in ahead if each.skip is not None]

    def machine(self) -> Machine[A]:
        has_access = self.has_access()
        return joining(
            "mix",
            self.machines,
            first=((0,) * len(self.machines), 0),
            check=self.check,
            init=self.init,
            epoch=self.epoch,
            rate=Rate(epochs=math.inf),
            step=self.step,
            flow=self.flow,
            skip=self.skip if has_access else None,
            length=self.length(has_access),
            choices=self.choices,
        )

    def check(self, counts: Any, ended: int) -> None:
        given = [within("mix", each) for each in counts]
        own, gone = given[: len(self.machines)], given[len(self.machines) :]
        most = (1 << len(self.machines)) - 1 if self.drops else 1
        within("mix", ended, most), within("mix", sum(given)), within("mix", len(gone), 1)
        proportions = self.proportions
        if len(own) < len(self.machines) or not (proportions is None or proportions.fits(given)):
            raise InvalidState(f"mix: counts {brief(counts)} are none of these weights")

    def is_first(self, number: int, place: Position) -> bool:
        """Whether a pipeline is in the pass whose end counts."""
        return not self.restarts or (
            self.stop == "all_exhausted"
            and not self.machines[number].epoch(place) % (1 << EPOCH_BITS)
        )

    def is_over(self, ended: int) -> bool:
        """Whether the end was reached."""
        return ended & self.last == self.last

    def is_last(self, number: int, places: Sequence[Position]) -> bool:
        """Whether the end of this pipeline is the end of all, where none drops out."""
        return self.stop == "first_exhausted" or not any(
            self.is_first(other, place)
            for other, place in enumerate(places)
            if other != number and self.needed[other]
        )

    def ended_with(self, number: int, places: Sequence[Position], ended: int) -> int:
        """What of the own part notes the end, once this pipeline has ended too."""
        return ended | 1 << number if self.drops else int(self.is_last(number, places))

    def begun_again(self, number: int, end: Position) -> Position:
        machine = self.machines[number]
        return machine.init(machine.epoch(end) + 1)

    def chooser(self, position: Position) -> Choices:
        if self.proportions is not None:
            return self.proportions.choices()
        assert self.seed is not None
        key = derive(self.seed, "mix", self.epoch(position))
        dropped = position[2] if self.drops and not self.is_over(position[2]) else 0
        return random_choices(self.weights, len(self.machines), key, dropped)

    def choices(self, position: Position, n: int) -> Iterator[int]:
        counts, numbers = position[1], [*range(len(self.machines))]
        if self.proportions is not None and self.proportions.pattern is None:  # counts decide
            return islice(self.chooser(position).ahead(sum(counts), counts, numbers), n, None)
        return self.chooser(position).ahead(sum(counts) + n, counts, numbers)

    def epoch(self, position: Position) -> int:
        return self.machines[0].epoch(position[0][0]) >> self.shift

    def init(self, epoch: int) -> Position:
        places = tuple([each.init(epoch << self.shift) for each in self.machines])
        return places, (0,) * len(self.machines), 0

    def step(self, position: Position) -> tuple[Position, A]:
        (*places,), (*counts,), ended = position
        while not self.is_over(ended):
            number = self.chooser((places, counts, ended)).one(sum(counts), counts)
            is_first = self.is_first(number, places[number])
            machine = (self.machines if is_first else self.again)[number]
            try:
                places[number], item = machine.step(places[number])
            except End as end:
                ended = self.ended_with(number, places, ended)
                is_left = self.drops or self.is_over(ended)
                places[number] = end.position if is_left else self.begun_again(number, end.position)
            else:
                counts[number] += 1
                return (tuple(places), tuple(counts), ended), item
        raise End((tuple(places), tuple(counts), ended))

    def flow(self, position: Position) -> Flow[A]:
        places, counts, ended = position
        width, again = len(self.machines), self.again
        before, gone, begin = list(counts[:width]), counts[width:], sum(counts)
        if self.stop == "all_exhausted" and not ended and self.is_last(-1, places):
            raise InvalidState("mix: a state in which all have ended, and the stream has not")
        flows = [
            (self.machines if self.is_first(number, place) else again)[number].flow(place)
            for number, place in enumerate(places)
        ]
        streams, taken = map(list, zip(*map(counted, flows), strict=True))
        there, noted = list(places), counts  # positions, where so many items of each were taken

        def given() -> tuple[int, ...]:
            return (*[had + some() for had, some in zip(before, taken, strict=True)], *gone)

        def passes() -> Iterator[Iterator[A]]:
            """The items until the chosen pipeline has ended, then until the next one has."""
            nonlocal ended, there, noted
            now, place = counts, begin
            while not self.is_over(ended):
                choices = self.chooser((position[0], now, ended))
                yield map(next, choices.ahead(place, now, streams))
                now, here = given(), [each.snapshot() for each in flows]
                place = sum(now)
                number = choices.one(place, now)
                ended = self.ended_with(number, here, ended)
                if not self.drops and not self.is_over(ended):
                    here[number] = self.begun_again(number, here[number])
                    flows[number] = again[number].flow(here[number])
                    streams[number], taken[number] = counted(flows[number])
                    before[number] = now[number]
                there, noted = here, now

        def snapshot() -> Position:
            nonlocal noted
            now = given()
            for number in compress(range(width), map(ne, now, noted)):
                there[number] = flows[number].snapshot()
            noted = now
            return tuple(there), now, ended

        items = chain.from_iterable(passes())
        return Flow(items, snapshot, taken=lambda: sum(given()) - begin)

    def skip(self, position: Position, n: int) -> tuple[Position, int]:
        assert self.proportions is not None
        here, counts, ended = position
        begin = sum(counts)
        if ended:
            return position, 0
        place, number = self._ending(here, counts, n)
        passed = int(min(n, place - begin))
        wanted = self.proportions.counts(begin + passed)
        after = [
            jump(state, want - had)[0]
            for jump, state, want, had in zip(self.jumps, here, wanted, counts, strict=True)
        ]
        if passed < n:
            jump = self.machines[number].skip
            assert jump is not None
            after[number] = jump(here[number], wanted[number] - counts[number] + 1)[0]
        return (tuple(after), tuple(wanted), int(passed < n)), passed

    def _ending(
        self, here: Sequence[Position], counts: Sequence[int], n: int
    ) -> tuple[int | float, int]:
        """Where the stream ends, if within n items, and which pipeline ends it."""
        assert self.proportions is not None
        found = []
        for number, (state, had) in enumerate(zip(here, counts, strict=True)):
            jump = self.machines[number].skip
            assert jump is not None
            if self.needed[number] and self.is_first(number, state):
                left = jump(state, n)[1]
                place = self.proportions.place(number, had + left) if left < n else math.inf
                found.append((place, number))
        pick = min if self.stop == "first_exhausted" else max
        return pick(found, default=(math.inf, 0))

    def has_access(self) -> bool:
        return (
            self.proportions is not None
            and self.proportions.pattern is not None
            and len(self.jumps) == len(self.machines)
            and all(each.length is not None for each in self.machines)
        )

    def length(self, has_access: bool) -> int | float | None:
        if self.stop == "never":
            return math.inf
        if self.drops:
            lengths = [each.length for each in compress(self.machines, self.needed)]
            known = [each for each in lengths if each is not None]
            return sum(known) if len(known) == len(lengths) else None
        if not has_access or self.proportions is None:
            return None
        ends = [
            math.inf
            if each.length == math.inf
            else self.proportions.place(n, int(each.length or 0))
            for n, each in enumerate(self.machines)
            if self.needed[n]
        ]
        return (min if self.stop == "first_exhausted" else max)(ends)

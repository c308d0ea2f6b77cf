"""`Mixture`: the machine of `mix`, which takes each item from one of several machines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain, compress, groupby, islice
from operator import ne
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from lazyckpt.combinators.machines.join import named
from lazyckpt.combinators.machines.proportions import (
    Choices,
    Draws,
    Proportions,
    Scheduled,
    Weights,
    random_choices,
)
from lazyckpt.combinators.machines.repeated import repeated
from lazyckpt.combinators.machines.schedules import Schedule, known_weights
from lazyckpt.core.checks import brief
from lazyckpt.core.flow import Flow, Position, close_stream, picking
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
_FEW = 16  # items in a row that are computed alone
_SINGLY = 4  # items for which reading one by one is faster than counting
_AHEAD = 1 << 12  # items requested ahead in one call
_NO_LIMIT = 1 << 62  # items: more than a run ever asks for


class Alone(Generic[A]):
    """The items of a machine with random access, if few are needed: each is computed alone.

    Attributes:
        flow: The items from the current position.
    """

    def __init__(
        self,
        machine: Machine[A],
        position: Position,
        passed: NDArray[np.int64],
        known: NDArray[np.int64],
    ) -> None:
        """Begin at a position.

        Args:
            machine: The machine.
            position: The position.
            passed: An array of one element: the number of items passed since, read or skipped.
            known: The same for a number of items that exist.
        """
        assert machine.skip is not None
        self._machine, self._skip, self._begin = machine, machine.skip, position
        self._passed, self._known, self._ends = passed, known, 0
        self._passed[0] = self._known[0] = 0
        self.flow = Flow[A](self._items(), self._position, taken=self._taken)

    def _taken(self) -> int:
        return int(self._passed[0])

    def left(self, n: int) -> int:
        """Return how many of the next n items exist."""
        taken = self._taken()
        if taken + n > self._known[0]:
            self._known[0] = self._skip(self._begin, taken + n + _AHEAD)[1]
        return min(n, int(self._known[0]) - taken)

    def _items(self) -> Iterator[A]:
        in_a_row = 0
        while self.left(1):
            is_dense = in_a_row >= _FEW  # then a flow is faster
            for item in self._machine.flow(self._position()) if is_dense else [self._alone()]:
                self._passed[0] += 1
                here, in_a_row = self._taken(), in_a_row + 1
                yield item
                if self._taken() != here:  # some were skipped
                    in_a_row = 0
                    break
        self._ends = 1

    def _alone(self) -> A:
        assert self._machine.item is not None
        try:
            return self._machine.item(self._begin, self._taken())
        except IndexError:
            if self._machine.view is not None:
                self._machine.view.ahead(self._begin, range(0))  # raises if the data have changed
            raise

    def _position(self) -> Position:
        steps = self._taken() + self._ends
        return self._skip(self._begin, steps)[0] if steps else self._begin


class Mixture(Generic[A]):
    """A machine that takes each item from one of several machines.

    Its own part of the position has two elements:

    - the number of items taken from each machine, followed by those of removed pipelines
    - an int: bit 0 is 1 at the end of the stream. If pipelines drop out, it has instead one bit
      per pipeline that has ended, the lowest for the first. With exact proportions, the bits above
      bit 0 are the number of items before the current proportions began.
    """

    def __init__(
        self,
        machines: Sequence[Machine[A]],
        weights: Weights | Schedule[Any] | Scheduled,
        seed: int | None,
        stop: Stop,
        deterministic: bool,
    ) -> None:
        self.machines = machines
        self.again: list[Machine[A]] = [
            repeated(each, None, f"mix: {named(n)}") for n, each in enumerate(machines)
        ]
        self.weights, self.seed, self.stop = weights, seed, stop
        points: Any = weights.points if isinstance(weights, Schedule) else ((0, weights),)
        self.proportions = Proportions(points) if deterministic else None
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
        within("mix", sum(given)), within("mix", len(gone), 1)
        most = (1 << len(self.machines)) - 1 if self.drops else 1
        within("mix", ended, 2 * sum(given) + 1 if self.proportions is not None else most)
        if len(own) < len(self.machines) or not self.fits(given, ended):
            raise InvalidState(f"mix: counts {brief(counts)} can't result from these weights")

    def fits(self, counts: Sequence[int], ended: int) -> bool:
        """Return whether these numbers of items per machine are possible."""
        if self.proportions is None:
            return True
        before = self.before(counts, ended)
        return min(before) >= 0 and sum(before) + sum(counts[len(before) :]) == ended >> 1

    def before(self, counts: Sequence[int], ended: int) -> list[int]:
        """Return the number of items of each machine before the current proportions began."""
        assert self.proportions is not None
        since = self.proportions.counts(sum(counts), ended >> 1)
        return [had - each for had, each in zip(counts, since, strict=False)]

    def is_first(self, number: int, position: Position) -> bool:
        """Return whether a pipeline is in a pass whose end may end the stream."""
        return not self.restarts or (
            self.stop == "all_exhausted"
            and not self.machines[number].epoch(position) % (1 << EPOCH_BITS)
        )

    def is_over(self, ended: int) -> bool:
        """Return whether the end was reached."""
        return ended & self.last == self.last

    def is_last(self, number: int, positions: Sequence[Position]) -> bool:
        """Return whether the stream ends with this pipeline, if none drops out."""
        return self.stop == "first_exhausted" or not any(
            self.is_first(other, position)
            for other, position in enumerate(positions)
            if other != number and self.needed[other]
        )

    def ended_with(self, number: int, positions: Sequence[Position], ended: int) -> int:
        """Return `ended`, the second element of the own part, after this pipeline has ended."""
        return ended | (1 << number if self.drops else self.is_last(number, positions))

    def begun_again(self, number: int, end: Position) -> Position:
        machine = self.machines[number]
        return machine.init(machine.epoch(end) + 1)

    def chooser(self, position: Position) -> Choices:
        if self.proportions is not None:
            return self.proportions.choices(position[2] >> 1)
        assert self.seed is not None
        key = derive(self.seed, "mix", self.epoch(position))
        dropped = position[2] if self.drops and not self.is_over(position[2]) else 0
        weights = self.weights
        ends = weights.ends if isinstance(weights, Schedule) and weights.points else None
        return random_choices(weights, len(self.machines), key, dropped, ends)

    def choices(self, position: Position, n: int) -> Iterator[int]:
        return iter(Draws(self.chooser(position), sum(position[1]) + n))

    def epoch(self, position: Position) -> int:
        return self.machines[0].epoch(position[0][0]) >> self.shift

    def init(self, epoch: int) -> Position:
        positions = tuple([each.init(epoch << self.shift) for each in self.machines])
        return positions, (0,) * len(self.machines), 0

    def step(self, position: Position) -> tuple[Position, A]:
        (*positions,), (*counts,), ended = position
        while not self.is_over(ended):
            number = self.chooser((positions, counts, ended)).one(sum(counts))
            is_first = self.is_first(number, positions[number])
            machine = (self.machines if is_first else self.again)[number]
            try:
                positions[number], item = machine.step(positions[number])
            except End as end:
                ended = self.ended_with(number, positions, ended)
                is_left = self.drops or self.is_over(ended)
                positions[number] = (
                    end.position if is_left else self.begun_again(number, end.position)
                )
            else:
                counts[number] += 1
                return (tuple(positions), tuple(counts), ended), item
        raise End((tuple(positions), tuple(counts), ended))

    def flow(self, position: Position) -> Flow[A]:
        positions, counts, ended = position
        width = len(self.machines)
        before, gone, begin = list(counts[:width]), counts[width:], sum(counts)
        if self.stop == "all_exhausted" and not self.is_over(ended) and self.is_last(-1, positions):
            raise InvalidState("mix: in the state all pipelines have ended, but the stream has not")
        machines = [
            (self.machines if self.is_first(number, inner) else self.again)[number]
            for number, inner in enumerate(positions)
        ]
        flows = [each.flow(inner) for each, inner in zip(machines, positions, strict=True)]
        streams, taken, picks = map(list, zip(*map(picking, flows), strict=True))
        jumping: dict[int, Alone[A]] = {}  # some items of these have been skipped
        # How many items of each of these were passed, and are known to exist.
        passed, known = np.zeros(width, np.int64), np.full(width, _NO_LIMIT)
        there, noted = [*positions], [*counts]  # positions after these numbers of items
        draws = Draws(self.chooser(position), begin)

        def given() -> tuple[int, ...]:
            return (*[had + some() for had, some in zip(before, taken, strict=True)], *gone)

        def replace(number: int, flow: Flow[A]) -> None:
            before[number] += taken[number]()
            flows[number] = flow
            streams[number], taken[number], picks[number] = picking(flow)

        def jump(number: int) -> None:
            """Compute the items of a machine alone from now on, if it has random access."""
            if self.machines[number].item is not None and machines[number].skip is not None:
                here, place = flows[number].snapshot(), slice(number, number + 1)
                jumping[number] = Alone(machines[number], here, passed[place], known[place])
                close_stream(flows[number])
                replace(number, jumping[number].flow)

        def end_pass() -> None:
            """Continue without the chosen pipeline, which has ended, or with its next epoch."""
            nonlocal ended, there, noted
            now, here = given(), [each.snapshot() for each in flows]
            number = self.chooser((position[0], now, ended)).one(sum(now))
            ended = self.ended_with(number, here, ended)
            is_over = self.is_over(ended)
            if not self.drops and not is_over:
                here[number] = self.begun_again(number, here[number])
                machines[number] = self.again[number]
                jumping.pop(number, None)
                known[number] = _NO_LIMIT
                replace(number, machines[number].flow(here[number]))
            there, noted = here, [*now]
            draws.restart(None if is_over else self.chooser((position[0], now, ended)), sum(now))

        def items() -> Iterator[Iterator[A]]:
            chosen = map(next, map(streams.__getitem__, draws))
            while not self.is_over(ended):
                yield chosen  # until the chosen pipeline has ended, then until the next one has
                if not self.is_over(ended):
                    end_pass()

        def pick(n: int, index: int) -> tuple[int, list[A]]:
            found, own = 0, list[A]()
            while found < n and not self.is_over(ended):
                numbers = draws.take(n - found)
                take = pick_each if n <= _SINGLY and not jumping else pick_one
                some = take(numbers, index - found, own)
                found += some
                if some < len(numbers):
                    end_pass()
            return found, own

        def pick_each(numbers: NDArray[np.int64], index: int, own: list[A]) -> int:
            """Do as `pick` for few items, one after another."""
            for count, number in enumerate(numbers.tolist()):
                some, made = picks[number](1, 0 if count == index else -1)
                if not some:
                    return count
                own += made
            return len(numbers)

        def pick_one(numbers: NDArray[np.int64], index: int, own: list[A]) -> int:
            """Take an item of the pipeline of each of these numbers, until one has ended.

            Only the item at `index` is computed, if others can be skipped.
            """
            counts, size = np.bincount(numbers, minlength=width), len(numbers)
            if len(jumping) < width:
                for number in (counts * (known == _NO_LIMIT)).nonzero()[0].tolist():
                    jump(number)
            for number in (passed + counts > known).nonzero()[0].tolist():
                left = jumping[number].left(wanted := int(counts[number]))
                if left < wanted:
                    size = min(size, int(np.flatnonzero(numbers == number)[left]))
            made = [index] if 0 <= index < size else []
            if len(jumping) < width:  # items of other pipelines are read, in order
                is_made = (known == _NO_LIMIT)[numbers[:size]]
                is_made[made] = True
                made = is_made.nonzero()[0].tolist()
            for (is_own, number), run in groupby(made, lambda at: (at == index, int(numbers[at]))):
                places = [*run]
                if not is_own:
                    some = picks[number](len(places), -1)[0]
                else:
                    if number in jumping:
                        own_before = int(np.count_nonzero(numbers[:index] == number))
                        passed[number] += own_before
                        counts[number] -= own_before + 1
                    own += islice(streams[number], 1)
                    some = len(own)
                if some < len(places):
                    size = places[some]
                    break
            if size < len(numbers):
                counts -= np.bincount(numbers[size:], minlength=width)
            passed[:] += counts
            return size

        def snapshot() -> Position:
            nonlocal noted
            index, number = draws.last()
            drawn = index - sum(noted)
            if drawn == 1 and before[number] + taken[number]() == noted[number] + 1:
                there[number] = flows[number].snapshot()  # no other has changed
                noted[number] += 1
            elif drawn:
                now = given()
                for number in compress(range(width), map(ne, now, noted)):
                    there[number] = flows[number].snapshot()
                noted = [*now]
            return tuple(there), tuple(noted), ended

        return Flow(
            chain.from_iterable(items()),
            snapshot,
            taken=lambda: sum(given()) - begin,
            pick=pick,
        )

    def skip(self, position: Position, n: int) -> tuple[Position, int]:
        assert self.proportions is not None
        here, counts, ended = position
        begin, since = sum(counts), ended >> 1
        if self.is_over(ended):
            return position, 0
        before = self.before(counts, ended) if since else [0] * len(here)
        place, number = self._ending(here, counts, before, since, n)
        passed = int(min(n, place - begin))
        chosen = self.proportions.counts(begin + passed, since)
        wanted = [had + each for had, each in zip(before, chosen, strict=True)]
        after = [
            jump(state, want - had)[0]
            for jump, state, want, had in zip(self.jumps, here, wanted, counts, strict=False)
        ]
        is_over = passed < n
        if is_over:
            jump = self.machines[number].skip
            assert jump is not None
            after[number] = jump(here[number], wanted[number] - counts[number] + 1)[0]
        return (tuple(after), (*wanted, *counts[len(here) :]), ended | is_over), passed

    def _ending(
        self,
        here: Sequence[Position],
        counts: Sequence[int],
        before: Sequence[int],
        since: int,
        n: int,
    ) -> tuple[int | float, int]:
        """Return where the stream ends, if within n items, and which pipeline ends it."""
        assert self.proportions is not None
        found = []
        for number, (state, had) in enumerate(zip(here, counts, strict=False)):
            jump = self.machines[number].skip
            assert jump is not None
            if self.needed[number] and self.is_first(number, state):
                left, taken = jump(state, n)[1], had - before[number]
                index: int | float = math.inf
                if left < n:
                    index = self.proportions.index_of(number, taken + left, since)
                found.append((index, number))
        pick = min if self.stop == "first_exhausted" else max
        return pick(found, default=(math.inf, 0))

    def has_access(self) -> bool:
        return (
            self.proportions is not None
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
            else self.proportions.index_of(n, int(each.length or 0))
            for n, each in enumerate(self.machines)
            if self.needed[n]
        ]
        return (min if self.stop == "first_exhausted" else max)(ends)


def has_proportions(weights: Weights | Schedule[Any] | Scheduled) -> bool:
    """Return whether weights are known in advance and constant between the points of a schedule."""
    is_stepped = isinstance(weights, Schedule) and weights.points and weights.interpolate is None
    return bool(is_stepped) or not callable(weights)

"""Several pipelines as one, by weight: `mix`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Generic, Literal, TypeVar

from lazyckpt.combinators.join import joined, named, several
from lazyckpt.combinators.mix_rebase import ROOM, rebased
from lazyckpt.combinators.proportions import Choices, Proportions, random_choices, weights_of
from lazyckpt.combinators.repeat import repeated
from lazyckpt.core.call import Chain
from lazyckpt.core.checks import boolean, brief, natural, one_of, optional, whole
from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import End, Machine, Rate, entered, within
from lazyckpt.core.prng import derive
from lazyckpt.core.stages import joining
from lazyckpt.decorators import source_combinator
from lazyckpt.errors import ArgumentError, InvalidState
from lazyckpt.pipeline import Pipeline
from lazyckpt.state.positions import places
from lazyckpt.state.rebase import matching
from lazyckpt.state.state import State, as_state

A = TypeVar("A")

Stop = Literal["first_exhausted", "all_exhausted", "never"]


def _weighing(value: Any) -> Any:
    return value if callable(value) else tuple(map(whole, weights_of(value)))


def _fitting(
    pipelines: tuple[Any, ...], weights: Any, seed: int | None, stop: str, deterministic: bool
) -> None:
    joined("mix", pipelines)
    if deterministic and callable(weights):
        raise ArgumentError("mix: deterministic=True wants fixed weights, got a function")
    if not deterministic and seed is None:
        raise ArgumentError("mix: seed must be given; only deterministic=True does without")
    if not callable(weights) and len(weights) != len(pipelines):
        raise ArgumentError(
            f"mix: as many weights as pipelines are needed, got {len(weights)} weights "
            f"for {len(pipelines)} pipelines"
        )
    for number, pipeline in enumerate(pipelines):
        used = callable(weights) or weights[number]
        if stop != "first_exhausted" and used and pipeline.machine.length == 0:
            raise ArgumentError(
                f"mix: {named(number)} is empty and can't begin again, stop={stop!r}"
            )


@source_combinator(
    checks={
        "pipelines": several,
        "weights": _weighing,
        "seed": optional(natural),
        "stop": one_of("first_exhausted", "all_exhausted", "never"),
        "deterministic": boolean,
    },
    validate=_fitting,
    rebasable={"pipelines": "stateless", "weights": "stateless"},
    rebase=rebased,
    branch=lambda here, own, *_, **__: own,
)
def mix(
    pipelines: Sequence[Pipeline[A]],
    weights: Sequence[float] | Callable[[int], Sequence[float]],
    *,
    seed: int | None = None,
    stop: Stop = "first_exhausted",
    deterministic: bool = False,
) -> Machine[A]:
    """Items of several pipelines, each item's chosen by weight.

    Args:
        pipelines: A state knows them by their data's lengths and their stages;
            `source(data, name=...)` tells like ones apart.
        weights: A number >= 0 for each, of any sum; or a function from the number of
            items so far to such numbers, a schedule.
        seed: An int >= 0; not needed with `deterministic`.
        stop: "first_exhausted" ends the stream when a pipeline is chosen that has ended.
            With "all_exhausted" and "never" that pipeline begins again, in its next epoch,
            until each (of a weight that isn't 0) has ended once, or forever.
        deterministic: By exact proportions instead of chance: after n items every pipeline
            has given its share of n, to within less than one item.

    Raises:
        ArgumentError: A pipeline to begin again is empty.
        PipelineError: A schedule's weights are negative, NaN, all 0 or of another number.

    State:
        That of each pipeline, a count of items of each (`mix_counts` reads them),
        and whether the end was reached.

    Resume:
        Re-reads what each of them does.

    Random access:
        With `deterministic`, where all have it and the shares have a common
        denominator up to 65,536.

    Rank-free:
        Where all are.

    Memory:
        With `deterministic`, one pattern of as many ints as that denominator.

    Source:
        The proportions are described at `lazyckpt.combinators.proportions`.

    >>> import lazyckpt as lz
    >>> web, books = lz.source(range(100)), lz.source(list("abcdefgh"))
    >>> list(lz.mix([web, books], [3, 1], deterministic=True) | lz.take(8))
    [0, 1, 'a', 2, 3, 4, 'b', 5]
    """
    machines = [pipeline.machine for pipeline in pipelines]
    given = weights if callable(weights) else tuple(weights)
    return Mixture(machines, given, seed, stop, deterministic).machine()


class Mixture(Generic[A]):
    """Machines of which one gives each item, as a machine.

    Its own part: how many items each has given, with those of pipelines that are
    gone behind them; and whether the end was reached.
    """

    def __init__(
        self,
        machines: Sequence[Machine[A]],
        weights: tuple[float, ...] | Callable[[int], Sequence[float]],
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
        self.shift = 0 if stop == "first_exhausted" else ROOM
        self.needed = [callable(weights) or weights[n] > 0 for n in range(len(machines))]
        ahead = machines if stop == "first_exhausted" else self.again
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
        within("mix", ended, 1), within("mix", sum(given)), within("mix", len(gone), 1)
        proportions = self.proportions
        if len(own) < len(self.machines) or not (proportions is None or proportions.fits(given)):
            raise InvalidState(f"mix: counts {brief(counts)} are none of these weights")

    def is_first(self, number: int, place: Position) -> bool:
        """Whether a pipeline is in the pass whose end counts."""
        return self.stop == "first_exhausted" or (
            self.stop == "all_exhausted" and not self.machines[number].epoch(place) & 0xFFFFFFFF
        )

    def is_last(self, number: int, places: Sequence[Position]) -> bool:
        """Whether the end of this pipeline is the end of all."""
        return self.stop == "first_exhausted" or not any(
            self.is_first(other, place)
            for other, place in enumerate(places)
            if other != number and self.needed[other]
        )

    def begun_again(self, number: int, end: Position) -> Position:
        machine = self.machines[number]
        return machine.init(machine.epoch(end) + 1)

    def chooser(self, position: Position) -> Choices:
        if self.proportions is not None:
            return self.proportions.choices()
        assert self.seed is not None
        key = derive(self.seed, "mix", self.epoch(position))
        return random_choices(self.weights, len(self.machines), key)

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
        if ended:
            raise End(position)
        number = self.chooser(position).one(sum(counts), counts)
        if self.is_first(number, places[number]):
            try:
                places[number], item = self.machines[number].step(places[number])
            except End as end:
                if self.is_last(number, places):
                    places[number] = end.position
                    raise End((tuple(places), tuple(counts), 1)) from None
                begun = self.begun_again(number, places[number])
                places[number], item = self.again[number].step(begun)
        else:
            places[number], item = self.again[number].step(places[number])
        counts[number] += 1
        return (tuple(places), tuple(counts), 0), item

    def flow(self, position: Position) -> Flow[A]:
        places, counts, ended = position
        width, again = len(self.machines), self.again
        before, gone = list(counts[:width]), counts[width:]
        if self.stop == "all_exhausted" and not ended and self.is_last(-1, places):
            raise InvalidState("mix: a state in which all have ended, and the stream has not")
        flows = [
            (self.machines if self.is_first(number, place) else again)[number].flow(place)
            for number, place in enumerate(places)
        ]
        streams, taken = map(list, zip(*map(counted, flows), strict=True))

        def given() -> tuple[int, ...]:
            return (*[had + some() for had, some in zip(before, taken, strict=True)], *gone)

        def passes() -> Iterator[Iterator[A]]:
            """The items until the chosen pipeline has ended, then until the next one has."""
            nonlocal ended
            choices, now = self.chooser(position), counts
            while not ended:
                yield map(next, choices.ahead(sum(now), now, streams))
                now, here = given(), [each.snapshot() for each in flows]
                number = choices.one(sum(now), now)
                if self.is_last(number, here):
                    ended = 1
                    return
                flows[number] = again[number].flow(self.begun_again(number, here[number]))
                streams[number], taken[number] = counted(flows[number])
                before[number] = now[number]

        def snapshot() -> Position:
            return tuple([each.snapshot() for each in flows]), given(), ended

        items = chain.from_iterable(passes())
        return Flow(items, snapshot, taken=lambda: sum(given()) - sum(counts))

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


def mix_counts(pipeline: Chain, state: State | str | bytes | Mapping[str, Any]) -> tuple[int, ...]:
    """How many items each pipeline of a `mix` has given, as a state has it.

    With a stage behind that holds a window, such as a shuffle with a buffer,
    they are those where a resume reads on, behind what you have; a `shuffle` without
    one keeps none. Put such a stage into each of the pipelines for exact counts.

    Args:
        pipeline: One that begins with `mix`.
        state: One of its states, as a `State`, its JSON text or its dict.

    Raises:
        ArgumentError: The pipeline doesn't begin with `mix`, or a stage keeps no counts.

    >>> import lazyckpt as lz
    >>> both = lz.mix([lz.source(range(9)), lz.source(range(9))], [3, 1], deterministic=True)
    >>> pairs = both | lz.batch(2)
    >>> lz.mix_counts(pairs, lz.state_at(pairs, 2))
    (3, 1)
    """
    found = matching(as_state(state), pipeline)
    entered(pipeline.machine, found.position)
    if pipeline.calls[0].name != "mix":
        raise ArgumentError(f"mix_counts: the pipeline must begin with mix, got {brief(pipeline)}")
    for call, machine in zip(pipeline.calls, pipeline.machines, strict=True):
        if machine.rate.whole_epoch:
            raise ArgumentError(f"mix_counts: {call!r} keeps no counts of what comes before it")
    first = places(found.stages, found.position)[0]
    assert first.own is not None
    counts: tuple[int, ...] = first.own[0]
    return counts[: len(first.children)]

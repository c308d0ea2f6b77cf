"""Several pipelines as one, by weight: `mix`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, TypeVar

from lazyckpt.combinators.join import abreast, joined, named, several
from lazyckpt.combinators.proportions import Choices, Proportions, random_choices, weights_of
from lazyckpt.combinators.shuffle import repeated
from lazyckpt.core.call import Chain, described, former
from lazyckpt.core.checks import Unfit, boolean, brief, natural, one_of, optional, whole
from lazyckpt.core.machine import End, Flow, Machine, Position, counted, entered, machine, within
from lazyckpt.core.prng import derive
from lazyckpt.core.registry import Taken
from lazyckpt.errors import ArgumentError, InvalidState, StateMismatch
from lazyckpt.pipeline import Pipeline, source_combinator
from lazyckpt.state.rebase import carried, matching
from lazyckpt.state.state import State, as_state
from lazyckpt.state.windows import way

A = TypeVar("A")

Stop = Literal["first_exhausted", "all_exhausted", "never"]

_ROOM = 32  # bits: each epoch of a mix has room for many of the pipelines'


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


def _carried(
    position: Position,
    before: Mapping[str, Any],
    pipelines: Sequence[Pipeline[Any]],
    weights: Any,
    stop: str,
    deterministic: bool,
    **_: Any,
) -> Position:
    """A position where pipelines have been added or removed, or weights have changed.

    What pipelines gave that are gone stays counted, behind the counts of the
    others: choices depend on how many items there were.
    """
    states, counts, ended = position
    kept = _kept(before.get("pipelines"), pipelines, states)
    if not kept:
        raise Unfit("none of its pipelines is left")
    one, place = next((number, place) for number, (_, place) in kept.items())
    shift = 0 if stop == "first_exhausted" else _ROOM
    epoch = pipelines[one].machine.epoch(place) >> shift << shift
    places = [
        kept[number][1] if number in kept else each.machine.init(epoch)
        for number, each in enumerate(pipelines)
    ]
    given = [counts[kept[n][0]] if n in kept else 0 for n in range(len(pipelines))]
    gone = sum(counts) - sum(given)
    if deterministic:
        share = Proportions(weights)
        expected = [0] * len(given) if share.pattern is None else share.counts(sum(counts))
        if gone or given != expected:
            raise Unfit(
                f"deterministic proportions would have wanted counts {expected} by now, "
                f"and they are {given}"
            )
    return tuple(places), (*given, *[gone] * bool(gone)), ended


def _kept(
    old: Any, pipelines: Sequence[Pipeline[Any]], states: Sequence[Position]
) -> dict[int, tuple[int, Position]]:
    """For the number of each pipeline that was there before the one it had, and its place."""
    new = described(pipelines)
    if json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True):
        return {number: (number, state) for number, state in enumerate(states)}
    if not (isinstance(old, list) and isinstance(new, list)):
        raise Unfit("of so many pipelines a state has but a digest")
    kept: dict[int, tuple[int, Position]] = {}
    left = list(range(len(old)))
    before, after = ([json.dumps(each, sort_keys=True) for each in some] for some in (old, new))
    for number, n in _pairs(before, after, left, range(len(new))):
        kept[number] = n, states[n]
        left.remove(n)
    refusal = ""
    sources = [former(each[0]) for each in old], [former(each[0]) for each in new]
    for number, n in _pairs(*sources, left, [n for n in range(len(new)) if n not in kept]):
        try:
            place = carried(State(json.dumps(old[n]), 0, states[n]), pipelines[number])
        except StateMismatch as error:
            refusal = refusal or f"{named(number)}: {error}"
        else:
            kept[number] = n, place
            left.remove(n)
    if refusal and left and len(kept) < len(new):
        raise Unfit(f"to begin it anew, rebase without it, and then with it; {refusal}")
    return kept


def _pairs(
    old: Sequence[Any], new: Sequence[Any], left: Sequence[int], wanted: Sequence[int]
) -> list[tuple[int, int]]:
    """The numbers in `new` and `old` of what is equal; of several, in their order."""
    pairs = []
    for number in wanted:
        olds = [n for n in left if old[n] == new[number]]
        news = [n for n in wanted if new[n] == new[number]]
        if olds and len(olds) != len(news):
            raise Unfit(
                f"{len(olds)} of its pipelines look like {named(number)}, and now {len(news)}: "
                "which of them it is, a state knows only where source(data, name=...) says so"
            )
        pairs += [(number, olds[news.index(number)])] if olds else []
    return pairs


@source_combinator(
    checks={
        "pipelines": several,
        "weights": _weighing,
        "seed": optional(natural),
        "stop": one_of("first_exhausted", "all_exhausted", "never"),
        "deterministic": boolean,
    },
    validate=_fitting,
    elastic={"pipelines": "transparent", "weights": "transparent"},
    parts=abreast,
    carry=_carried,
    takes=Taken(epochs=math.inf),
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

    - `pipelines`: a state knows them by their data's lengths and their stages;
      `source(data, name=...)` tells like ones apart
    - `weights`: a number >= 0 for each, of any sum; or a function from the
      number of items so far to such numbers, a schedule
    - `seed`: an int >= 0; not needed with `deterministic`
    - `stop`: "first_exhausted" ends the stream when a pipeline is chosen that
      has ended. With "all_exhausted" and "never" that pipeline begins again,
      in its next epoch, until each (of a weight that isn't 0) has ended once, or for ever
    - `deterministic`: by exact proportions instead of chance: after n items every
      pipeline has given its share of n, to within less than one item

    State: that of each pipeline, a count of items of each (`mix_counts` reads
    them), and whether the end was reached.
    Resume: reads again what each of them does.
    Random access: with `deterministic`, where all have it and the shares have a
    common denominator up to 65,536.
    Rank-free: where all are.
    Memory: with `deterministic`, one pattern of as many ints as that denominator.
    Errors: a pipeline to begin again that is empty; a schedule's weights that
    are negative, NaN, all 0 or of another number raise `PipelineError`.
    Source: the proportions are described at `lazyckpt.combinators.proportions`.

    >>> import lazyckpt as lz
    >>> web, books = lz.source(range(100)), lz.source(list("abcdefgh"))
    >>> list(lz.mix([web, books], [3, 1], deterministic=True) | lz.take(8))
    [0, 1, 'a', 2, 3, 4, 'b', 5]
    """
    once: list[Machine[A]] = [pipeline.machine for pipeline in pipelines]
    again = [repeated(each, None, f"mix: {named(n)}") for n, each in enumerate(once)]
    weights = weights if callable(weights) else tuple(weights)
    proportions = None if callable(weights) or not deterministic else Proportions(weights)
    shift = 0 if stop == "first_exhausted" else _ROOM
    needed = [callable(weights) or weights[number] > 0 for number in range(len(once))]

    def is_first(number: int, state: Position) -> bool:
        """Whether a source is in the pass whose end counts."""
        return stop == "first_exhausted" or (
            stop == "all_exhausted" and not once[number].epoch(state) & 0xFFFFFFFF
        )

    def is_last(number: int, states: Sequence[Position]) -> bool:
        """Whether the end of this source is the end of all."""
        return stop == "first_exhausted" or not any(
            is_first(other, state)
            for other, state in enumerate(states)
            if other != number and needed[other]
        )

    def begun_again(number: int, end: Position) -> Position:
        return once[number].init(once[number].epoch(end) + 1)

    def epoch_of(position: Position) -> int:
        return once[0].epoch(position[0][0]) >> shift

    def chooser(epoch: int) -> Choices:
        if proportions is not None:
            return proportions.choices()
        assert seed is not None
        return random_choices(weights, len(once), derive(seed, "mix", epoch))

    def init(epoch: int) -> Position:
        return tuple(each.init(epoch << shift) for each in once), (0,) * len(once), 0

    def step(position: Position) -> tuple[Position, A]:
        states, counts, ended = position
        if ended:
            raise End(position)
        states, counts = list(states), list(counts)
        number = chooser(epoch_of(position)).one(sum(counts), counts)
        if is_first(number, states[number]):
            try:
                states[number], item = once[number].step(states[number])
            except End as end:
                if is_last(number, states):
                    states[number] = end.position
                    raise End((tuple(states), tuple(counts), 1)) from None
                states[number], item = again[number].step(begun_again(number, states[number]))
        else:
            states[number], item = again[number].step(states[number])
        counts[number] += 1
        return (tuple(states), tuple(counts), 0), item

    def flow(position: Position) -> Flow[A]:
        states, counts, ended = position
        before = [within("mix", each) for each in counts]
        own, gone = before[: len(once)], before[len(once) :]  # and of pipelines that are gone
        within("mix", ended, 1), within("mix", sum(before)), within("mix", len(gone), 1)
        if proportions is not None and not proportions.fits(before):
            raise InvalidState(f"mix: counts {brief(before)} are none of these weights")
        if stop == "all_exhausted" and not ended and is_last(-1, states):
            raise InvalidState("mix: a state in which all have ended, and the stream has not")
        flows = [
            (once if is_first(number, state) else again)[number].flow(state)
            for number, state, _ in zip(range(len(once)), states, own, strict=True)
        ]
        streams, taken = map(list, zip(*map(counted, flows), strict=True))

        def given() -> tuple[int, ...]:
            mine = [had + some() for had, some in zip(before, taken, strict=False)]
            return tuple(mine + gone)

        def passes() -> Iterator[Iterator[A]]:
            """The items until the chosen source has ended, then one of its next pass, and so on."""
            nonlocal ended
            choices, now = chooser(epoch_of(position)), counts
            while not ended:
                yield map(next, choices.ahead(sum(now), now, streams))
                now, places = given(), [each.snapshot() for each in flows]
                number = choices.one(sum(now), now)
                if is_last(number, places):
                    ended = 1
                    return
                flows[number] = again[number].flow(begun_again(number, places[number]))
                streams[number], taken[number] = counted(flows[number])
                before[number] = now[number]

        def snapshot() -> Position:
            return tuple(each.snapshot() for each in flows), given(), ended

        items = chain.from_iterable(passes())
        return Flow(items, snapshot, taken=lambda: sum(given()) - sum(counts))

    def skip(position: Position, n: int) -> tuple[Position, int]:
        assert proportions is not None
        states, counts, ended = position
        begin = sum(counts)
        if ended:
            return position, 0
        place, number = ending(states, counts, n)
        passed = int(min(n, place - begin))
        wanted = proportions.counts(begin + passed)
        after = [
            jump(state, want - had)[0]
            for jump, state, want, had in zip(jumps, states, wanted, counts, strict=True)
        ]
        if passed < n:
            jump = once[number].skip
            assert jump is not None
            after[number] = jump(states[number], wanted[number] - counts[number] + 1)[0]
        return (tuple(after), tuple(wanted), int(passed < n)), passed

    def ending(
        states: Sequence[Position], counts: Sequence[int], n: int
    ) -> tuple[int | float, int]:
        """Where the stream ends, if within n items, and which source ends it."""
        assert proportions is not None
        places = []
        for number, (state, had) in enumerate(zip(states, counts, strict=True)):
            jump = once[number].skip
            assert jump is not None
            if needed[number] and is_first(number, state):
                left = jump(state, n)[1]
                place = proportions.place(number, had + left) if left < n else math.inf
                places.append((place, number))
        pick = min if stop == "first_exhausted" else max
        return pick(places, default=(math.inf, 0))

    jumps = [
        each.skip
        for each in (once if stop == "first_exhausted" else again)
        if each.skip is not None
    ]
    lengths = [each.length for each in once]
    has_access = (
        proportions is not None
        and proportions.pattern is not None
        and len(jumps) == len(once)
        and None not in lengths
    )
    length: int | float | None = math.inf if stop == "never" else None
    if has_access and length is None:
        assert proportions is not None
        ends = [
            math.inf if each == math.inf else proportions.place(number, int(each or 0))
            for number, each in enumerate(lengths)
            if needed[number]
        ]
        length = (min if stop == "first_exhausted" else max)(ends)
    return machine(
        init=init,
        epoch=epoch_of,
        step=step,
        flow=flow,
        skip=skip if has_access else None,
        length=length,
    )


def mix_counts(pipeline: Chain, state: State | str | bytes | Mapping[str, Any]) -> tuple[int, ...]:
    """How many items each pipeline of a `mix` has given, as a state has it.

    - `pipeline`: one that begins with `mix`
    - `state`: one of its states, as a `State`, its JSON text or its dict

    With a stage behind that holds a window, such as a shuffle with a buffer,
    they are those where a resume reads on, behind what you have; a `shuffle` without
    one keeps none. Put such a stage into each of the pipelines for exact counts.

    >>> import lazyckpt as lz
    >>> both = lz.mix([lz.source(range(9)), lz.source(range(9))], [3, 1], deterministic=True)
    >>> pairs = both | lz.batch(2)
    >>> lz.mix_counts(pairs, lz.state_at(pairs, 2))
    (3, 1)
    """
    position = matching(as_state(state), pipeline).position
    entered(pipeline.machine, position)
    if pipeline.calls[0].name != "mix":
        raise ArgumentError(f"mix_counts: the pipeline must begin with mix, got {brief(pipeline)}")
    built, layers = pipeline.calls[0].build(None), 0
    for call in pipeline.calls[1:]:
        before, built = built, call.build(built)
        each = way(call, before, built)
        if each == "all":
            raise ArgumentError(f"mix_counts: {call!r} keeps no counts of what comes before it")
        layers += each == "some"
    for _ in range(layers):
        position = position[0]
    counts: tuple[int, ...] = position[1]
    return counts[: len(pipeline.calls[0].arguments["pipelines"])]

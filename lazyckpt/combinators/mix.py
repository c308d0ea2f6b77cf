"""`mix`: several pipelines as one, by weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Any, TypeVar

from lazyckpt.combinators.machines.join import joined, named, several
from lazyckpt.combinators.machines.mixture import (
    DROPPING,
    RESTARTING,
    Mixture,
    Stop,
    has_proportions,
)
from lazyckpt.combinators.machines.proportions import Scheduled, weights_of
from lazyckpt.combinators.machines.schedules import Schedule, known_weights
from lazyckpt.core.call import Chain
from lazyckpt.core.checks import Unfit, boolean, brief, natural, one_of, optional
from lazyckpt.core.content import Entries, Entry
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import EPOCH_BITS, Machine, entered
from lazyckpt.core.registry import Elastic, registry
from lazyckpt.core.show import show
from lazyckpt.decorators import source_combinator
from lazyckpt.errors import ArgumentError, StateMismatch
from lazyckpt.pipeline import Pipeline
from lazyckpt.state.codec import own_parts
from lazyckpt.state.rebase import carried, matching, origin
from lazyckpt.state.state import State, as_state

A = TypeVar("A")


def _weighing(value: Any) -> Any:
    if isinstance(value, Schedule) and any(isinstance(each, int) for each in known_weights(value)):
        raise Unfit("weights; this schedule is one of lengths")
    if callable(value):
        return value
    if isinstance(value, Mapping):
        raise Unfit("a sequence of numbers, or lz.schedule(...) if they change")
    is_empty = isinstance(value, Sized) and not len(value)  # too few: `_fitting` raises the error
    return () if is_empty else weights_of(value)


def _fitting(
    pipelines: tuple[Any, ...], weights: Any, seed: int | None, stop: str, deterministic: bool
) -> None:
    joined("mix", pipelines)
    if deterministic and not has_proportions(weights):
        raise ArgumentError(
            "mix: deterministic=True requires fixed weights, or a schedule of weights that hold "
            f"until the next, got {show(weights)}"
        )
    if deterministic and stop == DROPPING:
        raise ArgumentError(
            f"mix: stop={stop!r} draws at random, so deterministic=True isn't possible; pass a seed"
        )
    if not deterministic and seed is None:
        raise ArgumentError("mix: seed must be given, unless deterministic=True")
    rows = known_weights(weights)
    for row in rows:
        if len(row) != len(pipelines):
            raise ArgumentError(
                f"mix: expected one weight per pipeline, got {len(row)} weights "
                f"for {len(pipelines)} pipelines"
            )
    for number, pipeline in enumerate(pipelines):
        used = not rows or any(row[number] for row in rows)
        if stop in RESTARTING and used and pipeline.machine.length == 0:
            raise ArgumentError(
                f"mix: {named(number)} is empty and can't start again, as stop={stop!r} requires"
            )


def _rebased(
    position: Position,
    before: Entry,
    pipelines: Sequence[Pipeline[Any]],
    weights: Any,
    deterministic: bool,
    stop: str,
    **_: Any,
) -> Position:
    """Return the position after pipelines were added or removed, or weights have changed.

    Items of removed pipelines stay counted, after the counts of the others: choices depend on
    the number of items so far.
    """
    positions, counts, ended = position
    kept = _kept(before.pipelines, pipelines, positions)
    if not kept:
        raise Unfit("none of its pipelines remains")
    one, inner = next((number, inner) for number, (_, inner) in kept.items())
    epoch = pipelines[one].machine.epoch(inner)
    if stop in RESTARTING:
        epoch = epoch >> EPOCH_BITS << EPOCH_BITS
    new = [
        kept[number][1] if number in kept else each.machine.init(epoch)
        for number, each in enumerate(pipelines)
    ]
    given = [counts[kept[n][0]] if n in kept else 0 for n in range(len(pipelines))]
    gone = sum(counts) - sum(given)
    if deterministic:
        forms = registry["mix"].recorded("weights", weights)
        is_same = given == [*counts] and before.known["weights"] in forms
        ended = ended if is_same else 2 * sum(counts) + ended % 2  # proportions restart here
    if stop == DROPPING:
        ended = 0  # a pipeline that has dropped out does so again, if it has no items
    return tuple(new), (*given, *[gone] * bool(gone)), ended


def _kept(
    old: Sequence[Entries], pipelines: Sequence[Pipeline[Any]], positions: Sequence[Position]
) -> dict[int, tuple[int, Position]]:
    """Map the number of each pipeline that existed before to its old number and its position."""
    forms = [{*pipeline.forms} for pipeline in pipelines]
    if len(old) == len(forms) and all(each in form for each, form in zip(old, forms, strict=True)):
        return dict(enumerate(enumerate(positions)))
    left, wanted = list(range(len(old))), list(range(len(forms)))
    kept = {number: (n, positions[n]) for number, n in _pairs(old, forms, left, wanted)}
    left = [n for n in left if n not in {n for n, _ in kept.values()}]
    wanted = [number for number in wanted if number not in kept]
    refusal = ""
    sources = [origin(each) for each in old], [{*map(origin, form)} for form in forms]
    for number, n in _pairs(*sources, left, wanted):
        try:
            inner = carried(old[n], positions[n], pipelines[number])
        except StateMismatch as error:
            refusal = refusal or f"{named(number)}: {error}"
        else:
            kept[number] = n, inner
            left.remove(n)
    if refusal and left and len(kept) < len(forms):
        raise Unfit(f"to start it from scratch, rebase without it, then with it; {refusal}")
    return kept


def _pairs(
    old: Sequence[Any], new: Sequence[set[Any]], left: Sequence[int], wanted: Sequence[int]
) -> list[tuple[int, int]]:
    """Pair the numbers in `new` and `old` of equal elements; pair several equal ones in order."""
    pairs = []
    for number in wanted:
        olds = [n for n in left if old[n] in new[number]]
        news = [n for n in wanted if new[n] == new[number]]
        if olds and len(olds) != len(news):
            raise Unfit(
                f"{len(olds)} of its pipelines look like {named(number)}, and now {len(news)}; "
                "a state can tell them apart only by source(data, name=...)"
            )
        pairs += [(number, olds[news.index(number)])] if olds else []
    return pairs


@source_combinator(
    keeps_items=True,
    checks={
        "pipelines": several,
        "weights": _weighing,
        "seed": optional(natural),
        "stop": one_of("first_exhausted", "all_exhausted", DROPPING, "never"),
        "deterministic": boolean,
    },
    validate=_fitting,
    elastic=Elastic(
        changes={"pipelines": "here", "weights": "here", "seed": "here"}, rebase=_rebased
    ),
)
def mix(
    pipelines: Sequence[Pipeline[A]],
    weights: Sequence[float] | Schedule[Sequence[float]] | Scheduled,
    *,
    seed: int | None = None,
    stop: Stop = "first_exhausted",
    deterministic: bool = False,
) -> Machine[A]:
    """Yield items of several pipelines, choosing a pipeline for each item by weight.

    Args:
        pipelines: The pipelines to mix. A state identifies them by the lengths of their data and
            their stages; use `source(data, name=...)` to tell similar ones apart. It identifies a
            joined pipeline by its first part.
        weights: One number >= 0 per pipeline, of any sum; or a `schedule` of weights that change
            with the number of items so far in the epoch. A function from that number to weights
            also works, with two exceptions: a stage after it re-reads items on a resume, as
            `shuffle` and the packing stages do, or the state is to be rebased. A state doesn't
            record which function it was.
        seed: An int >= 0; not needed with `deterministic`.
        stop: "first_exhausted" ends the stream when a pipeline is chosen that has ended. With
            "all_exhausted" and "never", that pipeline starts its next epoch: "all_exhausted"
            until each pipeline of a weight above 0 has ended once, "never" forever. With
            "all_exhausted_without_replacement", that pipeline drops out, so each item occurs once;
            not with `deterministic`.
        deterministic: If True, use exact proportions instead of chance. After n items, the number
            of items of each pipeline differs from its share of n by less than one. The bound is
            two for more than three pipelines whose shares have no common denominator up to
            65,536. Proportions restart whenever weights change: with a `schedule` that isn't
            "linear", or after a `rebase` to different weights.

    Raises:
        ArgumentError: If a pipeline that has to start again is empty.
        PipelineError: If a function returns weights that are negative, NaN, all 0 or too few or
            too many; or if a schedule's weights are 0 for all pipelines that haven't dropped out.

    State:
        The state of each pipeline, a count of items of each (`mix_counts` reads them), and one
        of: whether the end was reached, which pipelines have dropped out, where proportions began.

    Resume:
        Re-reads what each pipeline re-reads.

    Random access:
        With `deterministic`, if all pipelines have it. Otherwise, if all have it, a `shard` after
        it skips the items of other ranks without computing them.

    Rank-invariant:
        If all pipelines are.

    Memory:
        With `deterministic`, one pattern of as many ints as the common denominator, at most
        65,536.

    Source:
        The proportions are described at `lazyckpt.combinators.machines.proportions`.

    >>> import lazyckpt as lz
    >>> web, books = lz.source(range(100)), lz.source(list("abcdefgh"))
    >>> list(lz.mix([web, books], [3, 1], deterministic=True) | lz.take(8))
    [0, 1, 'a', 2, 3, 4, 'b', 5]
    """
    machines = [pipeline.machine for pipeline in pipelines]
    given = weights if callable(weights) else tuple(weights)
    return Mixture(machines, given, seed, stop, deterministic).machine()


def mix_counts(pipeline: Chain, state: State | str | bytes | Mapping[str, Any]) -> tuple[int, ...]:
    """Return how many items each pipeline of a `mix` has yielded, according to a state.

    If a stage after the mix holds a window, such as a shuffle with a buffer, the counts are those
    at the position from which a resume re-reads, which is before the last item delivered. A
    `shuffle` without a buffer keeps no counts. For exact counts, put such stages into each of the
    mixed pipelines.

    Args:
        pipeline: A pipeline that begins with `mix`.
        state: One of its states, as a `State`, its JSON string or its dict.

    Raises:
        ArgumentError: If the pipeline doesn't begin with `mix`, or a stage keeps no counts.

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
            raise ArgumentError(f"mix_counts: {call!r} keeps no counts of the items before it")
    first = own_parts(found.stages, found.position)[0]
    assert first.own is not None
    counts: tuple[int, ...] = first.own[0]
    return counts[: len(first.children)]

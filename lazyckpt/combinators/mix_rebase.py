"""How the state of a `mix` follows a change of its pipelines and weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lazyckpt.combinators.machines.join import named
from lazyckpt.combinators.machines.proportions import Proportions
from lazyckpt.core.checks import Unfit
from lazyckpt.core.entries import NAME, Described, Entry
from lazyckpt.core.flow import Position
from lazyckpt.errors import StateMismatch
from lazyckpt.pipeline import Pipeline
from lazyckpt.state.carried import carried

ROOM = 32  # bits: each epoch of a mix has room for many of the pipelines'


def rebased(
    position: Position,
    before: Entry,
    pipelines: Sequence[Pipeline[Any]],
    weights: Any,
    deterministic: bool,
    **_: Any,
) -> Position:
    """A position where pipelines have been added or removed, or weights have changed.

    What pipelines gave that are gone stays counted, behind the counts of the
    others: choices depend on how many items there were.
    """
    places, counts, ended = position
    kept = _kept(before.pipelines, pipelines, places)
    if not kept:
        raise Unfit("none of its pipelines is left")
    one, place = next((number, place) for number, (_, place) in kept.items())
    epoch = pipelines[one].machine.epoch(place)
    if before.known.get("stop", "first_exhausted") != "first_exhausted":
        epoch = epoch >> ROOM << ROOM
    new = [
        kept[number][1] if number in kept else each.machine.init(epoch)
        for number, each in enumerate(pipelines)
    ]
    given = [counts[kept[n][0]] if n in kept else 0 for n in range(len(pipelines))]
    gone = sum(counts) - sum(given)
    if deterministic:
        _check_proportions(Proportions(weights), given, gone)
    return tuple(new), (*given, *[gone] * bool(gone)), ended


def _check_proportions(share: Proportions, given: list[int], gone: int) -> None:
    expected = [0] * len(given) if share.pattern is None else share.counts(sum(given) + gone)
    if gone or given != expected:
        raise Unfit(
            f"deterministic proportions would have wanted counts {expected} by now, "
            f"and they are {given}"
        )


def _kept(
    old: Sequence[Described], pipelines: Sequence[Pipeline[Any]], places: Sequence[Position]
) -> dict[int, tuple[int, Position]]:
    """For the number of each pipeline that was there before the one it had, and its place."""
    forms = [_forms(pipeline) for pipeline in pipelines]
    if len(old) == len(forms) and all(each in form for each, form in zip(old, forms, strict=True)):
        return dict(enumerate(enumerate(places)))
    left, wanted = list(range(len(old))), list(range(len(forms)))
    kept = {number: (n, places[n]) for number, n in _pairs(old, forms, left, wanted)}
    left = [n for n in left if n not in {n for n, _ in kept.values()}]
    wanted = [number for number in wanted if number not in kept]
    refusal = next((_unknown(old[n]) for n in left if wanted and not _source(old[n])), "")
    sources = [_source(each) for each in old], [{_source(each) for each in form} for form in forms]
    for number, n in _pairs(*sources, left, wanted):
        before = old[n]
        try:
            if isinstance(before, str):
                raise StateMismatch(_unknown(before))
            place = carried(before, places[n], pipelines[number])
        except StateMismatch as error:
            refusal = refusal or f"{named(number)}: {error}"
        else:
            kept[number] = n, place
            left.remove(n)
    if refusal and left and len(kept) < len(forms):
        raise Unfit(f"to begin it anew, rebase without it, and then with it; {refusal}")
    return kept


def _forms(pipeline: Pipeline[Any]) -> set[Described]:
    """All that a state may have of a pipeline."""
    return {pipeline.described(detail) for detail in (2, 1, 0)} | {pipeline.summary}


def _source(described: Described) -> Any:
    """What a state tells of a pipeline's source; nothing where that is an unnamed one's digest."""
    if not isinstance(described, str):
        name = described[0].known.get("name")
        return str(name)[:NAME] if name else described[0]
    return described.rpartition("#")[0]


def _unknown(described: Described) -> str:
    return f"of what was {described} a state has but a digest"


def _pairs(
    old: Sequence[Any], new: Sequence[set[Any]], left: Sequence[int], wanted: Sequence[int]
) -> list[tuple[int, int]]:
    """The numbers in `new` and `old` of what is alike; of several, in their order."""
    pairs = []
    for number in wanted:
        olds = [n for n in left if old[n] and old[n] in new[number]]
        news = [n for n in wanted if new[n] == new[number]]
        if olds and len(olds) != len(news):
            raise Unfit(
                f"{len(olds)} of its pipelines look like {named(number)}, and now {len(news)}: "
                "which of them it is, a state knows only where source(data, name=...) says so"
            )
        pairs += [(number, olds[news.index(number)])] if olds else []
    return pairs

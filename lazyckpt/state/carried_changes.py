"""How what `Run.set` has changed follows a change of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lazyckpt.core.checks import cut
from lazyckpt.core.entries import CONTROLS
from lazyckpt.core.user_state import Own, freeze
from lazyckpt.errors import StateMismatch
from lazyckpt.state.changes import Change, Changes
from lazyckpt.state.mismatch import Pair


def carried_changes(changes: Changes, pairs: Sequence[Pair]) -> Changes:
    """The changes, where stages have other numbers, and controls are others at first.

    A control keeps the value that it had: it is as if it had been set to it before the
    first item.
    """
    numbers = {pair.old: pair.new for pair in pairs}
    initial = [
        Change(0, name, _frozen(name, value), ((str(pair.new), 0, 0),))
        for pair in pairs
        if pair.met
        for name, value in (pair.value(CONTROLS) or {}).items()
        if value != (pair.new_value(CONTROLS) or {}).get(name)
    ]
    if not initial and all(old == new for old, new in numbers.items() if old):
        return changes
    if any("[" in stage for each in changes for stage, *_ in each.places) and pairs[0].changed:
        raise StateMismatch(
            f"a state cannot follow this change: {pairs[0]}; controls within it were changed"
        )
    return Changes([*initial, *(_renumbered(each, numbers) for each in changes)])


def _renumbered(change: Change, numbers: Mapping[int, int]) -> Change:
    places = []
    for stage, epoch, item in change.places:
        number, bracket, inner = stage.partition("[")
        if numbers.get(int(number)):
            places.append((f"{numbers[int(number)]}{bracket}{inner}", epoch, item))
    return change._replace(places=tuple(places))


def _frozen(name: str, value: Any) -> Own:
    """What a state has of a control's first value, as a value."""
    return freeze(_value(name, value), f"control {name!r}")


def _value(name: str, found: Any) -> Any:
    if isinstance(found, str) and "]#" in found:
        raise StateMismatch(
            f"a state cannot follow this change: of the control {cut(name)!r} it has but a "
            "digest; leave it what it was at first, and set it"
        )
    if not isinstance(found, dict):
        return found
    ((kind, values),) = found.items()
    if kind == "dict":
        return {_value(name, k): _value(name, v) for k, v in values}
    made = [_value(name, each) for each in values]
    return made if kind == "list" else tuple(made)

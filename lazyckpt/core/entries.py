"""Stages as a state has them, and the room that a state has for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from lazyckpt.core.content import digest, dumps

# The budget of a state, in characters of its JSON. Arguments are digests where it is exceeded.
ROOM = 1024  # for all of a state of ten stages
INNER = 40  # for each stage of a pipeline that is joined, beside those
_ROOM_FOR_STAGES = 640  # without their places
ROOM_WITH_TEXTS = 704  # for these, and for texts of what was left out
_LONG = 120  # for an argument
_SHORT = 19  # for an argument where there is no room for all: as much as a digest takes


class Entry(NamedTuple):
    """A stage as a state has it.

    - `name`: its combinator's
    - `arguments`: those that decide the order, as JSON
    - `owns`: whether it has a place of its own
    - `pipelines`: the entries of those that it joins
    """

    name: str
    arguments: str
    owns: bool
    pipelines: tuple[Entries, ...] = ()

    @property
    def known(self) -> dict[str, Any]:
        """The arguments by name."""
        found: dict[str, Any] = json.loads(self.arguments)
        return found

    def with_arguments(self, arguments: Mapping[str, Any]) -> Entry:
        """The same stage with other arguments."""
        return self._replace(arguments=dumps(arguments))


Entries: TypeAlias = tuple[Entry, ...]


def size(entries: Entries, free: int = 0) -> int:
    """Characters that stages take of the room that there is for them, without their places.

    Args:
        entries: The stages.
        free: Characters of each that don't count.
    """
    return sum(
        max(0, len(each.name) + len(each.arguments) + 6 - free)
        + sum(size(inner, INNER) for inner in each.pipelines)
        for each in entries
    )


def has_room(entries: Entries) -> bool:
    """Whether a state has room for stages as they are."""
    return size(entries) <= _ROOM_FOR_STAGES


def room_for_texts(entries: Entries) -> int:
    """Characters that there is room for, beside the stages, of what was left out."""
    return ROOM_WITH_TEXTS - size(entries)


def forms(value: Any) -> tuple[Any, Any]:
    """An argument as JSON, or its digest: where there is room for all, and where there is none."""
    text = dumps(value)
    mark = f"#{digest(text)}" if len(text) > _SHORT else ""
    return (mark if len(text) > _LONG else value), mark or value


def alike(old: Entries, new: Entries) -> bool:
    """Whether two descriptions are of one pipeline, whichever has more in detail."""
    return len(old) == len(new) and all(map(alike_stages, old, new))


def alike_stages(old: Entry, new: Entry) -> bool:
    """Whether two entries are of one stage."""
    return old == new or (
        (old.name, old.owns, len(old.pipelines)) == (new.name, new.owns, len(new.pipelines))
        and not changed(old, new)
        and all(map(alike, old.pipelines, new.pipelines))
    )


def changed(old: Entry, new: Entry) -> list[str]:
    """The names of the arguments that differ, or that one of them lacks."""
    before, after = old.known, new.known
    return [
        name
        for name in before | after
        if name not in before or name not in after or not _same(before[name], after[name])
    ]


def _same(old: Any, new: Any) -> bool:
    before, after = dumps(old), dumps(new)
    return before == after or dumps(forms(old)[1]) == after or before == dumps(forms(new)[1])

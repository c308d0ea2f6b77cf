"""Figures of states: the stages in a state, with text about each."""

from __future__ import annotations

from itertools import starmap
from typing import Any

from lazyckpt.core.checks import brief
from lazyckpt.core.content import Entries, Entry
from lazyckpt.pictures.chains import OWNS, WEIGHTS, Label, weight_labels
from lazyckpt.pictures.figure import DEPTH, ROOM, Node, branches, legible, row


def entry_nodes(
    entries: Entries, label: Label, prefix: str = "", room: int = ROOM, depth: int = DEPTH
) -> tuple[Node, ...]:
    """Return the stages of a state, with the stages of the pipelines that they join.

    Args:
        entries: The stages in the state.
        label: Function from a stage's number to a label for it.
        prefix: Text before the numbers.
        room: Most stages to show.
        depth: Most levels of nested rows.
    """

    def node(number: int, left: int) -> Node:
        return _node(entries[number], label, f"{prefix}{number + 1}", not number, left, depth)

    return row(len(entries), node, room)


def _node(entry: Entry, label: Label, stage: str, is_first: bool, room: int, depth: int) -> Node:
    known, count = entry.known, len(entry.pipelines)
    labels = weight_labels(known.get(WEIGHTS), count) if count else []
    if labels:
        del known[WEIGHTS]

    def within(number: int, left: int) -> tuple[Node, ...]:
        inner = f"{stage}[{number}]."
        return entry_nodes(entry.pipelines[number], label, inner, left, depth - 1)

    return Node(
        legible(entry.name),
        tuple(starmap(_argument, known.items())),
        branches(labels or [""] * count, within, room, depth),
        (OWNS,) if entry.owns else (),
        label(stage),
        is_first,
        entry.owns,
    )


def _argument(name: str, value: Any) -> str:
    return legible(f"{name}={brief(value)}")

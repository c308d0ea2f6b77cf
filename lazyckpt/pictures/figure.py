"""The model of a figure: stages in a row, and the pipelines that they join as branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from lazyckpt.core.checks import cut, plural

ROOM = 240  # most stages per figure
ROW = 40  # most stages per row
BRANCHES = 12  # most branches per stage
DEPTH = 4  # most levels of nested rows


class Mark(NamedTuple):
    """A property of a stage, as a sign, a word and a sentence."""

    sign: str
    word: str
    meaning: str


class Node(NamedTuple):
    """A stage; or, without `is_stage`, a note on omitted stages.

    - `place`: its position, or other text about it
    - `is_source`, `owns`: True if it has no upstream; True if it has a part of the position
    """

    name: str
    arguments: tuple[str, ...] = ()
    branches: tuple[Branch, ...] = ()
    marks: tuple[Mark, ...] = ()
    place: str = ""
    is_source: bool = False
    owns: bool = False
    is_stage: bool = True


class Branch(NamedTuple):
    """A pipeline that a stage joins, with its weight or its part there."""

    label: str
    nodes: tuple[Node, ...]


class Figure(NamedTuple):
    """Stages under a title and facts; `share` is the share of the epoch that is done, if known."""

    title: str
    nodes: tuple[Node, ...]
    facts: tuple[str, ...] = ()
    share: float | None = None


def legible(text: str, most: int = 300, *, in_data: bool = False) -> str:
    """Return any text in one line, without control codes, with a bounded length."""
    line = cut(" ".join(text[: 4 * most].split()) or text[:most], in_data=in_data)
    return line if len(line) <= most else f"{line[: most - 3]}..."


def row(count: int, node: Callable[[int, int], Node], room: int) -> tuple[Node, ...]:
    """Return the stages of a pipeline: all, or the first and the last ones if there is no room.

    Args:
        count: Number of stages.
        node: Function from a stage's number and the room left inside it to the stage.
        room: Most stages to show.
    """
    first, missing, last = _ends(count, max(3, min(room, ROW)))
    left = room - len(first) - len(last)
    nodes = [node(number, left) for number in (*first, *last)]
    if missing:
        nodes.insert(len(first), _left_out(missing, "stage"))
    return tuple(nodes)


def branches(
    labels: Sequence[str], nodes: Callable[[int, int], tuple[Node, ...]], room: int, depth: int
) -> tuple[Branch, ...]:
    """Return the pipelines that a stage joins: all, or the first and the last ones.

    Args:
        labels: Label of each.
        nodes: Function from a pipeline's number and the room left for it to its stages.
        room: Most stages to show.
        depth: Most levels of nested rows.
    """
    if not labels:
        return ()
    most = min(BRANCHES, room // 3) if depth else 0
    if not most:
        return (Branch("", (Node(plural(len(labels), "pipeline"), is_stage=False),)),)
    first, missing, last = _ends(len(labels), most)
    each = room // min(most, len(labels))
    found = [Branch(labels[number], nodes(number, each)) for number in (*first, *last)]
    if missing:
        found.insert(len(first), Branch("", (_left_out(missing, "pipeline"),)))
    return tuple(found)


def _left_out(count: int, what: str) -> Node:
    return Node(plural(count, f"more {what}"), is_stage=False)


def _ends(count: int, most: int) -> tuple[range, int, range]:
    """Return the first and the last numbers, and how many between them are omitted."""
    if count <= most:
        return range(count), 0, range(0)
    last = most // 4
    first = most - 1 - last
    return range(first), count - first - last, range(count - last, count)

"""What is to be seen of a pipeline: its stages in a row, those that it joins in branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from lazyckpt.core.checks import cut, plural

ROOM = 240  # stages in a figure
ROW = 40  # stages in a row
BRANCHES = 12  # of one stage
DEPTH = 4  # rows within rows


class Mark(NamedTuple):
    """What a stage is, in a sign, a word and a sentence."""

    sign: str
    word: str
    meaning: str


class Node(NamedTuple):
    """A stage; or, without `is_stage`, a note on what is left out.

    - `place`: where it stands, or what else is told of it
    - `is_source`, `owns`: whether it has no upstream, and a part of the position
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
    """Stages under a title and facts; `share` of the way is done, if that is known."""

    title: str
    nodes: tuple[Node, ...]
    facts: tuple[str, ...] = ()
    share: float | None = None


def legible(text: str, most: int = 300, *, in_data: bool = False) -> str:
    """Any text as it may be seen: in one line, without control codes, of bounded length."""
    line = cut(" ".join(text[: 4 * most].split()) or text[:most], in_data=in_data)
    return line if len(line) <= most else f"{line[: most - 3]}..."


def row(count: int, node: Callable[[int, int], Node], room: int) -> tuple[Node, ...]:
    """The stages of a pipeline: the first and the last where there is no room for all.

    Args:
        count: How many it has.
        node: Makes one of its number and of the room left for stages within it.
        room: How many stages there is room for.
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
    """The pipelines that a stage joins: the first and the last where there is no room for all.

    Args:
        labels: Of each.
        nodes: Makes the stages of one, of its number and of the room left for them.
        room: How many stages there is room for.
        depth: How many rows there may be within rows.
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
    """The first and the last numbers, and how many between are left out."""
    if count <= most:
        return range(count), 0, range(0)
    last = most // 4
    first = most - 1 - last
    return range(first), count - first - last, range(count - last, count)

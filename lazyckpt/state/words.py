"""Positions in words, for people: `epoch 47 · item 1`, `web 0 → 95 · code 0 → 34`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from lazyckpt.core.checks import brief, cut
from lazyckpt.core.content import Entries
from lazyckpt.core.flow import Position
from lazyckpt.errors import InvalidState
from lazyckpt.state.codec import Layer, layers, passes


def own_positions(entries: Entries, position: Position) -> dict[str, str]:
    """Map each stage's number to its own position in words; none if it has none, or isn't open."""
    found = {}
    with suppress(InvalidState):  # a state built by hand
        for layer in layers(entries, position):
            if layer.own is not None:
                found[layer.stage] = own_position(layer)
    return found


def own_position(layer: Layer) -> str:
    """Describe a stage's own position, in words; empty if it has none, or isn't open."""
    return "" if layer.own is None else _in_words(_parts(layer))


def moved(before: Layer, after: Layer) -> str:
    """Describe how a stage's own position moved, in words."""
    if before.own is None or after.own is None:
        sides = (
            "not open" if each.own is None else _in_words(_parts(each)) for each in (before, after)
        )
        return " → ".join(sides)
    pairs = zip(_parts(before), _parts(after), strict=False)
    found = [(name, f"{here} → {there}") for (name, here), (_, there) in pairs if here != there]
    return _in_words(found)


def _parts(layer: Layer) -> list[tuple[str, str]]:
    """Split a stage's own position into named numbers, and the rest under an empty name.

    A source names epoch and item. A stage with a number per pipeline, such as `mix`, names these.
    """
    stage, entry, found = layer
    own: tuple[Any, ...] = found if type(found) is tuple else () if found is None else (found,)
    names = list[str]()
    is_source = stage.rpartition(".")[2] == "1" and not entry.pipelines
    if is_source and len(own) > 1 and type(own[0]) is int:
        names, own = ["epoch", "item"], (passes(own[0]), *own[1:])
    elif own and type(own[0]) is tuple and 0 < len(own[0]) == len(entry.pipelines):
        sources = [each[0].known for each in entry.pipelines]
        names = [cut(str(known.get("name", n))) for n, known in enumerate(sources)]
        own = (*own[0], *own[1:])
    texts = [*map(brief, own)]
    known = zip(names, texts, strict=False)
    return [*known, ("", ", ".join(texts[len(names) :]))]


def _in_words(parts: list[tuple[str, str]]) -> str:
    """Join named numbers: `epoch 47 · item 1`."""
    is_alone = len(parts) == 1
    shown = [each for each in parts if each[0] or each[1] not in ("", "0") or is_alone]
    return " · ".join([f"{name} {text}".strip() for name, text in shown])

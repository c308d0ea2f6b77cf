"""Machines that make rows of several sequences of tokens, as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lazyckpt.combinators.machines.token_rows import Features, Pad, UnfilledRow, filled_row
from lazyckpt.combinators.map import map as mapped
from lazyckpt.combinators.schedule import Schedule
from lazyckpt.core.call import Call
from lazyckpt.core.checks import Unfit, brief, positive
from lazyckpt.core.content import Entry, decode
from lazyckpt.core.flow import Flow, Position, noted
from lazyckpt.core.machine import Machine, Reread, anchored, within
from lazyckpt.core.stages import stateful
from lazyckpt.errors import PipelineError
from lazyckpt.pipeline import Stage

Placed: TypeAlias = tuple[Position, UnfilledRow]  # a row, and the position after it

_CODES = "which item each token is from"


def traced_rows(call: Call, tracing: Any) -> Stage[Any, Any]:
    """The stage on sequences with one feature more: for each token a code of its origins."""
    known: list[tuple[Any, ...]] = []

    def marked(item: Any) -> Any:
        value = tracing.plain(item)
        features = value if isinstance(value, Mapping) else {"tokens": value}
        sizes = [len(each) for each in map(np.asarray, features.values()) if each.ndim]
        known.append(tuple(tracing.origins(item)))
        return {**features, _CODES: np.full(sizes[0], len(known))} if sizes else value

    def found(row: Features) -> Any:
        codes = [code for code in row.pop(_CODES).tolist() if code]
        return tracing.traced(row, [origin for code in codes for origin in known[code - 1]])

    return mapped(marked) | Stage((call,)) | mapped(found)


def length_after(name: str, length: int | Schedule[int], rows: int) -> int:
    """How long the next row is after so many of them."""
    if not isinstance(length, Schedule):
        return length
    found: Any = length(rows)
    try:
        return int(positive(found))
    except Unfit as unfit:
        raise PipelineError(f"{name}: length({rows}) must be {unfit}, got {brief(found)}") from None


def packed(
    name: str,
    upstream: Machine[Any],
    length: int | Schedule[int],
    pad: Pad | None,
    rows: Callable[..., Iterator[Placed]],
    rereads: Callable[..., Reread],
    check: Callable[..., object],
) -> Machine[Features]:
    """The rows that `rows(before, anchor, number, *own)` makes, each with the position after it.

    They are filled when they are given: one that is passed over costs no more than its place
    there. A stage whose lengths follow a schedule counts its rows, in front of its own part.

    Args:
        name: The stage's.
        upstream: The machine before it.
        length: The length of its rows.
        pad: What fills them up.
        rows: Makes rows, of which the first has a number, each with `(anchor, *own)` after it.
        rereads: From `(anchor, *own)`, what a resume reads again.
        check: Called with its own part.
    """
    is_counted = isinstance(length, Schedule)

    def flow(position: Position) -> Flow[Features]:
        anchor, *own = position
        number = own.pop(0) if is_counted else 0
        before = _read(upstream, anchor)

        def placed(anchor: Position, *own: Any) -> Position:
            return (anchor, number, *own) if is_counted else (anchor, *own)

        def made() -> Iterator[UnfilledRow]:
            nonlocal position, number
            for after, row in rows(before, anchor, number, *own):
                number += 1
                position = placed(*after)
                yield row
            position = placed(before.reached(), 0)

        return Flow(made(), lambda: position, partial(filled_row, name, pad))

    def check_counted(number: int, *own: Any) -> None:
        within(name, number)
        check(*own)

    return stateful(
        name,
        upstream,
        first=(0, 0) if is_counted else (0,),
        check=check_counted if is_counted else check,
        rereads=lambda position: [rereads(position[0], *position[1 + is_counted :])],
        flow=flow,
    )


def fixed_length(before: Entry) -> int | None:
    """The length of rows as a state has it; None for a schedule."""
    length = before.known["length"]
    is_fixed = isinstance(length, int) or (isinstance(length, dict) and "int" in length)
    return int(decode(length)) if is_fixed else None


def recounted(own: Sequence[Any], before: Entry, length: int | Schedule[int]) -> Sequence[Any]:
    """A part of its own behind the number of rows so far, 0 if nobody needs it."""
    if fixed_length(before) is None:
        return own
    if isinstance(length, Schedule):
        raise Unfit(
            "its rows were not counted, so its position in a schedule is unknown; pass an int"
        )
    return (0, *own)


class Read(NamedTuple):
    """Items, the position before the one read last, and the position reached."""

    items: Iterator[Any]
    last: Callable[[], Position]
    reached: Callable[[], Position]


def _read(upstream: Machine[Any], position: Position) -> Read:
    flow, last = noted(anchored(upstream, position))
    return Read(iter(flow), last, flow.snapshot)

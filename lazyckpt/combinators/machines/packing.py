"""Machines that pack token sequences into rows, in stream order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from lazyckpt.combinators.machines.schedules import Schedule
from lazyckpt.combinators.machines.token_rows import Features, Pad, UnfilledRow, filled_row
from lazyckpt.core.checks import Unfit, brief, positive
from lazyckpt.core.content import Entry, decode
from lazyckpt.core.flow import Flow, Position, noted
from lazyckpt.core.machine import Machine, Reread, anchored, within
from lazyckpt.core.stages import stateful
from lazyckpt.errors import PipelineError

Placed: TypeAlias = tuple[Position, UnfilledRow]  # a row, and the position after it


def length_after(name: str, length: int | Schedule[int], rows: int) -> int:
    """Return the length of the row after a number of rows."""
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
    """Build a machine of the rows from `rows(before, anchor, number, *own)`.

    Rows are filled when they are delivered: skipping one costs no more than computing its position.
    A stage whose lengths follow a schedule counts its rows, in front of its own part.

    Args:
        name: Name of the stage.
        upstream: The machine before it.
        length: The length of its rows.
        pad: The padding.
        rows: Function that yields rows, given the number of the first, each with `(anchor, *own)`
            after it.
        rereads: Function from `(anchor, *own)` to what a resume re-reads.
        check: Function that checks the stage's own part.
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
    """Return the length of rows recorded in a state; None for a schedule."""
    length = before.known["length"]
    is_fixed = isinstance(length, int) or (isinstance(length, dict) and "int" in length)
    return int(decode(length)) if is_fixed else None


def recounted(own: Sequence[Any], before: Entry, length: int | Schedule[int]) -> Sequence[Any]:
    """Return a stage's own part after the number of rows so far, which is 0 if it isn't needed."""
    if fixed_length(before) is None:
        return own
    if isinstance(length, Schedule):
        raise Unfit(
            "its rows were not counted, so its position in a schedule is unknown; pass an int"
        )
    return (0, *own)


class Read(NamedTuple):
    """Items, the position before the last one read, and the position reached."""

    items: Iterator[Any]
    last: Callable[[], Position]
    reached: Callable[[], Position]


def _read(upstream: Machine[Any], position: Position) -> Read:
    flow, last = noted(anchored(upstream, position))
    return Read(iter(flow), last, flow.snapshot)

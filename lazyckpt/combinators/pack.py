"""Token sequences as rows of one length: `concat_then_split`, `pack_first_fit`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lazyckpt.combinators.map import map as mapped
from lazyckpt.combinators.token_rows import Features, as_sequence, filled_row
from lazyckpt.core.call import Call
from lazyckpt.core.checks import boolean, brief, positive
from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import Machine, Reread, begun, within
from lazyckpt.core.stages import stateful
from lazyckpt.decorators import combinator
from lazyckpt.errors import SourceChanged
from lazyckpt.pipeline import Stage

_Placed: TypeAlias = tuple[Position, Features]  # a row, and the position after it

_CODES = "which item each token is from"


def _traced(call: Call, tracing: Any) -> Stage[Any, Any]:
    """The stage on sequences with one feature more: for each token a code of its origins."""
    known: list[tuple[Any, ...]] = []

    def marked(item: Any) -> Any:
        value = tracing.plain(item)
        features = value if isinstance(value, dict) else {"tokens": value}
        sizes = [len(each) for each in map(np.asarray, features.values()) if each.ndim]
        known.append(tuple(tracing.origins(item)))
        return {**features, _CODES: np.full(sizes[0], len(known))} if sizes else value

    def found(row: Features) -> Any:
        codes = [code for code in row.pop(_CODES).tolist() if code]
        return tracing.traced(row, [origin for code in codes for origin in known[code - 1]])

    return mapped(marked) | Stage((call,)) | mapped(found)


@combinator(
    checks={"length": positive, "drop_last": boolean},
    rebasable={"length": "stateless", "drop_last": "stateless"},
    trace=_traced,
)
def concat_then_split(
    upstream: Machine[Any], length: int, *, drop_last: bool = False
) -> Machine[Features]:
    """Rows of `length` tokens out of all sequences end to end, cut wherever a row is full.

    An item is a sequence of tokens, as a list or an array of shape `(n, ...)`,
    or a dict of several features of one length n.

    A row is a dict of arrays of shape `(length, ...)`: the features, or `tokens`;
    `segment_ids`, int32, which number the sequences in the row from 1, with 0
    where it is filled up; and `positions`, int32, which count from 0 in each
    segment. What goes on in the next row is a segment of its own there. An empty
    sequence leaves no trace.

    Args:
        length: Tokens a row, an int >= 1.
        drop_last: Whether to leave out a last row that isn't full; else zeros fill it up.

    Raises:
        TypeError: For an item that is no such sequence.
        ValueError: For features of unequal lengths, of other names than before in the
            row, or named as those that are added.

    State:
        The place before the sequence in which the next row begins, and how many of its
        tokens are given.

    Resume:
        Re-reads that one sequence, with another length too (`rebase`).

    Random access:
        No.

    Rank-free:
        With sequences of one length.

    Memory:
        One sequence and one row.

    >>> import lazyckpt as lz
    >>> for row in [[5, 6, 7], [8, 9]] | lz.concat_then_split(4):
    ...     print(row["tokens"], row["segment_ids"], row["positions"])
    [5 6 7 8] [1 1 1 2] [0 1 2 0]
    [9 0 0 0] [1 0 0 0] [0 0 0 0]
    """

    def rows(before: _Read, anchor: Position, begin: int) -> Iterator[_Placed]:
        room = length
        parts: list[Features] = []
        for item in before.items:
            size, features = as_sequence("concat_then_split", item)
            if begin > size:
                raise SourceChanged(
                    f"concat_then_split: the state stands after token {begin} of a sequence "
                    f"that now has {size}"
                )
            while begin < size:
                stop = min(size, begin + room)
                parts.append({name: each[begin:stop] for name, each in features.items()})
                room -= stop - begin
                begin = stop
                if not room:
                    row = filled_row("concat_then_split", parts, length)
                    parts, room = [], length
                    place = (before.last(), stop) if stop < size else (before.reached(), 0)
                    yield place, row
            begin = 0
        if parts and not drop_last:
            yield (before.reached(), 0), filled_row("concat_then_split", parts, length)

    def rereads(position: Position) -> list[Reread]:
        return [Reread(position[0], 1 if position[1] else 0)]

    return _packed("concat_then_split", upstream, rows, rereads)


@combinator(checks={"length": positive, "num_bins": positive}, trace=_traced)
def pack_first_fit(upstream: Machine[Any], length: int, *, num_bins: int) -> Machine[Features]:
    """Rows of `length` tokens, each of several whole sequences and filled up with zeros.

    An item is a sequence of tokens, as a list or an array of shape `(n, ...)`,
    or a dict of several features of one length n; n is at most `length`.

    A sequence goes into the first of the rows that has room for it. When none
    has, all of them are given, in order, and new ones begun with it.

    A row is a dict of arrays of shape `(length, ...)`: the features, or `tokens`;
    `segment_ids`, int32, which number the sequences in the row from 1, with 0
    where it is filled up; and `positions`, int32, which count from 0 in each
    segment. An empty sequence leaves no trace.

    Args:
        length: Tokens a row, an int >= 1.
        num_bins: Rows that are filled at once, an int >= 1; more leave less room empty.

    Raises:
        ValueError: For a sequence longer than `length`: cut it before, by `flat_map`, or
            use `concat_then_split`. Also for features of unequal lengths, of other
            names than before in the row, or named as those that are added.
        TypeError: For an item that is no such sequence.

    State:
        The place before the first sequence in these rows, and a count of rows given.

    Resume:
        Re-reads the sequences of at most `num_bins` rows.

    Random access:
        No.

    Rank-free:
        With sequences of one length.

    Memory:
        `num_bins` rows.

    Source:
        Johnson, "Near-optimal bin packing algorithms", 1973.

    >>> import lazyckpt as lz
    >>> for row in [[1, 1, 1], [2, 2], [3], [4]] | lz.pack_first_fit(4, num_bins=2):
    ...     print(row["tokens"], row["segment_ids"], row["positions"])
    [1 1 1 3] [1 1 1 2] [0 1 2 0]
    [2 2 4 0] [1 1 2 0] [0 1 0 0]
    """

    def rows(before: _Read, anchor: Position, given: int) -> Iterator[_Placed]:
        bins: list[list[Features]] = []
        rooms: list[int] = []

        def emptied(after: Position) -> Iterator[_Placed]:
            if given and given >= len(bins):
                raise SourceChanged(
                    f"pack_first_fit: the state stands after row {given} of {len(bins)}"
                )
            for number, parts in enumerate(bins[given:], given + 1):
                row = filled_row("pack_first_fit", parts, length)
                yield ((anchor, number) if number < len(bins) else (after, 0)), row

        for item in before.items:
            size, features = as_sequence("pack_first_fit", item)
            if size > length:
                raise ValueError(
                    f"pack_first_fit: a sequence of {size} tokens is longer than "
                    f"length={length}: {brief(item)}"
                )
            for chosen, room in enumerate(rooms):  # noqa: B007  # used behind the loop
                if room >= size:
                    break
            else:
                chosen = len(bins)
            if chosen == num_bins:
                here = before.last()
                yield from emptied(here)
                anchor, given = here, 0
                bins, rooms, chosen = [], [], 0
            if size:
                if chosen == len(bins):
                    bins.append([])
                    rooms.append(length)
                bins[chosen].append(features)
                rooms[chosen] -= size
        yield from emptied(before.reached())

    def rereads(position: Position) -> list[Reread]:
        anchor, given = position
        return [Reread(anchor, math.inf if given else begun(upstream, anchor))]

    return _packed("pack_first_fit", upstream, rows, rereads)


def _packed(
    name: str,
    upstream: Machine[Any],
    rows: Callable[[_Read, Position, int], Iterator[_Placed]],
    rereads: Callable[[Position], list[Reread]],
) -> Machine[Features]:
    """The rows that `rows(before, anchor, given)` makes, each with the position after it."""

    def flow(position: Position) -> Flow[Features]:
        anchor, given = position
        before = _read(upstream, anchor)

        def made() -> Iterator[Features]:
            nonlocal position
            for after, row in rows(before, anchor, given):
                position = after
                yield row
            position = before.reached(), 0

        return Flow(made(), lambda: position)

    return stateful(
        name, upstream, check=lambda given: within(name, given), rereads=rereads, flow=flow
    )


class _Read(NamedTuple):
    """Items, the position before the one read last, and the position reached."""

    items: Iterator[Any]
    last: Callable[[], Position]
    reached: Callable[[], Position]


def _read(upstream: Machine[Any], position: Position) -> _Read:
    flow, jump = upstream.flow(position), upstream.skip
    if jump is not None:
        items, taken = counted(flow)
        return _Read(items, lambda: jump(position, taken() - 1)[0], flow.snapshot)

    def noted() -> Iterator[Any]:
        nonlocal position
        for item in flow:
            yield item
            position = flow.snapshot()

    return _Read(noted(), lambda: position, flow.snapshot)

"""`concat_then_split`: token sequences end to end, cut into rows of one length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lazyckpt.combinators.machines.packing import (
    Placed,
    Read,
    length_after,
    packed,
    recounted,
)
from lazyckpt.combinators.machines.schedules import Schedule, row_length
from lazyckpt.combinators.machines.token_rows import (
    Features,
    Pad,
    cutting,
    padding,
    size_of,
    whole_sequence,
)
from lazyckpt.combinators.pack import traced_rows
from lazyckpt.core.checks import boolean, optional
from lazyckpt.core.content import Entry
from lazyckpt.core.flow import Position
from lazyckpt.core.machine import Machine, Reread, within
from lazyckpt.core.registry import Elastic
from lazyckpt.decorators import combinator
from lazyckpt.errors import SourceChanged


def _rebased(
    own: tuple[Any, ...], before: Entry, length: int | Schedule[int], **_: Any
) -> tuple[Any, ...]:
    number, begin = recounted(own, before, length)
    return (number, begin) if isinstance(length, Schedule) else (begin,)


@combinator(
    checks={"length": row_length, "drop_last": boolean, "pad": optional(padding)},
    elastic=Elastic(
        changes={"length": "here", "drop_last": "here", "pad": "blind"}, rebase=_rebased
    ),
    trace=traced_rows,
    by_length=whole_sequence("concat_then_split"),
)
def concat_then_split(
    upstream: Machine[Any],
    length: int | Schedule[int],
    *,
    drop_last: bool = False,
    pad: Pad | None = None,
) -> Machine[Features]:
    """Concatenate token sequences and cut them into rows of `length` tokens.

    An item is a sequence of tokens: a list, an array of shape `(n, ...)`, or a mapping of
    several features of the same length n. A feature that is a single number or string applies
    to every token of its sequence.

    A row is a dict of arrays of shape `(length, ...)`: the features, or `tokens`;
    `segment_ids`, int32, which number the sequences in the row from 1, with 0 for padding;
    and `positions`, int32, which count from 0 within each segment. A sequence that continues
    in the next row is a new segment there. Empty sequences are ignored.

    Rows are filled only when they are delivered: before `shard`, each rank fills only its own.

    Args:
        length: Number of tokens per row, an int >= 1; or a `schedule` of such, by the number of
            rows so far in the epoch.
        drop_last: If True, drop a final row that isn't full; otherwise it is padded.
        pad: Padding by feature, such as `{"labels": -100}`; zeros for the others.

    Raises:
        TypeError: If an item is not a sequence of tokens, or a mapping of such.
        ValueError: If features have unequal lengths, other names than those before them in the
            row, or the names of added features; or if a `pad` doesn't fit them.

    State:
        The position before the sequence in which the next row begins, and the number of its
        tokens already yielded; with a schedule, also a count of rows.

    Resume:
        Re-reads that one sequence, also with a different length (`rebase`).

    Random access:
        No.

    Rank-invariant:
        If all sequences have the same length.

    Memory:
        One sequence and one row.

    >>> import lazyckpt as lz
    >>> for row in [[5, 6, 7], [8, 9]] | lz.concat_then_split(4):
    ...     print(row["tokens"], row["segment_ids"], row["positions"])
    [5 6 7 8] [1 1 1 2] [0 1 2 0]
    [9 0 0 0] [1 0 0 0] [0 0 0 0]
    """

    def rows(before: Read, anchor: Position, number: int, begin: int) -> Iterator[Placed]:
        size_of_row = room = length_after("concat_then_split", length, number)
        parts: list[Any] = []
        for item in before.items:
            size = size_of("concat_then_split", item)
            cut = None
            if begin > size:
                raise SourceChanged(
                    f"concat_then_split: the state is after token {begin} of a sequence "
                    f"that now has {size}"
                )
            while begin < size:
                stop = min(size, begin + room)
                if stop - begin == size:
                    parts.append(item)
                else:
                    cut = cut or cutting("concat_then_split", item)
                    parts.append(cut(begin, stop))
                room -= stop - begin
                begin = stop
                if not room:
                    place = (before.last(), stop) if stop < size else (before.reached(), 0)
                    yield place, (parts, size_of_row)
                    number += 1
                    size_of_row = room = length_after("concat_then_split", length, number)
                    parts = []
            begin = 0
        if parts and not drop_last:
            yield (before.reached(), 0), (parts, size_of_row)

    def rereads(anchor: Position, begin: int) -> Reread:
        return Reread(anchor, 1 if begin else 0)

    def check(begin: int) -> None:
        within("concat_then_split", begin)

    return packed("concat_then_split", upstream, length, pad, rows, rereads, check)

"""`pack_first_fit`, `pack_best_fit`: whole sequences of tokens in rows of one length."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from lazyckpt.combinators.machines.bins import BestFit, FirstFit, binned
from lazyckpt.combinators.machines.packing import (
    fixed_length,
    length_after,
    recounted,
)
from lazyckpt.combinators.machines.schedules import Schedule, row_length
from lazyckpt.combinators.machines.token_rows import (
    Features,
    Overflow,
    Pad,
    dropped,
    overflow_policy,
    padding,
    whole_sequence,
)
from lazyckpt.combinators.map import map as mapped
from lazyckpt.core.call import Call
from lazyckpt.core.checks import Unfit, optional, positive
from lazyckpt.core.content import Entry, decode
from lazyckpt.core.machine import Machine
from lazyckpt.core.registry import Elastic
from lazyckpt.decorators import combinator
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Stage

_CODES = "which item each token is from"

_CHECKS = {
    "length": row_length,
    "num_bins": positive,
    "overflow": overflow_policy,
    "pad": optional(padding),
}


def _fits(stage: str, length: Any, overflow: str, **_: Any) -> None:
    if overflow == "drop" and isinstance(length, Schedule):
        raise ArgumentError(
            f'{stage}: overflow="drop" requires a fixed length, got {length!r}: the limit '
            "would depend on the row; filter before it"
        )


def _rebased(
    own: tuple[Any, ...],
    before: Entry,
    length: int | Schedule[int],
    num_bins: int,
    overflow: Overflow,
    **_: Any,
) -> tuple[Any, ...]:
    """Return the stage's own position after rows change length or number; old rows keep theirs."""
    count, given, *past = recounted(own, before, length)
    size, most = fixed_length(before), decode(before.known["num_bins"])
    if given:
        if size is None:
            size, *past = past
        if (size, most) != (length_after(before.name, length, count), num_bins):
            given, past = 0, [*past, (size, most, given)]
    if overflow == "drop" and any(length < was for was, _, _ in past):
        raise Unfit("open rows contain longer sequences; change the length between epochs")
    if isinstance(length, Schedule):
        return (count, given, *[size] * bool(given), *past)
    return (given, *past)


def traced_rows(call: Call, tracing: Any) -> Stage[Any, Any]:
    """Return the stage on sequences with one more feature: a code of the origins of each token."""
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


REPACKED = Elastic(changes={"length": "here", "num_bins": "here", "pad": "blind"}, rebase=_rebased)


@combinator(
    checks=_CHECKS,
    validate=partial(_fits, "pack_first_fit"),
    elastic=REPACKED,
    trace=traced_rows,
    dropped=dropped,
    by_length=whole_sequence("pack_first_fit"),
)
def pack_first_fit(
    upstream: Machine[Any],
    length: int | Schedule[int],
    *,
    num_bins: int,
    overflow: Overflow = "error",
    pad: Pad | None = None,
) -> Machine[Features]:
    """Pack whole token sequences into rows of `length` tokens, first fit.

    An item is a sequence of tokens: a list, an array of shape `(n, ...)`, or a mapping of
    several features of the same length n, such as tokens and a loss mask. A feature that is a
    single number or string applies to every token of its sequence.

    A sequence goes into the first open row with room for it. If no row has room, all open rows
    are yielded, in order, and the sequence starts a new one. `pack_best_fit` wastes less space.

    A row is a dict of arrays of shape `(length, ...)`: the features, or `tokens`;
    `segment_ids`, int32, which number the sequences in the row from 1, with 0 for padding;
    and `positions`, int32, which count from 0 within each segment. Empty sequences are ignored.

    Rows are filled only when they are delivered. Before `shard`, each rank assigns all sequences
    to rows by their lengths, but fills only its own rows.

    Args:
        length: Number of tokens per row, an int >= 1; or a `schedule` of such, by the number of
            rows so far in the epoch.
        num_bins: Number of rows open at the same time, an int >= 1; more waste less space.
        overflow: Treatment of a sequence longer than `length`. "error" raises an error; "split"
            cuts it into segments of `length` tokens and a rest; "truncate" keeps its first
            `length` tokens; "drop" drops it, and `run(..., on_error="skip")` counts and names it
            in `Run.skipped`.
        pad: Padding by feature, such as `{"labels": -100}`; zeros for the others.

    Raises:
        ValueError: If a sequence is too long, with "error". Also if features have unequal
            lengths, other names than those before them in the row, or the names of added
            features; or if a `pad` doesn't fit them.
        TypeError: If an item is not a sequence of tokens, or a mapping of such.

    State:
        The position before the first sequence in the open rows, and a count of rows yielded. If
        the length changed while rows were open: the old length and number of rows, and how many
        of them were yielded. With a schedule: a count of rows and the length of the open ones.

    Resume:
        Re-reads the sequences of at most `num_bins` rows, also with a different `length` or
        `num_bins` (`rebase`): sequences in rows not yet yielded are packed again.

    Random access:
        No.

    Rank-invariant:
        If all sequences have the same length.

    Memory:
        `num_bins` rows; with "split", the rows of one sequence if they are more.

    Source:
        Johnson, "Near-optimal bin packing algorithms", 1973.

    >>> import lazyckpt as lz
    >>> for row in [[1, 1, 1], [2, 2], [3], [4]] | lz.pack_first_fit(4, num_bins=2):
    ...     print(row["tokens"], row["segment_ids"], row["positions"])
    [1 1 1 3] [1 1 1 2] [0 1 2 0]
    [2 2 4 0] [1 1 2 0] [0 1 0 0]
    """
    return binned("pack_first_fit", upstream, length, num_bins, overflow, pad, FirstFit)


@combinator(
    checks=_CHECKS,
    validate=partial(_fits, "pack_best_fit"),
    elastic=REPACKED,
    trace=traced_rows,
    dropped=dropped,
    by_length=whole_sequence("pack_best_fit"),
)
def pack_best_fit(
    upstream: Machine[Any],
    length: int | Schedule[int],
    *,
    num_bins: int,
    overflow: Overflow = "error",
    pad: Pad | None = None,
) -> Machine[Features]:
    """Pack whole token sequences into rows of `length` tokens, best fit.

    It works as `pack_first_fit`, but a sequence goes into the open row in which it leaves the
    least room; of equal ones, into the first. If the lengths are known beforehand, `plan_packing`
    wastes almost no space. For the files of Python's standard library in rows of 2,048 tokens it
    wastes 0.16 %, and no packing can waste less than 0.07 %. In stream order, the waste by the
    number of open rows is:

        num_bins            8       64      512
        pack_first_fit   7.2 %    3.1 %    1.4 %
        pack_best_fit    7.1 %    2.6 %    1.3 %

    Args:
        length: Number of tokens per row, an int >= 1; or a `schedule` of such, by the number of
            rows so far in the epoch.
        num_bins: Number of rows open at the same time, an int >= 1; more waste less space.
        overflow: As for `pack_first_fit`.
        pad: As for `pack_first_fit`.

    Raises:
        ValueError: As for `pack_first_fit`.
        TypeError: If an item is not a sequence of tokens, or a mapping of such.

    State:
        The position before the first sequence in the open rows, and a count of rows yielded. If
        the length changed while rows were open: the old length and number of rows, and how many
        of them were yielded. With a schedule: a count of rows and the length of the open ones.

    Resume:
        Re-reads the sequences of at most `num_bins` rows, also with a different `length` or
        `num_bins` (`rebase`): sequences in rows not yet yielded are packed again.

    Random access:
        No.

    Rank-invariant:
        If all sequences have the same length.

    Memory:
        `num_bins` rows; with "split", the rows of one sequence if they are more.

    Source:
        Johnson, "Near-optimal bin packing algorithms", 1973.

    >>> import lazyckpt as lz
    >>> for row in [[1], [2, 2], [3, 3, 3], [4, 4]] | lz.pack_best_fit(4, num_bins=2):
    ...     print(row["tokens"], row["segment_ids"])
    [1 2 2 0] [1 2 2 0]
    [3 3 3 0] [1 1 1 0]
    [4 4 0 0] [1 1 0 0]
    """
    return binned("pack_best_fit", upstream, length, num_bins, overflow, pad, BestFit)

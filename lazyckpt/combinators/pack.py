"""Whole sequences of tokens in rows of one length: `pack_first_fit`, `pack_best_fit`."""

from __future__ import annotations

from functools import partial
from typing import Any

from lazyckpt.combinators.machines.bins import BestFit, FirstFit, binned
from lazyckpt.combinators.machines.packing import (
    fixed_length,
    length_after,
    recounted,
    traced_rows,
)
from lazyckpt.combinators.machines.token_rows import (
    Features,
    Overflow,
    Pad,
    dropped,
    overflow_policy,
    padding,
)
from lazyckpt.combinators.schedule import Schedule, row_length
from lazyckpt.core.checks import Unfit, optional, positive
from lazyckpt.core.content import Entry, decode
from lazyckpt.core.machine import Machine
from lazyckpt.core.registry import Elastic
from lazyckpt.decorators import combinator
from lazyckpt.errors import ArgumentError

_CHECKS = {
    "length": row_length,
    "num_bins": positive,
    "overflow": overflow_policy,
    "pad": optional(padding),
}


def _fits(stage: str, length: Any, overflow: str, **_: Any) -> None:
    if overflow == "drop" and isinstance(length, Schedule):
        raise ArgumentError(
            f'{stage}: overflow="drop" wants a fixed length, got {length!r}: what is too long '
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
    """The own part where rows get another length or number: those that were given keep theirs."""
    count, given, *past = recounted(own, before, length)
    size, most = fixed_length(before), decode(before.known["num_bins"])
    if given:
        if size is None:
            size, *past = past
        if (size, most) != (length_after(before.name, length, count), num_bins):
            given, past = 0, [*past, (size, most, given)]
    if overflow == "drop" and any(length < was for was, _, _ in past):
        raise Unfit("rows that are begun have sequences that are longer; change between epochs")
    if isinstance(length, Schedule):
        return (count, given, *[size] * bool(given), *past)
    return (given, *past)


REPACKED = Elastic(changes={"length": "here", "num_bins": "here", "pad": "blind"}, rebase=_rebased)


@combinator(
    checks=_CHECKS,
    validate=partial(_fits, "pack_first_fit"),
    elastic=REPACKED,
    trace=traced_rows,
    dropped=dropped,
)
def pack_first_fit(
    upstream: Machine[Any],
    length: int | Schedule[int],
    *,
    num_bins: int,
    overflow: Overflow = "error",
    pad: Pad | None = None,
) -> Machine[Features]:
    """Rows of `length` tokens, each of several whole sequences and filled up with zeros.

    An item is a sequence of tokens, as a list or an array of shape `(n, ...)`,
    or a mapping of several features of one length n, such as a loss mask beside the tokens. A
    feature that is one number or text belongs to each token of its sequence.

    A sequence goes into the first of the rows that has room for it. When none
    has, all of them are given, in order, and new ones begun with it.
    `pack_best_fit` leaves less room empty.

    A row is a dict of arrays of shape `(length, ...)`: the features, or `tokens`;
    `segment_ids`, int32, which number the sequences in the row from 1, with 0
    where it is filled up; and `positions`, int32, which count from 0 in each
    segment. An empty sequence leaves no trace.

    Rows are filled when they are delivered. Before `shard`, each rank decides from the lengths
    which row every sequence goes into, and fills its own rows only.

    Args:
        length: Tokens per row, an int >= 1; or a `schedule` of such, by the number of rows so
            far in the epoch.
        num_bins: Rows that are filled at once, an int >= 1; more leave less room empty.
        overflow: What becomes of a sequence longer than `length`: "error"; "split", cut into
            segments of `length` tokens and the rest; "truncate", its first `length` tokens;
            or "drop", which `run(..., on_error="skip")` counts and names in `Run.skipped`.
        pad: What fills up a row, by features, as `{"labels": -100}`; zeros for the others.

    Raises:
        ValueError: For such a sequence, with "error". Also for features of unequal lengths, of
            other names than before in the row, or named as those that are added; for a `pad`
            that doesn't fit them.
        TypeError: For an item that is no such sequence.

    State:
        The place before the first sequence in these rows, and a count of rows given. If their
        length changed amid them, the length and number of rows that were, and how many of them
        were given. With a schedule, a count of rows and the length of the open ones.

    Resume:
        Re-reads the sequences of at most `num_bins` rows, also with another `length` or
        `num_bins` (`rebase`): what stands in rows that were not given is packed anew.

    Random access:
        No.

    Rank-invariant:
        With sequences of one length.

    Memory:
        `num_bins` rows; with "split", those of one sequence if they are more.

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
)
def pack_best_fit(
    upstream: Machine[Any],
    length: int | Schedule[int],
    *,
    num_bins: int,
    overflow: Overflow = "error",
    pad: Pad | None = None,
) -> Machine[Features]:
    """Rows of `length` tokens, as of `pack_first_fit`, each filled as far as it can be.

    A sequence goes into that of the rows which it leaves the least room in, the first of
    several. When none has room, all of them are given, in order, and new ones begun with it.
    Where lengths are known, `plan_packing` leaves almost no room empty: of rows of 2,048
    tokens, out of the files of Python's standard library, 0.16 %, where no packing has less
    than 0.07 %. As they come, of those that are filled at once,

        num_bins            8       64      512
        pack_first_fit   7.2 %    3.1 %    1.4 %
        pack_best_fit    7.1 %    2.6 %    1.3 %

    Args:
        length: Tokens per row, an int >= 1; or a `schedule` of such, by the number of rows so
            far in the epoch.
        num_bins: Rows that are filled at once, an int >= 1; more leave less room empty.
        overflow: As of `pack_first_fit`.
        pad: As of `pack_first_fit`.

    Raises:
        ValueError: As `pack_first_fit`.
        TypeError: For an item that is no sequence of tokens, or dict of such.

    State:
        The place before the first sequence in these rows, and a count of rows given. If their
        length changed amid them, the length and number of rows that were, and how many of them
        were given. With a schedule, a count of rows and the length of the open ones.

    Resume:
        Re-reads the sequences of at most `num_bins` rows, also with another `length` or
        `num_bins` (`rebase`): what stands in rows that were not given is packed anew.

    Random access:
        No.

    Rank-invariant:
        With sequences of one length.

    Memory:
        `num_bins` rows; with "split", those of one sequence if they are more.

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

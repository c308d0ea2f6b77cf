"""`add_cu_seqlens`: segment boundaries of packed rows, for variable-length attention kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lazyckpt.core.checks import brief


def add_cu_seqlens(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Add `cu_seqlens` and `max_seqlen` to a packed row, or to a batch of packed rows.

    Use it in `map`, after `pack_first_fit` or another packing stage, or after a `batch` of their
    rows with `collate=stack`. `cu_seqlens` is an int32 array `[0, l1, l1 + l2, ...]` of the
    cumulative lengths of the segments, with rows end to end. `max_seqlen` is an int, the length
    of the longest segment. The variable-length functions of flash-attention expect these, with
    tokens of shape `(batch * length, ...)`. The padding of a row counts as a segment, so the last
    number of `cu_seqlens` is the number of all tokens, padding included.

    Args:
        rows: A dict with `segment_ids` of shape `(length,)` or `(batch, length)`.

    Returns:
        A new dict with the same entries and the two new ones.

    Raises:
        TypeError: If there is no `segment_ids`.

    >>> import lazyckpt as lz
    >>> rows = [[5, 6, 7], [8, 9]] | lz.concat_then_split(4) | lz.batch(2, collate=lz.stack)
    >>> (found,) = rows | lz.map(lz.add_cu_seqlens)
    >>> found["segment_ids"].tolist(), found["cu_seqlens"], found["max_seqlen"]
    ([[1, 1, 1, 2], [1, 0, 0, 0]], array([0, 3, 4, 5, 8], dtype=int32), 3)
    """
    if not isinstance(rows, Mapping) or "segment_ids" not in rows:
        raise TypeError(
            "add_cu_seqlens: expected a row of a packed pipeline, or a batch of rows, got "
            f"{brief(rows)} ({type(rows).__name__})"
        )
    ids = np.asarray(rows["segment_ids"])
    flat, length = ids.reshape(-1), ids.shape[-1]
    begins = np.empty(flat.size, bool)
    np.not_equal(flat[1:], flat[:-1], out=begins[1:])
    begins[::length] = True
    ends = np.append(np.flatnonzero(begins), flat.size).astype(np.int32)
    return {**rows, "cu_seqlens": ends, "max_seqlen": int(np.diff(ends).max(initial=0))}

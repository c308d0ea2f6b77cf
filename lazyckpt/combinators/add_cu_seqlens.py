"""`add_cu_seqlens`: where the segments of packed rows begin, as attention kernels want it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lazyckpt.core.checks import brief


def add_cu_seqlens(rows: Mapping[str, Any]) -> dict[str, Any]:
    """A packed row, or a batch of rows, with `cu_seqlens` and `max_seqlen` beside the rest.

    For `map`, behind `pack_first_fit` and the like or behind a `batch` of their rows with
    `collate=stack`. `cu_seqlens` is an array of int32, `[0, l1, l1 + l2, ...]`, of the segments'
    lengths, with rows end to end; `max_seqlen` is an int, the longest of these. So the
    variable-length functions of flash-attention want them, on tokens of shape `(batch * length,
    ...)`. What fills up a row counts as a segment, so that the last number is that of all
    places.

    Args:
        rows: A dict with `segment_ids` of shape `(length,)` or `(batch, length)`.

    Returns:
        The same in a new dict with both.

    Raises:
        TypeError: For what has no `segment_ids`.

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

"""`split_batch`: a batch in parts, one per device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from lazyckpt.combinators.map import applied
from lazyckpt.core.checks import brief, positive
from lazyckpt.core.machine import Machine
from lazyckpt.decorators import combinator, giving
from lazyckpt.pipeline import Listing


@giving(Listing)
@combinator(checks={"n": positive}, pointwise=True)
def split_batch(upstream: Machine[object], n: int) -> Machine[list[Any]]:
    """Split each batch into `n` parts of consecutive items, one per device.

    A batch is a list of items, an array or tensor of rows, or a mapping or tuple of such. A
    mapping or tuple is split field by field; a mapping becomes dicts. If the size isn't divisible
    by `n`, the first parts have one item more. A batch of fewer than `n` items has empty parts at
    the end. `batch(drop_last=True)` and `batch(pad=...)` keep a final batch even.

    Args:
        n: The number of devices, an int >= 1.

    Raises:
        TypeError: If an item is not a batch.
        ValueError: If fields have unequal lengths.

    State:
        None.

    Resume:
        Re-reads nothing.

    Random access:
        Kept.

    Rank-invariant:
        Yes.

    >>> import lazyckpt as lz
    >>> list(lz.source(range(5)) | lz.batch(5) | lz.split_batch(2))
    [[[0, 1, 2], [3, 4]]]
    """

    def split(batch: Any) -> list[Any]:
        size = _rows(batch)
        cuts = [number * (size // n) + min(number, size % n) for number in range(n + 1)]
        return [_part(batch, slice(*ends)) for ends in pairwise(cuts)]

    return applied(upstream, split)


def _rows(batch: Any) -> int:
    if isinstance(batch, (Mapping, tuple)):
        fields = batch.values() if isinstance(batch, Mapping) else batch
        sizes = [_rows(field) for field in fields]
        if len(set(sizes)) > 1:
            raise ValueError(f"split_batch: the fields of a batch have unequal lengths {sizes}")
        if sizes:
            return sizes[0]
    elif _is_sequence(batch) or len(getattr(batch, "shape", [])):
        return len(batch)
    raise TypeError(f"split_batch: expected a batch, got {brief(batch)} ({type(batch).__name__})")


def _is_sequence(batch: Any) -> bool:
    return isinstance(batch, Sequence) and not isinstance(batch, (str, bytes))


def _part(batch: Any, some: slice) -> Any:
    if isinstance(batch, Mapping):
        return {name: _part(field, some) for name, field in batch.items()}
    if isinstance(batch, tuple):
        fields = [_part(field, some) for field in batch]
        return batch._make(fields) if hasattr(batch, "_make") else tuple(fields)
    return batch[some] if isinstance(batch, list) or not _is_sequence(batch) else [*batch][some]

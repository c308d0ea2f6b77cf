"""`flat_map`, `unbatch`: one item in, any number out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

import numpy as np

from lazyckpt.combinators.machines.expansions import expanded
from lazyckpt.core.call import Call
from lazyckpt.core.checks import brief, function
from lazyckpt.core.machine import Machine
from lazyckpt.decorators import combinator, giving
from lazyckpt.pipeline import Stage, Unbatching

A = TypeVar("A", bound=Any)  # bound to Any, so that pyright doesn't check the body of a lambda
B = TypeVar("B")


@combinator(checks={"fn": function}, functions={"fn": "expand"}, itemwise=True)
def flat_map(upstream: Machine[A], fn: Callable[[A], Iterable[B]]) -> Machine[B]:
    """Yield the items of `fn(item)` for each item.

    Args:
        fn: Function from an item to an iterable, a pipeline or rows of `lazyckpt.io`. A resume
            iterates an iterable again up to its position, and seeks in the other two. Called
            again, `fn` must return the same items in the same order. In the pipelines that it
            returns, a `shuffle` or `random_map` draws the same numbers for every item, unless its
            seed is made from the item, such as `zlib.crc32(name.encode())`.

    Raises:
        SourceChanged: If an expansion became shorter.
        TypeError: If `fn` doesn't return an iterable.

    State:
        The position before the current item, and the position within its expansion.

    Resume:
        Calls `fn` on one item again, and skips the outputs already yielded.

    Random access:
        No.

    Rank-invariant:
        No.

    >>> import lazyckpt as lz
    >>> list(lz.source(["a b", "c"]) | lz.flat_map(str.split))
    ['a', 'b', 'c']
    """
    return expanded("flat_map", upstream, fn)


def _traced_rows(call: Call, tracing: Any) -> Stage[Any, Any]:
    """Give the rows of a list their own origins, and the rows of any other batch the batch's."""

    def rows(batch: Any) -> Iterable[Any]:
        if type(batch) is list:
            return batch
        return [tracing.traced(row, tracing.origins(batch)) for row in _rows(tracing.plain(batch))]

    return flat_map(rows)


@giving(Unbatching)
@combinator(trace=_traced_rows, itemwise=True)
def unbatch(upstream: Machine[Any]) -> Machine[Any]:
    """Yield the items of each batch: the inverse of `batch`, with or without `collate=stack`.

    A list yields its items and an array its rows. A mapping of batches yields dicts, and a tuple
    of batches yields tuples, field by field.

    State:
        The position before the current batch, and a count of its items yielded.

    Resume:
        Re-reads one batch.

    Random access:
        No.

    Rank-invariant:
        If all batches have the same size.

    >>> import lazyckpt as lz
    >>> list(lz.source([{"x": [1, 2], "y": [3, 4]}]) | lz.unbatch())
    [{'x': 1, 'y': 3}, {'x': 2, 'y': 4}]
    """

    def rows(batch: Any) -> Iterable[Any]:  # an error's note finds the stage by this name
        return _rows(batch)

    return expanded("unbatch", upstream, rows)


def _rows(batch: Any) -> Iterable[Any]:
    return batch if type(batch) is list else unstacked(batch)


def unstacked(batch: Any) -> Iterable[Any]:
    """Return the items of one batch, as an iterable."""
    is_one = isinstance(batch, (str, bytes)) or getattr(batch, "shape", None) == ()
    if isinstance(batch, (list, np.ndarray)) and not is_one:
        return batch
    if isinstance(batch, (Mapping, tuple)):
        named = batch.items() if isinstance(batch, Mapping) else enumerate(batch)
        fields = {name: list(unstacked(field)) for name, field in named}
        lengths = {name: len(field) for name, field in fields.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"unbatch: the fields of a batch have unequal lengths {lengths}")
        rows = zip(*fields.values(), strict=True)
        if isinstance(batch, Mapping):
            return [dict(zip(batch, row, strict=True)) for row in rows]
        make = getattr(batch, "_make", tuple)
        return [make(row) for row in rows]
    if hasattr(batch, "__iter__") and not is_one:
        return cast(Iterable[Any], batch)
    raise TypeError(f"unbatch: expected a batch, got {brief(batch)} ({type(batch).__name__})")

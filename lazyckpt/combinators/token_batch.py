"""`token_batch`: batches of consecutive items within a budget of tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from lazyckpt.combinators.machines.token_rows import token_count
from lazyckpt.core.checks import boolean, brief, function, optional, positive
from lazyckpt.core.flow import Flow, Position, noted
from lazyckpt.core.machine import Machine, Reread, anchored, begun
from lazyckpt.core.registry import Elastic
from lazyckpt.core.stages import stateless
from lazyckpt.decorators import combinator, giving
from lazyckpt.pipeline import Listing

A = TypeVar("A", bound=Any)  # bound to Any, so that pyright doesn't check the body of a lambda


def _padded(key: Callable[[A], int], multiple: int, item: A) -> int:
    size = token_count("token_batch", key(item), item)
    return -(-size // multiple) * multiple


def _dropped(
    max_tokens: int, key: Any, pad_to_multiple_of: int, drop_longer: bool, **_: Any
) -> Callable[[Any], str | None] | None:
    if not drop_longer:
        return None
    return partial(_longer, max_tokens, partial(_padded, key, pad_to_multiple_of))


def _longer(max_tokens: int, size_of: Callable[[Any], int], item: Any) -> str | None:
    try:
        size = size_of(item)
    except Exception:  # raised by the stage
        return None
    return f"{size} tokens are more than max_tokens={max_tokens}" if size > max_tokens else None


@giving(Listing)
@combinator(
    checks={
        "max_tokens": positive,
        "key": function,
        "pad_to_multiple_of": positive,
        "max_items": optional(positive),
        "drop_longer": boolean,
    },
    functions={"key": "look"},
    elastic=Elastic(changes={"max_tokens": "here", "max_items": "here"}),
    dropped=_dropped,
)
def token_batch(
    upstream: Machine[A],
    max_tokens: int,
    *,
    key: Callable[[A], int],
    pad_to_multiple_of: int = 1,
    max_items: int | None = None,
    drop_longer: bool = False,
) -> Machine[list[A]]:
    """Batch consecutive items so that a padded batch has at most `max_tokens` tokens.

    A batch of n items has n times the tokens of its longest item. After a sort by length, or after
    `bucket_batch` and `unbatch`, few of them are padding.

    Args:
        max_tokens: Number of tokens per batch, padding included, an int >= 1.
        key: Function from an item to its number of tokens, an int >= 0.
        pad_to_multiple_of: Lengths are padded to a multiple of this, an int >= 1.
        max_items: Largest number of items per batch, an int >= 1; None for no limit.
        drop_longer: If True, drop an item longer than a batch. `run(..., on_error="skip")` counts
            and names such items in `Run.skipped`.

    Raises:
        ValueError: If an item is longer than a batch, without `drop_longer`.
        TypeError: If a number of tokens is not an int >= 0.

    State:
        None; the position is that of the next batch's first item.

    Resume:
        Re-reads one item at most.

    Random access:
        No.

    Rank-invariant:
        No; a `shard` after it gives each rank every n-th batch.

    Memory:
        One batch.

    >>> import lazyckpt as lz
    >>> words = lz.source("the mind of man is capable of anything".split())
    >>> list(words | lz.token_batch(8, key=len))
    [['the', 'mind'], ['of', 'man'], ['is'], ['capable'], ['of'], ['anything']]
    """
    most = max_items or math.inf

    def size_of(item: A) -> int:
        size = _padded(key, pad_to_multiple_of, item)
        if size > max_tokens and not drop_longer:
            raise ValueError(
                f"token_batch: an item of {size} tokens is longer than "
                f"max_tokens={max_tokens}: {brief(item)}; raise max_tokens or pass "
                "drop_longer=True"
            )
        return size

    def flow(position: Position) -> Flow[list[A]]:
        before, last = noted(anchored(upstream, position))
        mark, held = position, False

        def batches() -> Iterator[list[A]]:
            nonlocal mark, held
            batch, longest = list[A](), 0
            for item in before:
                size = size_of(item)
                if size <= max_tokens:
                    width = max(longest, size)
                    if batch and width * (len(batch) + 1) > max_tokens:
                        mark, held = last(), True
                        yield batch
                        batch, width = [], size
                    batch.append(item)
                    longest = width
                if len(batch) >= most or longest * (len(batch) + 1) > max_tokens:
                    held = False
                    yield batch
                    batch, longest = [], 0
            held = False
            if batch:
                yield batch

        return Flow(batches(), lambda: mark if held else before.snapshot())

    return stateless(
        upstream, rereads=lambda position: [Reread(position, begun(upstream, position))], flow=flow
    )

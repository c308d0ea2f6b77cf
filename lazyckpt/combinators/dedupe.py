"""`dedupe`: drop items that occurred recently."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from typing import Any, TypeVar

from lazyckpt.core.checks import brief, function, is_raised_here, positive
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine, Reread, begun, within
from lazyckpt.core.stages import stateful
from lazyckpt.decorators import combinator, giving
from lazyckpt.errors import SourceChanged
from lazyckpt.pipeline import Keeping

A = TypeVar("A", bound=Any)  # bound to Any, so that pyright doesn't check the body of a lambda


@giving(Keeping)
@combinator(checks={"key": function, "window": positive}, functions={"key": "look"})
def dedupe(upstream: Machine[A], key: Callable[[A], Hashable], *, window: int) -> Machine[A]:
    """Drop items whose key occurred in the previous `window` items.

    Args:
        key: Function from an item to a hashable key. A digest takes less memory than a long
            string.
        window: Number of previous items to compare with, an int >= 1; dropped items count too.

    Raises:
        TypeError: If a key is not hashable.

    State:
        The position of an item at least `window` items back, and a count of items since.

    Resume:
        Re-reads at most 2 * `window` items.

    Random access:
        No.

    Rank-invariant:
        No.

    Memory:
        `window` keys.

    >>> import lazyckpt as lz
    >>> "".join(lz.source(list("mississippi")) | lz.dedupe(str, window=2))
    'misiipi'
    """

    def flow(position: Position) -> Flow[A]:
        anchor, passed = position
        before = upstream.flow(anchor)
        last = _Last(window)
        # A position every `window` items: the last but one has a whole window after it.
        older, newer, since, ready = anchor, anchor, passed, False

        def noted(item: A) -> bool:
            found = key(item)
            try:
                hash(found)
            except TypeError as error:
                if not is_raised_here(error):
                    raise
                raise TypeError(
                    f"dedupe: key must return a hashable value, got {brief(found)} "
                    f"({type(found).__name__})"
                ) from error
            return last.add(found)

        def items() -> Iterator[A]:
            nonlocal older, newer, since, ready
            stream = iter(before)
            count = 0
            for count, item in enumerate(islice(stream, passed), 1):
                noted(item)
                if count == window:
                    newer = before.snapshot()
            if count < passed:
                raise SourceChanged(
                    f"dedupe: the state has read {passed} items since its anchor, "
                    f"but now there are {count}"
                )
            ready = True
            for item in stream:
                is_new = noted(item)
                since += 1
                if since % window == 0:
                    if since == 2 * window:
                        older, since = newer, window
                    newer = before.snapshot()
                if is_new:
                    yield item

        def reached() -> Position:
            return (older, since) if ready else position

        return Flow(items(), reached)

    return stateful(
        "dedupe",
        upstream,
        check=lambda passed: within("dedupe", passed, 2 * window - 1),
        rereads=lambda at: [Reread(at[0], max(at[1], begun(upstream, at[0])))],
        flow=flow,
    )


class _Last:
    """The keys of the last items."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._keys: deque[Any] = deque()
        self._counts: dict[Any, int] = {}

    def add(self, key: Any) -> bool:
        """Add the next item's key; return True if none of the others is equal to it."""
        counts = self._counts
        is_new = key not in counts
        counts[key] = counts.get(key, 0) + 1
        self._keys.append(key)
        if len(self._keys) > self._window:
            oldest = self._keys.popleft()
            counts[oldest] -= 1
            if not counts[oldest]:
                del counts[oldest]
        return is_new

"""`group_by`: groups of consecutive items with equal keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from lazyckpt.core.checks import brief, function
from lazyckpt.core.flow import Flow, Position, noted
from lazyckpt.core.machine import Machine, Reread, anchored, begun
from lazyckpt.core.stages import stateless
from lazyckpt.core.values import same
from lazyckpt.decorators import combinator, giving
from lazyckpt.pipeline import Grouping

A = TypeVar("A", bound=Any)  # bound to Any, so that pyright doesn't check the body of a lambda
K = TypeVar("K")


@giving(Grouping)
@combinator(checks={"key": function}, functions={"key": "look"})
def group_by(upstream: Machine[A], key: Callable[[A], K]) -> Machine[tuple[K, list[A]]]:
    """Group consecutive items with equal keys: `(key, items)`.

    Equal keys that aren't adjacent form separate groups, as in `itertools.groupby`. `items` is a
    complete list.

    Args:
        key: Function from an item to a key. Keys are compared by `==`; arrays, and containers of
            arrays, by value.

    Raises:
        TypeError: If two keys can't be compared; it names both.

    State:
        None; the position is that of the next group's first item.

    Resume:
        Re-reads one item.

    Random access:
        No.

    Rank-invariant:
        No.

    Memory:
        One group.

    >>> import lazyckpt as lz
    >>> list(lz.source(["to", "be", "or", "not"]) | lz.group_by(len))
    [(2, ['to', 'be', 'or']), (3, ['not'])]
    """

    def flow(position: Position) -> Flow[tuple[K, list[A]]]:
        before, last = noted(anchored(upstream, position))
        items = iter(before)
        mark, ended = position, False

        def runs() -> Iterator[tuple[K, list[A]]]:
            nonlocal mark, ended
            for item in items:
                found = key(item)
                break
            else:
                ended = True
                return
            while True:
                run = [item]
                for item in items:
                    new = key(item)
                    try:
                        is_same = found == new  # saves a call for most keys
                        if is_same is True:
                            run.append(item)
                            continue
                    except Exception:
                        is_same = None
                    if new is not found and (is_same is False or not alike("group_by", found, new)):
                        break
                    run.append(item)
                else:
                    ended = True
                    yield found, run
                    return
                mark = last()
                yield found, run
                found = new

        return Flow(runs(), lambda: before.snapshot() if ended else mark)

    return stateless(
        upstream,
        rereads=lambda position: [Reread(position, begun(upstream, position))],
        flow=flow,
    )


def alike(stage: str, a: Any, b: Any) -> bool:
    """Return whether two keys are equal; arrays, and tuples or lists of them, compare by value."""
    if a is b:
        return True
    try:
        found = a == b
        if found is True or found is False:
            return found
        if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
            return same(a, b)
        return bool(found)
    except Exception as error:
        if isinstance(a, (tuple, list, dict, np.ndarray)):
            return same(a, b)
        raise TypeError(f"{stage}: keys {brief(a)} and {brief(b)} can't be compared") from error

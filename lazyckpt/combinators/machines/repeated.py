"""The machine of `repeat`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np

from lazyckpt.core.flow import Flow, Position, View, blocks_of, in_blocks
from lazyckpt.core.machine import EPOCH_BITS, MOST, End, Machine, Rate, epochs_tried, machines
from lazyckpt.core.prng import Indices, as_array
from lazyckpt.core.stages import stateless
from lazyckpt.errors import PipelineError

A = TypeVar("A")


def repeated(upstream: Machine[A], count: int | None, what: str) -> Machine[A]:
    """Build the machine of `repeat`; `what` names the empty stream in an error."""

    def first(epoch: int) -> int:
        return epoch << EPOCH_BITS if count is None else epoch * max(count, 1)

    def own_epoch(position: Position) -> int:
        epoch = upstream.epoch(position)
        return epoch >> EPOCH_BITS if count is None else epoch // max(count, 1)

    def is_over(epoch: int) -> bool:
        if upstream.length == 0 and count is not None:
            return True
        return count is not None and (not count or (epoch + 1) % count == 0)

    is_known = upstream.length is not None
    most_empty = 1 if is_known else epochs_tried(machines(upstream)[0].length)

    def step(position: Position) -> tuple[Position, A]:
        empty = 0  # epochs from their beginning on
        while count != 0:
            try:
                return upstream.step(position)
            except End as end:
                if count is None and empty >= most_empty:
                    raise _empty(what) from None
                epoch = upstream.epoch(position)
                if is_over(epoch):
                    raise End(end.position) from None
            position, empty = upstream.init(epoch + 1), empty + 1
        raise End(position)

    def flow(position: Position) -> Flow[A]:
        current = upstream.flow(position)
        blocks, taken, pick_one = blocks_of(current)
        epoch = upstream.epoch(position)
        fresh = position == upstream.init(epoch)
        empty = 0  # epochs in a row, from their beginning on
        may_be_empty = count is None and not upstream.length
        passed = 0  # items of the flows before

        def begin_again() -> bool:
            """Begin the next epoch, if there is one."""
            nonlocal current, blocks, taken, pick_one, passed, epoch, fresh, empty
            if may_be_empty:
                empty = empty + 1 if fresh and not taken() else 0
                if empty >= most_empty:
                    raise _empty(what)
            if count is not None and is_over(epoch):
                return False
            epoch, fresh = epoch + 1, True
            following = upstream.flow(upstream.init(epoch))
            opened = blocks_of(following)
            passed, current, (blocks, taken, pick_one) = passed + taken(), following, opened
            return True

        def passes() -> Iterator[Iterator[A]]:
            while count != 0:
                found = blocks
                yield from found
                if found is blocks and not begin_again():
                    return

        def pick(n: int, index: int) -> tuple[int, list[A]]:
            found, own = pick_one(n, index)
            while found < n and begin_again():
                more, mine = pick_one(n - found, index - found)
                found, own = found + more, own + mine
            return found, own

        def reached() -> tuple[Position, int]:
            both = current.reached
            position, number = both() if both else (current.snapshot(), taken())
            return position, passed + number

        found = in_blocks(passes(), lambda: current.snapshot(), lambda: passed + taken(), reached)
        found.pick = pick if (current.pick or current.fn) and count != 0 else None
        return found

    return stateless(
        upstream,
        rate=Rate(epochs=math.inf),
        init=lambda epoch: upstream.init(first(epoch)),
        epoch=own_epoch,
        step=step,
        flow=flow,
        **_repeated_access(upstream, count, what),
    )


def _empty(what: str) -> PipelineError:
    return PipelineError(f"{what} to repeat forever is empty")


def _repeated_access(upstream: Machine[A], count: int | None, what: str) -> dict[str, Any]:
    jump, view, length = upstream.skip, upstream.view, upstream.length
    alone: Any = upstream.item
    known: tuple[Position, int] = (), 0  # items left in the epoch at the last requested position
    if count == 0:
        whole: int | float | None = 0
    elif count is None:
        whole = math.inf
    else:
        whole = None if length is None else length * count
    if jump is None or length is None:
        return {"length": whole}

    def skip(position: Position, n: int) -> tuple[Position, int]:
        after, passed = jump(position, n)
        if count == 0:
            return position, 0
        if not length:
            if n and count is None:
                raise _empty(what)
            return after, passed
        epoch = upstream.epoch(position)
        later = math.inf if count is None else count - 1 - epoch % count
        if passed == n or not later:
            return after, passed
        assert isinstance(length, int)
        wanted = n - passed
        whole = int(min((wanted - 1) // length, later - 1))
        final = upstream.init(epoch + 1 + whole)
        after, rest = jump(final, wanted - whole * length)
        return after, passed + whole * length + rest

    def item(position: Position, n: int) -> Any:
        nonlocal known
        here, left = known
        if here is not position:
            left = jump(position, MOST if length == math.inf else int(length))[1]
            known = position, left
        if n < left:
            return alone(position, n)
        if not length:
            raise _empty(what)
        epochs, rest = divmod(n - left, int(length))
        return alone(upstream.init(upstream.epoch(position) + 1 + epochs), rest)

    def ahead(position: Position, offsets: Indices) -> Indices:
        assert view is not None
        if length == math.inf or not len(offsets):
            return view.ahead(position, offsets)
        left = jump(position, int(offsets[-1]) + 1)[1] if isinstance(offsets, range) else 0
        if isinstance(offsets, range) and left > offsets[-1]:
            return view.ahead(position, offsets)
        assert isinstance(length, int)
        left = jump(position, length)[1]
        numbers = as_array(offsets) - left
        epochs = numbers // length  # -1 stands for the rest of this epoch
        found = np.empty_like(numbers)
        for number in np.unique(epochs).tolist():
            mine = epochs == number
            if number < 0:
                found[mine] = view.ahead(position, numbers[mine] + left)
            else:
                begin = upstream.init(upstream.epoch(position) + 1 + number)
                found[mine] = view.ahead(begin, numbers[mine] - number * length)
        return found

    return {"length": whole, "skip": skip, "item": item, "view": view and View(view.table, ahead)}

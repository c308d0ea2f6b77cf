"""A stage some of whose arguments are controls: a machine for each value, one after another."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Any, TypeVar

from lazyckpt.core.control import Control
from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import MOST, End, Machine, within
from lazyckpt.core.user_state import Own

U = TypeVar("U")


class Steering:
    """The values that a stage's controls have, by its items.

    Attributes:
        starts: From which item of which epoch on there are others, as `(epoch, item)`.
    """

    def __init__(self, controls: Sequence[Control]) -> None:
        by_place: dict[tuple[int, int], dict[str, Own]] = {}
        for each in controls:
            for since in each.changes:
                by_place.setdefault(since[:2], {})[each.name] = since.value
        self.starts = sorted(by_place)
        values = {each.name: each.first for each in controls}
        self._values = [values]
        for place in self.starts:
            values = {**values, **by_place[place]}
            self._values.append(values)

    def number(self, epoch: int, item: int) -> int:
        """The number of the values that hold for an item."""
        return bisect_right(self.starts, (epoch, item))

    def values(self, number: int) -> dict[str, Own]:
        return self._values[number]

    def until(self, number: int, epoch: int) -> int | None:
        """The item of the epoch from which on others hold; None where none do before its end."""
        if number == len(self.starts) or self.starts[number][0] != epoch:
            return None
        return self.starts[number][1]


def steered(
    name: str,
    controls: Sequence[Control],
    build: Callable[[dict[str, Own]], Machine[U]],
    *,
    has_access: bool,
) -> Machine[U]:
    """The machine of a stage that takes controls.

    Its own part is that of the stage and a count of the items that it has given in
    its epoch, by which it knows what values hold. So what is made again is made of
    the values that it was made of before.

    Args:
        name: What errors call the stage.
        controls: Those that it takes.
        build: The machine for values of these by name. What it says of itself but its
            items must not depend on them.
        has_access: Whether an item depends on no others, so that random access is kept.
    """
    steering = Steering(controls)
    numbers: dict[str, int] = {}  # of values as they are written

    @lru_cache(maxsize=4)
    def built(number: int) -> Machine[U]:
        return build(steering.values(number))

    def machine_of(epoch: int, item: int) -> Machine[U]:
        number = steering.number(epoch, item)
        return built(numbers.setdefault(repr(steering.values(number)), number))

    base = build(steering.values(0))

    def split(position: Position) -> tuple[Position, int]:
        *inner, given = position
        return tuple(inner) if base.owns else inner[0], given

    def joined(inner: Position, given: int) -> Position:
        return (*inner, given) if base.owns else (inner, given)

    def at(position: Position) -> tuple[Machine[U], Position, int]:
        inner, given = split(position)
        return machine_of(base.epoch(inner), given), inner, given

    def step(position: Position) -> tuple[Position, U]:
        machine, inner, given = at(position)
        try:
            after, item = machine.step(inner)
        except End as end:
            raise End(joined(end.position, given)) from None
        return joined(after, given + 1), item

    def flow(position: Position) -> Flow[U]:
        machine, inner, before = at(position)
        epoch = base.epoch(inner)
        current = machine.flow(inner)
        items, taken = counted(current)

        def parts() -> Iterator[Iterator[U]]:
            nonlocal current, before, items, taken
            while (until := steering.until(steering.number(epoch, before), epoch)) is not None:
                yield islice(items, until - before)
                if before + taken() < until:
                    return
                following = machine_of(epoch, until).flow(current.snapshot())
                some, number = counted(following)
                current, before, items, taken = following, until, some, number
            yield items

        return Flow(
            chain.from_iterable(parts()), lambda: joined(current.snapshot(), before + taken())
        )

    def skip(position: Position, n: int) -> tuple[Position, int]:
        assert base.skip is not None
        inner, given = split(position)
        after, passed = base.skip(inner, n)
        return joined(after, given + passed), passed

    def item(position: Position, n: int) -> U:
        inner, given = split(position)
        alone: Any = machine_of(base.epoch(inner), given + n).item
        found: U = alone(inner, n)
        return found

    def choices(position: Position, n: int) -> Iterator[int]:
        inner, given = split(position)
        epoch, item = base.epoch(inner), given + n
        while True:
            made: Any = machine_of(epoch, item).choices
            until = steering.until(steering.number(epoch, item), epoch)
            found = made(inner, item - given)
            if until is None:
                yield from found
                return
            yield from islice(found, until - item)
            item = until

    def check(position: Position) -> None:
        *_, given = position
        within(name, given, MOST)
        base.check(split(position)[0])

    def rereads(position: Position) -> Any:
        machine, inner, _ = at(position)
        return machine.rereads(inner)

    is_seekable = has_access and base.skip is not None
    return base._replace(
        init=lambda epoch: joined(base.init(epoch), 0),
        step=step,
        flow=flow,
        epoch=lambda position: base.epoch(split(position)[0]),
        skip=skip if is_seekable else None,
        item=item if is_seekable else None,
        view=None,
        check=check,
        rereads=rereads,
        owns=True,
        choices=base.choices and choices,
    )

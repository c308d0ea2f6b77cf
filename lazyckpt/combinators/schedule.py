"""Weights that change with the number of items so far, as a value: `schedule`."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, overload

from lazyckpt.combinators.machines.proportions import Scheduled, Weights, weights_of
from lazyckpt.core.checks import (
    Shown,
    Unfit,
    brief,
    checked,
    function,
    natural,
    one_of,
    optional,
    short,
)
from lazyckpt.core.show import show
from lazyckpt.errors import ArgumentError


@dataclass(frozen=True, repr=False)
class Schedule(Shown):
    """Weights for every number of items so far; called with that number, it returns them.

    Compared by points and interpolation, or by the name of its function.
    """

    points: tuple[tuple[int, Weights], ...]
    interpolate: Literal["linear"] | None
    name: str | None
    function: Scheduled | None = field(compare=False)

    def __call__(self, items: int) -> Sequence[float]:
        """The weights after so many items."""
        if self.function is not None:
            return self.function(items)
        number = bisect(self.points, items, key=lambda point: point[0])
        begin, before = self.points[number - 1]
        if self.interpolate is None or number == len(self.points):
            return before
        end, after = self.points[number]
        part = (items - begin) / (end - begin)
        return tuple([old + (new - old) * part for old, new in zip(before, after, strict=True)])

    def __repr__(self) -> str:
        if self.function is not None:
            return f"schedule({show(self.function)}, name={show(self.name)})"
        points = {number: [*weights] for number, weights in self.points}
        option = "" if self.interpolate is None else f", interpolate={self.interpolate!r}"
        return f"schedule({points}{option})"


@overload
def schedule(
    weights: Mapping[int, Sequence[float]], *, interpolate: Literal["linear"] | None = None
) -> Schedule: ...
@overload
def schedule(weights: Scheduled, *, name: str) -> Schedule: ...
def schedule(
    weights: Mapping[int, Sequence[float]] | Scheduled,
    *,
    interpolate: Literal["linear"] | None = None,
    name: str | None = None,
) -> Schedule:
    """Return weights that change with the number of items so far, for `mix`.

    A schedule is a value: equal ones are of one pipeline, and a state of a pipeline with a
    different one is refused. A function can't be compared, so a name stands for it; change
    the name whenever you change the function.

    Args:
        weights: The weights from a number of items on, by that number, beginning at 0; or a
            function from the number of items to weights.
        interpolate: "linear" to go from each weights to the next in a straight line; None to
            keep each until the next.
        name: A str of 1 to 40 characters that stands for a function.

    Raises:
        ArgumentError: If there are no weights for 0 items, if two have different lengths, or
            if a function has no name.

    >>> import lazyckpt as lz
    >>> easy_first = lz.schedule({0: [1, 0], 10_000: [1, 1]}, interpolate="linear")
    >>> easy_first(0), easy_first(2_500), easy_first(20_000)
    ((1.0, 0.0), (1.0, 0.25), (1, 1))
    >>> easy, hard = lz.source(range(5)) | lz.repeat(), lz.source([*"abc"]) | lz.repeat()
    >>> list(lz.mix([easy, hard], lz.schedule({0: [1, 0], 4: [0, 1]}), seed=0) | lz.take(6))
    [0, 1, 2, 3, 'a', 'b']
    """
    interpolate = checked("schedule", "interpolate", interpolate, optional(one_of("linear")))
    name = checked("schedule", "name", name, optional(short))
    if not isinstance(weights, Mapping):
        checked("schedule", "weights", weights, _points_or_function)
        if name is None or interpolate is not None:
            raise ArgumentError(
                f"schedule: a function needs a name that stands for it in states, and no "
                f"interpolation, got name={name!r} and interpolate={interpolate!r} for "
                f"{show(weights)}"
            )
        return Schedule((), None, name, weights)
    if name is not None:
        raise ArgumentError(
            f"schedule: name={name!r} is for a function; weights by numbers of items are "
            "compared by value"
        )
    return Schedule(checked("schedule", "weights", weights, _points), interpolate, None, None)


def known_weights(weights: Weights | Schedule | Scheduled) -> list[Weights]:
    """The weights that are known beforehand: none if a function computes them."""
    if isinstance(weights, Schedule):
        return [each for _, each in weights.points]
    return [] if callable(weights) else [weights]


def _points_or_function(value: Any) -> Any:
    try:
        return function(value)
    except Unfit:
        raise Unfit("a dict of weights by numbers of items, or a function") from None


def _points(value: Mapping[Any, Any]) -> tuple[tuple[int, Weights], ...]:
    points = []
    for number, weights in value.items():
        try:
            points.append((natural(number), weights_of(weights)))
        except Unfit as unfit:
            raise Unfit(f"{unfit}, in {brief({number: weights})}") from None
    points.sort()
    if not points or points[0][0]:
        raise Unfit("weights by numbers of items, with those for 0 among them")
    sizes = {len(weights) for _, weights in points}
    if len(sizes) > 1:
        raise Unfit(f"as many weights for each number of items, not {sorted(sizes)}")
    return tuple(points)

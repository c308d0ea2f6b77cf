"""Weights, or a length, as functions of the number of items so far."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, cast

from lazyckpt.combinators.machines.proportions import Scheduled, Weights
from lazyckpt.core.checks import Shown, Unfit, positive
from lazyckpt.core.show import show

V = TypeVar("V")

_FEW, _PARTS = 64, 256  # items of a straight line, and parts of one, in one step


@dataclass(frozen=True, repr=False)
class Schedule(Shown, Generic[V]):
    """Weights or a length, as a function of the number of items so far.

    Schedules are compared by points and interpolation, or by the name of the function.
    """

    points: tuple[tuple[int, Any], ...]
    interpolate: Literal["linear"] | None
    name: str | None
    function: Callable[[int], V] | None = field(compare=False)

    def __call__(self, items: int) -> V:
        """Return the value after a number of items."""
        if self.function is not None:
            return self.function(items)
        number = bisect(self.points, items, key=lambda point: point[0])
        begin, before = self.points[number - 1]
        if self.interpolate is not None and number < len(self.points):
            end, after = self.points[number]
            part = (items - begin) / (end - begin)
            pairs = zip(before, after, strict=True)
            before = tuple([old + (new - old) * part for old, new in pairs])
        return cast(V, before)

    def ends(self, items: int, n: int) -> tuple[int, V, V]:
        """Return how many of the next n numbers of items lie on one line of points, and its ends.

        The line is cut into parts if its values change much.

        Returns:
            How many numbers, and the values at the first and at the last one of them.
        """
        number = bisect(self.points, items, key=lambda point: point[0])
        if number < len(self.points):
            begin, end = self.points[number - 1][0], self.points[number][0]
            n = min(n, end - items)
            if self.interpolate is not None:
                n = min(n, max(_FEW, (end - begin) // _PARTS))
        return n, self(items), self(items + n - 1)

    def __repr__(self) -> str:
        if self.function is not None:
            return f"schedule({show(self.function)}, name={show(self.name)})"
        points = {
            number: [*value] if isinstance(value, tuple) else value for number, value in self.points
        }
        option = "" if self.interpolate is None else f", interpolate={self.interpolate!r}"
        return f"schedule({points}{option})"


def known_weights(weights: Weights | Schedule[Any] | Scheduled) -> list[Weights]:
    """Return the weights known beforehand: none if a function computes them."""
    if isinstance(weights, Schedule):
        return [each for _, each in weights.points]
    return [] if callable(weights) else [weights]


def row_length(value: Any) -> Any:
    """Check a row length: an int >= 1, or a schedule of such."""
    try:
        if not isinstance(value, Schedule):
            return positive(value)
        for _, length in value.points:
            positive(length)
    except Unfit as unfit:
        raise Unfit(f"{unfit}, or lz.schedule(...) of such") from None
    return value

"""`schedule`: weights, or a length, that change with the number of items so far."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, cast, overload

from lazyckpt.combinators.machines.proportions import Scheduled, Weights, weights_of
from lazyckpt.core.checks import (
    Shown,
    Unfit,
    brief,
    checked,
    function,
    is_integer,
    natural,
    one_of,
    optional,
    positive,
    short,
)
from lazyckpt.core.show import show
from lazyckpt.errors import ArgumentError

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


@overload
def schedule(points: Mapping[int, int], *, interpolate: None = None) -> Schedule[int]: ...
@overload
def schedule(
    points: Mapping[int, Sequence[float]], *, interpolate: Literal["linear"] | None = None
) -> Schedule[Sequence[float]]: ...
@overload
def schedule(points: Callable[[int], V], *, name: str) -> Schedule[V]: ...
def schedule(
    points: Mapping[int, Any] | Callable[[int], Any],
    *,
    interpolate: Literal["linear"] | None = None,
    name: str | None = None,
) -> Schedule[Any]:
    """Describe weights for `mix`, or a row length, that change with the number of items so far.

    The number counts what the stage has yielded in this epoch: items of `mix`, rows of
    `concat_then_split`, `pack_first_fit` and `pack_best_fit`.

    A schedule is a value. Pipelines with equal schedules are equal, and a state of a pipeline
    with a different schedule is refused. A function can't be compared, so a name stands for it;
    change the name whenever you change the function.

    Args:
        points: A dict from a number of items, beginning at 0, to the weights or the length from
            there on; or a function from the number of items to weights or a length.
        interpolate: "linear" to change weights in a straight line from one point to the next; None
            to keep each value until the next.
        name: A str of 1 to 40 characters that stands for a function.

    Raises:
        ArgumentError: If there is no value for 0 items, if two weights have different lengths, if
            lengths are to be interpolated, or if a function has no name.

    >>> import lazyckpt as lz
    >>> easy_first = lz.schedule({0: [1, 0], 10_000: [1, 1]}, interpolate="linear")
    >>> easy_first(0), easy_first(2_500), easy_first(20_000)
    ((1.0, 0.0), (1.0, 0.25), (1, 1))
    >>> easy, hard = lz.source(range(5)) | lz.repeat(), lz.source([*"abc"]) | lz.repeat()
    >>> list(lz.mix([easy, hard], lz.schedule({0: [1, 0], 4: [0, 1]}), seed=0) | lz.take(6))
    [0, 1, 2, 3, 'a', 'b']
    >>> longer = lz.concat_then_split(lz.schedule({0: 2, 2: 4}))
    >>> [row["tokens"].tolist() for row in [[1, 2, 3, 4, 5, 6, 7, 8]] | longer]
    [[1, 2], [3, 4], [5, 6, 7, 8]]
    """
    interpolate = checked("schedule", "interpolate", interpolate, optional(one_of("linear")))
    name = checked("schedule", "name", name, optional(short))
    if not isinstance(points, Mapping):
        checked("schedule", "points", points, _points_or_function)
        if name is None or interpolate is not None:
            raise ArgumentError(
                f"schedule: a function needs a name that stands for it in states, and no "
                f"interpolation, got name={name!r} and interpolate={interpolate!r} for "
                f"{show(points)}"
            )
        return Schedule((), None, name, points)
    if name is not None:
        raise ArgumentError(
            f"schedule: name={name!r} is for a function; values by number of items are "
            "compared by value"
        )
    found = checked("schedule", "points", points, _points)
    if interpolate is not None and not isinstance(found[0][1], tuple):
        raise ArgumentError(
            f"schedule: interpolate={interpolate!r} is for weights; a length holds until the next"
        )
    return Schedule(found, interpolate, None, None)


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


def _points_or_function(value: Any) -> Any:
    try:
        return function(value)
    except Unfit:
        raise Unfit("a dict of weights or lengths by number of items, or a function") from None


def _points(value: Mapping[Any, Any]) -> tuple[tuple[int, Any], ...]:
    points = []
    for number, each in value.items():
        try:
            found = natural(number), positive(each) if is_integer(each) else weights_of(each)
        except Unfit as unfit:
            raise Unfit(f"{unfit}, in {brief({number: each})}") from None
        points.append(found)
    points.sort(key=lambda point: point[0])
    if not points or points[0][0]:
        raise Unfit("weights or lengths by number of items, including 0 items")
    weights = [each for _, each in points if isinstance(each, tuple)]
    sizes = {len(each) for each in weights}
    if len(sizes) > 1:
        raise Unfit(f"the same number of weights for each number of items, not {sorted(sizes)}")
    if weights and len(weights) < len(points):
        raise Unfit("only weights, or only lengths")
    return tuple(points)

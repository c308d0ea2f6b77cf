"""`schedule`: weights, or a length, that change with the number of items so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

from lazyckpt.combinators.machines.proportions import weights_of
from lazyckpt.combinators.machines.schedules import Schedule
from lazyckpt.core.checks import (
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


def _points_or_function(value: Any) -> Any:
    try:
        return function(value)
    except Unfit:
        raise Unfit("a dict of weights or lengths by number of items, or a function") from None


def _points(value: Mapping[Any, Any]) -> tuple[tuple[int, Any], ...]:
    points = []
    for number, each in value.items():
        try:
            key = natural(number)
        except Unfit as unfit:
            raise ArgumentError(
                f"schedule: each key of points is a number of items, {unfit}, got {brief(number)} "
                f"({type(number).__name__})"
            ) from None
        fits = positive if is_integer(each) else weights_of
        points.append((key, checked("schedule", f"points[{key}]", each, fits)))
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

"""How things are measured: two sides in turn, and the ratio of each pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter
from typing import Any

Action = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure measured several times, and what it may be."""

    name: str
    compared: str
    values: list[float]
    unit: str = ""  # of the values; a ratio has none
    bound: float | None = None
    sides: str = ""  # the two sides of a ratio, in a unit of their own
    contestant: str = ""  # whose figure it is, where several libraries compete
    to_hand: float | None = None  # ratio to the same written by hand
    to_peer: float | None = None  # ratio to the best of the other libraries
    remark: str = ""  # what there is to say instead of, or beside, a figure

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def met(self) -> str:
        return "" if self.bound is None else "yes" if self.median <= self.bound else "NO"

    @property
    def lost(self) -> bool:
        """Whether it is ours, and another library or the bound is ahead."""
        return (self.to_peer or 0) > 1 or self.met == "NO"

    def to_json(self) -> dict[str, Any]:
        figures = {} if not self.values else {"median": self.median, "met": self.met}
        return asdict(self) | figures


Case = Callable[[int], Iterator[Row]]


def seconds(action: Action) -> float:
    """What one call takes. The garbage collector stays on, for both sides alike."""
    begun = perf_counter()
    action()
    return perf_counter() - begun


def paired(ours: Action, theirs: Action, rounds: int) -> list[tuple[float, float]]:
    """Seconds of both sides, taken in turn, after one of each that is not counted."""
    ours(), theirs()
    return [(seconds(ours), seconds(theirs)) for _ in range(rounds)]


def compared(
    name: str,
    what: str,
    ours: Action,
    theirs: Action,
    rounds: int,
    n: int,
    bound: float | None = None,
) -> Row:
    """A row of ratios, with the nanoseconds per item of both sides; n is the number of items."""
    pairs = paired(ours, theirs, rounds)
    a, b = (median(side) / n * 1e9 for side in zip(*pairs, strict=True))
    ratios = [x / y for x, y in pairs]
    sides = f"{a:,.1f} / {b:,.1f} ns"
    return Row(name, what, ratios, "", bound, sides, to_hand=median(ratios))


def spent(items: Any) -> None:
    """Go through items as a training loop does: a `for` with an empty body."""
    for _ in items:
        pass


def spent_by_workers(items: Any) -> dict[str, float]:
    """The same, with the first item, for which workers start, told from the others."""
    begun = perf_counter()
    stream = iter(items)
    next(stream)
    first = perf_counter() - begun
    others = sum(1 for _ in stream)
    return {"seconds": (perf_counter() - begun - first) * (others + 1) / others, "first": first}

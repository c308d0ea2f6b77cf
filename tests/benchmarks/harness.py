"""How things are measured: two sides in turn, and the ratio of each pair."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
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


def fresh(imports: str, first: str) -> Action:
    """A new interpreter, which imports a library beside NumPy and makes a first item by it."""
    code = f"import numpy\n{imports}\n{first}\n"
    command = [sys.executable, "-c", code]

    def go() -> None:
        subprocess.run(command, check=True, capture_output=True)

    return go


def spent_by_workers(make: Callable[[], Iterable[Any]], n: int) -> dict[str, float]:
    """The same for n items, with the first one, for which workers start, told from the others."""
    begun = perf_counter()
    stream = iter(make())
    next(stream)
    first = perf_counter() - begun
    spent(stream)
    return {"seconds": (perf_counter() - begun - first) * n / (n - 1), "first": first}


def by_workers(make: Callable[[], Iterable[Any]], n: int) -> Callable[[], dict[str, float]]:
    return lambda: spent_by_workers(make, n)

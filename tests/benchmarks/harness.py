"""Measure two sides in turn, or libraries, each in its own process."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

BY_HAND, OURS = "by hand", "lazyckpt"
PEERS = {
    name: f"contestants.of_{name.replace(' ', '_')}"
    for name in (
        "infinibatch",
        "grain",
        "torch",
        "torchdata",
        "nodes",
        "datasets",
        "datasets streaming",
        "pyarrow",
        "indexed_gzip",
        "webdataset",
        "seqtools",
        "toolz",
    )
}
MODULES = {BY_HAND: "contestants.by_hand", OURS: "contestants.of_lazyckpt"} | PEERS
HERE = Path(__file__).parent

Action = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """A line of the table: a figure measured several times, and its limit."""

    name: str
    compared: str
    values: list[float]
    unit: str = ""  # of the values; a ratio has none
    bound: float | None = None
    sides: str = ""  # the two sides of a ratio, in a unit of their own
    contestant: str = ""  # whose figure it is if several libraries compete
    to_hand: float | None = None  # ratio to the same written by hand
    to_peer: float | None = None  # ratio to the best of the other libraries
    remark: str = ""  # text in place of a figure, or next to it

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def met(self) -> str:
        return "" if self.bound is None else "yes" if self.median <= self.bound else "NO"

    def to_json(self) -> dict[str, Any]:
        figures = {} if not self.values else {"median": self.median, "met": self.met}
        return asdict(self) | figures


Case = Callable[[int], Iterator[Row]]


def seconds(action: Action) -> float:
    """The seconds of one call. The garbage collector stays on for both sides."""
    begun = perf_counter()
    action()
    return perf_counter() - begun


def compared(
    name: str,
    what: str,
    ours: Action,
    theirs: Action,
    rounds: int,
    n: int,
    bound: float | None = None,
) -> Row:
    """A row of ratios, with the nanoseconds per item of both sides; n is the number of items.

    Both are taken in turn, after one of each that is not counted.
    """
    ours(), theirs()
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(rounds)]
    a, b = (median(side) / n * 1e9 for side in zip(*pairs, strict=True))
    ratios = [x / y for x, y in pairs]
    sides = f"{a:,.1f} / {b:,.1f} ns"
    return Row(name, what, ratios, "", bound, sides, to_hand=median(ratios))


def spent(items: Any) -> None:
    """Iterate as a training loop does: a `for` with an empty body."""
    for _ in items:
        pass


def fresh(imports: str, first: str) -> Action:
    """A new interpreter, which imports NumPy and a library and computes a first item with it."""
    command = [sys.executable, "-c", f"import numpy\n{imports}\n{first}\n"]

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


@dataclass(frozen=True)
class Contest:
    """A workload: `what` is done to n items, and the figures to keep.

    `figures` has, by the key of a contestant's measurement, the row's words, the unit, and the
    factor from the measured value to that unit. The value of `seconds` is per item.
    """

    row: str
    what: str
    n: int
    figures: dict[str, tuple[str, str, float]] = field(
        default_factory=lambda: {"seconds": ("", "ns", 1e9)}
    )
    key: str = ""  # the names of its functions, if they differ from the row's
    for_all: tuple[str, ...] = ()  # figures at which peers count that don't resume exactly


@dataclass(frozen=True)
class Terms:
    """How long contestants may take, in seconds.

    One whose round takes longer than `take_tokens` is out. One whose rounds took
    `enough` together has no more of them.
    """

    rounds: int
    limit: float
    enough: float


class Contestant:
    """A process that measures a round whenever it is told to."""

    def __init__(self, name: str, row: str, n: int, terms: Terms) -> None:
        self.name, self.terms = name, terms
        self.rounds: list[dict[str, float]] = []
        self.lost = self.way = ""
        self.took = 0.0
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "contestant.py"), MODULES[name], row, f"{n}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that its workers can be ended with it
        )

    def begin(self) -> None:
        """A first round that isn't counted, unless it takes long enough to be the only one."""
        said = self.answer()
        if said and said["took"] > self.terms.enough:
            self.took = said["took"]
            self.rounds.append(said["figures"])
        self.way = said.get("way", "")

    def measure(self) -> None:
        """A round, unless it is out or had enough of them."""
        if self.lost or self.took > self.terms.enough:
            return
        assert self.process.stdin
        with contextlib.suppress(OSError):  # its answer says that it ended
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
        if said := self.answer():
            self.rounds.append(said["figures"])
            self.took += said["took"]

    def answer(self) -> dict[str, Any]:
        """Its next line; None if it is out of the race, and `lost` says why."""
        output = self.process.stdout
        assert output
        if not select.select([output], [], [], self.terms.limit)[0]:
            return self.out(f"not done within {self.terms.limit:g} s")
        said = json.loads(output.readline() or '{"error": "its process ended"}')
        if "missing" in said:
            return self.out(f"not installed: no module {said['missing']}")
        if "error" in said:
            return self.out(f"failed: {said['error']}")
        return said  # type: ignore[no-any-return]

    def out(self, why: str) -> dict[str, Any]:
        self.close()
        self.lost = why
        return {}

    def close(self) -> None:
        if not self.lost:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()


def has_way(name: str, row: str) -> bool:
    """Return whether a contestant's module has a function for a row, without importing it."""
    found = find_spec(MODULES[name])
    assert found
    assert found.origin
    tree = ast.parse(Path(found.origin).read_text("utf-8"))
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return any(name.split("_")[0] == row for name in functions)


def hold(contest: Contest, names: Sequence[str], terms: Terms) -> Iterator[Row]:
    """Rows of all contestants, best first; those that fail have rows that say how."""
    held: list[Contestant] = []
    key = contest.key or contest.row.lower()
    able = [name for name in names if has_way(name, key)]
    absent = [name for name in names if name not in able]
    interrupted: KeyboardInterrupt | None = None
    try:
        for name in able:  # one at a time: they would share the processors
            held.append(Contestant(name, key, contest.n, terms))
            held[-1].begin()
        for _ in range(terms.rounds):
            for contestant in held:
                contestant.measure()
    except KeyboardInterrupt as error:
        interrupted = error
    finally:
        for contestant in held:
            contestant.close()
    yield from rows(contest, [contestant for contestant in held if not contestant.lost])
    said = Row(contest.row, contest.what, [])
    for contestant in held:
        if contestant.lost:
            yield replace(said, contestant=contestant.name, remark=contestant.lost)
    if absent:
        yield replace(said, remark=f"has no way to: {', '.join(absent)}")
    if interrupted:  # raised after the figures that are known
        raise interrupted


def rows(contest: Contest, racing: Sequence[Contestant]) -> Iterator[Row]:
    inexact = {each.name: words for each in racing if (words := inexactness(each))}
    for key, (words, unit, factor) in contest.figures.items():
        per = factor / contest.n if key == "seconds" else factor
        ways = {each: [r[key] * per for r in each.rounds if key in r] for each in racing}
        found = {each.name: values for each, values in ways.items() if values}
        wrong = {} if key in contest.for_all else inexact
        fair = found.keys() & PEERS.keys() - wrong.keys()
        best = min(fair, key=lambda name: median(found[name]), default="")
        what = f"{contest.what}: {words}" if words else contest.what
        for each in sorted(filter(ways.get, ways), key=lambda each: median(ways[each])):
            values, name = ways[each], each.name
            to_hand = _ratio(values, found.get(BY_HAND)) if name != BY_HAND else None
            to_peer = _ratio(values, found.get(best)) if name == OURS else None
            behind = f"behind {best}" if to_peer and to_peer > 1 else ""
            remark = ", ".join(filter(None, [each.way, behind, wrong.get(name, "")]))
            yield Row(contest.row, what, values, unit, None, "", name, to_hand, to_peer, remark)


def inexactness(contestant: Contestant) -> str:
    for key, words in (("inexact", "not exact"), ("inexact again", "not exact the second time")):
        if any(figures.get(key) for figures in contestant.rounds):
            return words
    return ""


def _ratio(values: list[float], others: list[float] | None) -> float | None:
    """The median of the ratios, round by round: what disturbs one disturbs its neighbour."""
    if not others or not all(others):
        return None
    return median(a / b for a, b in zip(values, others, strict=False))

"""Libraries that do the same, in turn, each in a process of its own and within a time limit."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from harness import Row

BY_HAND, OURS = "by hand", "lazyckpt"
PEERS = {
    "infinibatch": "contestants.of_infinibatch",
    "grain": "contestants.of_grain",
    "torch": "contestants.of_torch",
    "torchdata": "contestants.of_torchdata",
    "nodes": "contestants.of_nodes",
    "datasets": "contestants.of_datasets",
    "datasets streaming": "contestants.of_datasets_streaming",
    "pyarrow": "contestants.of_pyarrow",
    "indexed_gzip": "contestants.of_indexed_gzip",
    "rapidgzip": "contestants.of_rapidgzip",
    "webdataset": "contestants.of_webdataset",
    "seqtools": "contestants.of_seqtools",
    "streaming": "contestants.of_streaming",
    "toolz": "contestants.of_toolz",
    "cytoolz": "contestants.of_cytoolz",
}
MODULES = {BY_HAND: "contestants.by_hand", OURS: "contestants.of_lazyckpt"} | PEERS
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Contest:
    """A workload: `what` is done to n items, and the figures that are kept of it.

    `figures` says, for each key of what a contestant measures, the row's words,
    the unit and the factor from the measured value to that unit. Of `seconds`
    the value is that of one item.
    """

    row: str
    what: str
    n: int
    figures: dict[str, tuple[str, str, float]] = field(
        default_factory=lambda: {"seconds": ("", "ns", 1e9)}
    )
    key: str = ""  # what its functions are named, where not as the row
    for_all: tuple[str, ...] = ()  # figures at which peers count that don't resume exactly


@dataclass(frozen=True)
class Terms:
    """How long contestants may take, in seconds.

    One whose round takes longer than `limit` is out. One whose rounds took
    `enough` together has no more of them.
    """

    rounds: int
    limit: float
    enough: float


class Lost(Exception):
    """A contestant is out of the race; the message says why."""


class Contestant:
    """A process that measures a round whenever it is told to."""

    def __init__(self, name: str, row: str, n: int, limit: float) -> None:
        self.name, self.limit = name, limit
        self.rounds: list[dict[str, float]] = []
        self.remark = self.way = ""
        self.took = 0.0
        self.process = subprocess.Popen(
            [
                sys.executable,
                str(HERE / "contestant.py"),
                MODULES[name],
                row,
                f"{n}",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that its workers can be ended with it
        )

    def answer(self) -> dict[str, Any]:
        """The next line that it gives; `Lost` if that doesn't come, or says why none will."""
        output = self.process.stdout
        assert output
        if not select.select([output], [], [], self.limit)[0]:
            raise Lost(f"not done within {self.limit:g} s")
        said = json.loads(output.readline() or '{"error": "its process ended"}')
        if "missing" in said:
            raise Lost(f"not installed: no module {said['missing']}")
        if "error" in said:
            raise Lost(f"failed: {said['error']}")
        return said  # type: ignore[no-any-return]

    def begin(self, enough: float) -> None:
        """A first round that isn't counted, unless it takes long enough to be the only one."""
        said = self.answer()
        self.way = said["way"]
        if said["took"] > enough:
            self.took = said["took"]
            self.rounds.append(said["first"])

    def measure(self) -> None:
        assert self.process.stdin
        begun = perf_counter()
        try:
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
        except OSError:
            raise Lost("failed: its process ended") from None
        self.rounds.append(self.answer()["figures"])
        self.took += perf_counter() - begun

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def has_way(name: str, row: str) -> bool:
    """Whether a contestant's module has a function for a row, told without importing it."""
    found = find_spec(MODULES[name])
    assert found
    assert found.origin
    tree = ast.parse(Path(found.origin).read_text("utf-8"))
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return any(name.split("_")[0] == row for name in functions)


def hold(contest: Contest, names: Sequence[str], terms: Terms) -> Iterator[Row]:
    """Rows of all contestants, best first; those that fail have rows that say how."""
    racing: list[Contestant] = []
    lost: list[Contestant] = []
    key = contest.key or contest.row.lower()
    able = [name for name in names if has_way(name, key)]
    absent = [name for name in names if name not in able]
    interrupted: KeyboardInterrupt | None = None
    try:
        for name in able:
            contestant = Contestant(name, key, contest.n, terms.limit)
            racing.append(contestant)  # one at a time: they would share the processors
            try:
                contestant.begin(terms.enough)
            except Lost as why:
                _out(contestant, why, racing, lost)
        for _ in range(terms.rounds):
            for contestant in tuple(racing):
                if contestant.took > terms.enough:
                    continue
                try:
                    contestant.measure()
                except Lost as why:
                    _out(contestant, why, racing, lost)
    except KeyboardInterrupt as error:
        interrupted = error
    finally:
        for contestant in racing + lost:
            contestant.close()
    yield from rows(contest, racing)
    for contestant in lost:
        yield Row(
            contest.row, contest.what, [], contestant=contestant.name, remark=contestant.remark
        )
    if absent:
        yield Row(contest.row, contest.what, [], remark=f"has no way to: {', '.join(absent)}")
    if interrupted:  # what is measured is told first
        raise interrupted


def _out(
    contestant: Contestant, why: Lost, racing: list[Contestant], lost: list[Contestant]
) -> None:
    contestant.remark = str(why)
    contestant.close()
    racing.remove(contestant)
    lost.append(contestant)


def rows(contest: Contest, racing: Sequence[Contestant]) -> Iterator[Row]:
    inexact = {c.name: wrong for c in racing if (wrong := inexactness(c))}
    for key, (words, unit, factor) in contest.figures.items():
        each = factor / contest.n if key == "seconds" else factor
        found = {c.name: [r[key] * each for r in c.rounds if key in r] for c in racing}
        found = {name: values for name, values in found.items() if values}
        wrong = {} if key in contest.for_all else inexact
        peers = {
            name: median(v) for name, v in found.items() if name in PEERS.keys() - wrong.keys()
        }
        best = min(peers, key=lambda name: peers[name], default="")
        what = f"{contest.what}: {words}" if words else contest.what
        for contestant in sorted(
            (c for c in racing if c.name in found), key=lambda c: median(found[c.name])
        ):
            values, name = found[contestant.name], contestant.name
            to_hand = _ratio(values, found.get(BY_HAND)) if name != BY_HAND else None
            to_peer = _ratio(values, found.get(best)) if name == OURS else None
            behind = f"behind {best}" if to_peer and to_peer > 1 else ""
            remark = ", ".join(filter(None, [contestant.way, behind, wrong.get(name, "")]))
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

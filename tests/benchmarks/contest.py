"""Libraries that do the same, in turn, each in a process of its own and within a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
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
    rounds: int = 1_000  # at most, where one takes long
    key: str = ""  # what its functions are named, where not as the row
    for_all: tuple[str, ...] = ()  # figures at which peers count that don't resume exactly


class Lost(Exception):
    """A contestant is out of the race; the message says why."""


class Contestant:
    """A process that measures a round whenever it is told to."""

    def __init__(self, name: str, row: str, n: int, limit: float) -> None:
        self.name, self.limit = name, limit
        self.rounds: list[dict[str, float]] = []
        self.remark = self.way = ""
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

    def measure(self) -> None:
        assert self.process.stdin
        try:
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
        except OSError:
            raise Lost("failed: its process ended") from None
        self.rounds.append(self.answer()["figures"])

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def hold(contest: Contest, names: Sequence[str], rounds: int, limit: float) -> Iterator[Row]:
    """Rows of all contestants, best first; those that fail have rows that say how."""
    racing: list[Contestant] = []
    lost: list[Contestant] = []
    absent: list[str] = []
    interrupted: KeyboardInterrupt | None = None
    try:
        for name in names:
            contestant = Contestant(name, contest.key or contest.row.lower(), contest.n, limit)
            racing.append(contestant)  # one at a time: they would share the processors
            try:
                said = contestant.answer()
                contestant.way = said.get("way", "")
                if "absent" in said:
                    racing.remove(contestant)
                    contestant.close()
                    absent.append(name)
            except Lost as why:
                _out(contestant, why, racing, lost)
        for _ in range(min(rounds, contest.rounds)):
            for contestant in tuple(racing):
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
    inexact = {c.name for c in racing if any(r.get("inexact") for r in c.rounds)}
    for key, (words, unit, factor) in contest.figures.items():
        each = factor / contest.n if key == "seconds" else factor
        found = {c.name: [r[key] * each for r in c.rounds if key in r] for c in racing}
        found = {name: values for name, values in found.items() if values}
        out = set() if key in contest.for_all else inexact
        peers = {name: median(v) for name, v in found.items() if name in PEERS.keys() - out}
        best = min(peers, key=lambda name: peers[name], default="")
        what = f"{contest.what}: {words}" if words else contest.what
        for contestant in sorted(
            (c for c in racing if c.name in found), key=lambda c: median(found[c.name])
        ):
            values, name = found[contestant.name], contestant.name
            to_hand = _ratio(values, found.get(BY_HAND)) if name != BY_HAND else None
            to_peer = _ratio(values, found.get(best)) if name == OURS else None
            behind = f"behind {best}" if to_peer and to_peer > 1 else ""
            wrong = "not exact" if name in out else ""
            remark = ", ".join(filter(None, [contestant.way, behind, wrong]))
            yield Row(contest.row, what, values, unit, None, "", name, to_hand, to_peer, remark)


def _ratio(values: list[float], others: list[float] | None) -> float | None:
    """The median of the ratios, round by round: what disturbs one disturbs its neighbour."""
    if not others or not all(others):
        return None
    return median(a / b for a, b in zip(values, others, strict=False))

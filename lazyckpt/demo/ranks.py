"""The demo of several ranks: one is killed, the others resume as fewer, and no line is lost."""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import subprocess
import sys
from collections.abc import Sequence
from threading import Thread
from time import monotonic

import lazyckpt
from lazyckpt.core.checks import plural
from lazyckpt.demo.data import library, users
from lazyckpt.demo.rank import ROWS, SAVES, Share, batches
from lazyckpt.demo.screen import Screen
from lazyckpt.demo.training import BUFFER, Job
from lazyckpt.demo.trial import ChildFailed
from lazyckpt.executors.sharing.meeting import MeetingPlace

_SILENCE = 60.0  # seconds without a step, after which ranks count as stuck


class Rank:
    """A process that is one rank, and its reports.

    Attributes:
        rows: The digests of its rows, in order.
        states: Its states, by the number of steps before them.
        calls: The number of lines that it has computed.
        lost: Its message after it lost a different rank.
        has_ended: True if it ended by itself.
    """

    def __init__(self, share: Share) -> None:
        self.number = share.rank
        self.rows: list[str] = []
        self.states: dict[int, str] = {}
        self.calls, self.lost, self.has_ended = 0, "", False
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "lazyckpt.demo.rank"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches only this process
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        )
        assert self.process.stdin is not None
        self.process.stdin.write(share.to_json() + "\n")
        self.process.stdin.close()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def steps(self) -> int:
        return len(self.rows) // ROWS

    @property
    def is_running(self) -> bool:
        return self._reader.is_alive()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):  # it was killed while writing
                return
            word, _, rest = line.strip().partition(" ")
            match word:
                case "rows":
                    self.rows += rest.split()
                case "state":
                    self.states[self.steps] = rest
                case "calls":
                    self.calls = int(rest)
                case "lost":
                    self.lost = rest
                case "end":
                    self.has_ended = True

    def join(self, seconds: float) -> None:
        """Wait until it ends."""
        self._reader.join(seconds)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


def demo_of_ranks(
    screen: Screen, data: Sequence[str] | None, size: int, lines: int, seed: int
) -> int:
    """Run the demo; return 0 if the rows equal those of a single rank, else 1."""
    begun, fewer = monotonic(), size - 1
    screen.line(f"lazyckpt {lazyckpt.__version__}: kill one of {size} ranks, resume on {fewer}\n")
    text = library(screen.line) if data is None else users(data)
    job = Job.of(text, lines, seed)
    steps = min(lines, job.lines * job.epochs) // (2 * size * ROWS)
    if steps < 2 * SAVES:
        raise ChildFailed(f"too few lines for {size} ranks; pass more --lines")
    screen.line(f"{Share(job, 0, size, steps).pipeline!r}\n")
    screen.line(f"{size} ranks: one of them computes each line, and sends it to all")
    first = _together(screen, job, size, steps, None, random.randrange(size))
    saved = max(set.intersection(*({*each.states} for each in first)))
    states = {each.states[saved] for each in first}
    state = states.pop()
    screen.line(f"{plural(fewer, 'rank')}, from the state saved after step {saved}")
    second = _together(screen, job, fewer, steps, state, None)
    parts = [_dealt(first, saved), _dealt(second, steps)]
    alone = [_alone(job, None, len(parts[0])), _alone(job, state, len(parts[1]))]
    rows = [
        ("rows", f"{sum(map(len, parts)):,}", f"on {size} ranks, then on {fewer}"),
        ("digest up to the save", *_compared(_digest(parts[0]), _digest(alone[0]))),
        ("digest after resuming", *_compared(_digest(parts[1]), _digest(alone[1]))),
        ("states of all ranks", f"{len(state)} bytes", "DIFFERENT" if states else "same"),
        ("lines computed", f"{sum(each.calls for each in first + second):,}",
         f"including two buffers of {BUFFER:,}"),
    ]  # fmt: skip
    for name, value, remark in rows:
        screen.line(f"{name:<22} {value:>14}   {remark}")
    screen.line(f"\nThe state, for any number of ranks:\n{state}\n")
    if parts != alone or states:
        screen.line("NOT the same: the loss of a rank has changed the stream.")
        return 1
    screen.line(f"The same rows as on a single rank. {monotonic() - begun:.0f} seconds in total.")
    return 0


def _together(
    screen: Screen, job: Job, size: int, steps: int, state: str | None, victim: int | None
) -> list[Rank]:
    """Run all ranks to their end, and kill one of them if `victim` is set."""
    secret = secrets.token_bytes()
    place = MeetingPlace("127.0.0.1", secret, size, _SILENCE)
    found: list[Rank] = []
    try:
        for rank in range(size):
            at = "127.0.0.1", place.port, secret.hex()
            found.append(Rank(Share(job, rank, size, steps, state, at)))
        _watch(screen, found, victim, random.randint(SAVES + 1, max(SAVES + 1, steps * 3 // 4)))
    finally:
        place.close()
        for each in found:
            each.end()
    for each in found:
        if not each.has_ended and each.number != victim:
            raise ChildFailed(f"rank {each.number} failed, exit status {each.process.returncode}")
        if each.lost:
            screen.line(f"  step {each.steps:,}   rank {each.number}: {each.lost}")
    if victim is None:
        screen.line(f"  step {steps:,}   done")
    screen.line()
    return found


def _watch(screen: Screen, found: list[Rank], victim: int | None, moment: int) -> None:
    """Wait until all ranks have ended; kill one at a step."""
    last, done = monotonic(), -1
    while running := [each for each in found if each.is_running]:
        slowest = min(each.steps for each in running)
        if slowest > done:
            last, done = monotonic(), slowest
        elif monotonic() - last > _SILENCE:
            raise ChildFailed(f"the ranks made no step in {_SILENCE:.0f} s")
        screen.status(f"  step {done:,}")
        if victim is not None and found[victim].steps >= moment:
            found[victim].process.kill()
            screen.line(f"  step {found[victim].steps:,}   rank {victim} is killed")
            victim = None
        running[0].join(0.01)


def _dealt(found: list[Rank], steps: int) -> list[str]:
    """Return the rows of all ranks as one stream, in the order in which `shard` has dealt them."""
    turns = zip(*(each.rows[: steps * ROWS] for each in found), strict=True)
    return [row for turn in turns for row in turn]


def _alone(job: Job, state: str | None, count: int) -> list[str]:
    """Return the same rows from a single rank."""
    return [row for rows, _ in batches(Share(job, 0, 1, count // ROWS, state)) for row in rows]


def _digest(rows: Sequence[str]) -> str:
    return hashlib.sha256("".join(rows).encode()).hexdigest()[:12]


def _compared(found: str, expected: str) -> tuple[str, str]:
    return found, "as one rank alone" if found == expected else f"DIFFERENT: {expected} alone"

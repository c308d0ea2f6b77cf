"""The demo of several ranks: one is killed, the others resume as fewer, and no line is lost."""

from __future__ import annotations

import hashlib
import random
import secrets
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

import lazyckpt as lz
from lazyckpt.core.checks import plural
from lazyckpt.demo.child import Child, ChildFailed
from lazyckpt.demo.data import library, users
from lazyckpt.demo.rank import ROWS, SAVES, Share, batches
from lazyckpt.demo.screen import Screen
from lazyckpt.demo.training import BUFFER, Job
from lazyckpt.executors.sharing.meeting_place import MeetingPlace

_PATIENCE = 60.0  # seconds in which all ranks have to start


@dataclass
class Report:
    """The output of one rank.

    Attributes:
        states: Its states, by the number of steps before them.
        rows: The digests of its rows, in order.
        calls: The number of lines that it has computed.
        lost: Its message after it lost a different rank.
    """

    states: dict[int, str]
    rows: list[str] = field(default_factory=list)
    calls: int = 0
    lost: str = ""

    @property
    def steps(self) -> int:
        return len(self.rows) // ROWS

    def note(self, word: str, values: Sequence[str]) -> None:
        """Note a line of its output."""
        match word:
            case "rows":
                self.rows += values
            case "state":
                self.states[self.steps] = " ".join(values)
            case "calls":
                self.calls = int(values[0])
            case "lost":
                self.lost = " ".join(values)


def demo_of_ranks(
    screen: Screen, data: Sequence[str] | None, size: int, lines: int, seed: int
) -> int:
    """Run the demo; return 0 if the rows equal those of a single rank, else 1."""
    begun, fewer = monotonic(), size - 1
    screen.line(f"lazyckpt {lz.__version__}: kill one of {size} ranks, resume on {fewer}\n")
    text = library(screen.line) if data is None else users(data)
    job = Job.of(text, lines, seed)
    steps = min(lines, job.lines * job.epochs) // (2 * size * ROWS)
    if steps < 2 * SAVES:
        raise ChildFailed(f"too few lines for {size} ranks; pass more --lines")
    screen.line(f"{Share(job, 0, size, steps).pipeline!r}\n")
    screen.line(f"{size} ranks: one of them computes each line, and sends it to all")
    with tempfile.TemporaryDirectory(prefix="lazyckpt-") as folder:
        first, second, saved = _both(screen, Path(folder), Share(job, 0, size, steps))
    states = {each.states[saved] for each in first}
    state = states.pop()
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


def _both(screen: Screen, folder: Path, share: Share) -> tuple[list[Report], list[Report], int]:
    """Run all ranks until one is killed, and the others from the last state of all, so far."""
    first = _together(screen, folder, share, random.randrange(share.size))
    saved = max(set.intersection(*({*each.states} for each in first)))
    fewer = replace(share, size=share.size - 1, state=first[0].states[saved])
    screen.line(f"{plural(fewer.size, 'rank')}, from the state saved after step {saved}")
    return first, _together(screen, folder, fewer, None), saved


def _together(screen: Screen, folder: Path, share: Share, victim: int | None) -> list[Report]:
    """Run all ranks to their end; one of them is killed if `victim` is set."""
    secret = secrets.token_bytes()
    place = MeetingPlace("127.0.0.1", secret, _PATIENCE)
    share = replace(share, place=("127.0.0.1", place.port, secret.hex()))
    found = []
    with ExitStack() as stack:
        stack.callback(place.close)
        ranks = []
        for rank in range(share.size):
            killed_at = _moment(share.steps) if rank == victim else 0
            told = folder / f"rank{rank}.json"
            told.write_text(replace(share, rank=rank, killed_at=killed_at).to_json())
            child = Child(["-m", "lazyckpt.demo.rank", str(told)], told.with_suffix(".errors"))
            child.killed = rank == victim
            ranks.append(stack.enter_context(child))
        for child in ranks:
            first = share.state or lz.init(share.pipeline).to_json()
            found.append(Report({0: first}))
            for word, *values in child.words():
                found[-1].note(word, values)
                screen.status(f"  step {found[-1].steps:,}")
            child.ended()
    if victim is not None:
        screen.line(f"  step {found[victim].steps:,}   rank {victim} is killed")
    for rank, report in enumerate(found):
        if report.lost:
            screen.line(f"  step {report.steps:,}   rank {rank}: {report.lost}")
    if victim is None:
        screen.line(f"  step {share.steps:,}   done")
    screen.line()
    return found


def _moment(steps: int) -> int:
    """Draw the step after which a rank is killed: after a save, and some steps before the end."""
    return random.randint(2 * SAVES, max(2 * SAVES, steps * 3 // 4))


def _dealt(found: list[Report], steps: int) -> list[str]:
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

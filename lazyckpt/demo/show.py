"""The output of the demo, and its verdict."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from time import monotonic

import lazyckpt
from lazyckpt.core.checks import plural
from lazyckpt.demo.child import ChildFailed
from lazyckpt.demo.data import BadData, Text, library, users
from lazyckpt.demo.ranks import demo_of_ranks
from lazyckpt.demo.screen import Screen
from lazyckpt.demo.training import Job, pipeline_of
from lazyckpt.demo.trial import (
    Event,
    Killed,
    Learned,
    Resumed,
    Trial,
    alone,
    interrupted,
)


class Progress:
    """The losses of a run, and the kills and resumes of it."""

    def __init__(self, screen: Screen, batches: int) -> None:
        self._screen = screen
        self._batches = batches
        self._width = len(f"{batches:,}")
        self._losses: list[float] = []
        self._kills = 0

    def losses(self, event: Event) -> None:
        """Report an event of the uninterrupted run."""
        if isinstance(event, Learned):
            self._losses.append(event.loss)
            if _is_shown(event.batch):
                self._line(event.batch, f"{fmean(self._losses):.3f} bits per byte")
                self._losses.clear()
            self._running(event)

    def kills(self, event: Event) -> None:
        """Report an event of the run that is killed."""
        match event:
            case Learned():
                self._running(event)
            case Killed(batch, saved, saving):
                self._kills += 1
                amid = ", during the next" if saving else ""
                self._line(
                    batch, f"kill {self._kills}, {batch - saved:,} after the last save{amid}"
                )
            case Resumed(batch, seconds):
                self._line(batch, f"resumed in {seconds * 1000:.0f} ms")

    def again(self, kills: int) -> None:
        """Report that the run ended too soon."""
        self._kills = 0
        self._screen.line(f"  ended after {kills} kills: retrying with kills closer together")

    def _line(self, batch: int, text: str) -> None:
        self._screen.line(f"  batch {batch:>{self._width},}   {text}")

    def _running(self, event: Learned) -> None:
        done = 30 * event.batch // self._batches
        self._screen.status(
            f"  batch {event.batch:>{self._width},}   "
            f"[{'#' * done}{'.' * (30 - done)}]  {event.loss:.3f} bits per byte"
        )


def _is_shown(batch: int) -> bool:
    """Return whether a batch is 1, 3, 10, 30, 100 and so on."""
    return str(batch).rstrip("0") in ("1", "3")


def demo(
    data: Sequence[str] | None, ranks: int | None = None, *, kills: int, lines: int, seed: int
) -> int:
    """Train, uninterrupted and killed; return 0 if equal, 1 if not, 2 for bad data, 130 for Ctrl-C.

    With ranks, one of them is killed, and nothing is trained.
    """
    screen = Screen()
    try:
        if ranks is not None:
            return demo_of_ranks(screen, data, ranks, lines, seed)
        return _demo(screen, data, kills, lines, seed)
    except BadData as error:
        return _failed(screen, str(error), 2)
    except ChildFailed as error:
        return _failed(screen, str(error), 1)
    except KeyboardInterrupt:
        return _failed(screen, "stopped", 130)


def _failed(screen: Screen, message: str, status: int) -> int:
    screen.clear()
    print(f"lazyckpt demo: {message}", file=sys.stderr)
    return status


def _demo(screen: Screen, data: Sequence[str] | None, kills: int, lines: int, seed: int) -> int:
    begun = monotonic()
    screen.line(f"lazyckpt {lazyckpt.__version__}: kill a training run, resume it, lose nothing\n")
    screen.status("  reading ...")
    text = library(screen.line) if data is None else users(data)
    job = Job.of(text, lines, seed)
    pipeline = pipeline_of(job)
    screen.line(f"{_described(text, data is None)}, {plural(job.epochs, 'epoch')}\n")
    screen.line(f"{pipeline!r}\n")
    with tempfile.TemporaryDirectory(prefix="lazyckpt-") as folder:
        work = Path(folder)
        screen.line(f"Not killed: {job.batches:,} batches; a model learns to predict the next byte")
        whole = alone(job, work, Progress(screen, job.batches).losses)
        screen.line(_end(whole))
        screen.line(f"Killed with SIGKILL {kills} times, at random moments")
        progress = Progress(screen, job.batches)
        cut = interrupted(job, work, kills, whole.seconds, progress.kills, progress.again)
    screen.line(_end(cut))
    return _verdict(screen, job, whole, cut, monotonic() - begun)


def _end(trial: Trial) -> str:
    return f"  batch {trial.batches:,}   {trial.loss:.3f} in the last batch\n"


def _described(text: Text, is_library: bool) -> str:
    if is_library:
        return (
            f"{text.lines:,} lines of Python's standard library: "
            f"{text.files:,} .py files in {len(text.names)} gzip chunks"
        )
    return f"{text.lines:,} lines in {plural(text.files, 'file')}"


def _verdict(screen: Screen, job: Job, whole: Trial, cut: Trial, seconds: float) -> int:
    resumes = [1000 * resumed.seconds for resumed in cut.resumes]
    rows: list[tuple[str, str, str, str | bool]] = [
        ("", "not killed", "killed", ""),
        _compared("batches", f"{whole.batches:,}", f"{cut.batches:,}"),
        ("kills", f"{len(whole.kills)}", f"{len(cut.kills)}", ""),
        ("seconds", f"{whole.seconds:.1f}", f"{cut.seconds:.1f}", ""),
        ("time to resume", "", f"{median(resumes):.0f} ms", f"median; {max(resumes):.0f} at most"),
        ("state", "", f"{len(cut.state)} bytes", f"in a checkpoint of {cut.size:,}"),
        _compared("digest of all batches", whole.digest, cut.digest),
        _compared("final parameters", whole.parameters, cut.parameters),
    ]
    for name, left, right, found in rows:
        shown = found if isinstance(found, str) else "same" if found else "DIFFERENT"
        screen.line(f"{name:<22} {left[:12]:>12} {right[:12]:>14}   {shown}".rstrip())
    screen.line(f"\nThe state, saved with the model:\n{cut.state}\n")
    if whole.batches != job.batches:
        screen.line(f"NOT complete: the data has {job.batches:,} batches.")
        return 1
    if not all(found for *_, found in rows if isinstance(found, bool)):
        screen.line("NOT the same: the kills have changed the result.")
        return 1
    screen.line(f"The same, bit for bit. {seconds:.0f} seconds in total.")
    return 0


def _compared(name: str, left: str, right: str) -> tuple[str, str, str, bool]:
    return name, left, right, left == right

"""A training run in a child process, uninterrupted or killed, and its reports."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic

from lazyckpt.demo.training import Checkpoint, Job

PROGRAM = ["-m", "lazyckpt.demo"]
ATTEMPTS = 10
_SILENCE = 300.0  # seconds without output after which a child counts as stuck
_WITHIN = 0.7  # share of a run's time in which all kills happen


class ChildFailed(Exception):
    """The training run ended, but neither by itself nor by a kill."""


@dataclass(frozen=True)
class Killed:
    """A kill: the last batch trained on, the last one saved, and whether a save was in progress."""

    batch: int
    saved: int
    saving: bool


@dataclass(frozen=True)
class Resumed:
    """The batch to resume from, and the seconds from `lz.run` to the first batch delivered."""

    batch: int
    seconds: float


@dataclass(frozen=True)
class Learned:
    """A batch trained on, and the loss before it."""

    batch: int
    loss: float


Event = Killed | Resumed | Learned
Tell = Callable[[Event], None]


@dataclass
class Trial:
    """One training run, from the first batch to the last, in as many processes as it needed."""

    seconds: float = 0.0  # time of training, without starting processes
    kills: list[Killed] = field(default_factory=list)
    resumes: list[Resumed] = field(default_factory=list)
    batches: int = 0
    loss: float = 0.0
    digest: str = ""
    parameters: str = ""
    state: str = ""  # the longest state: one that was resumed from, or the last
    size: int = 0  # bytes of the checkpoint file

    def note(self, path: Path) -> None:
        """Take over the values in the checkpoint file."""
        at = Checkpoint.load(path)
        self.batches, self.digest = at.state.items, at.digest.hex()
        self.parameters = at.model.digest()
        self.size = path.stat().st_size
        self.state = max(self.state, at.state.to_json(), key=len)


class Child:
    """A training process and its output; it ends when the block is left."""

    def __init__(self, job: Job, checkpoint: Path) -> None:
        told = checkpoint.with_suffix(".json")
        told.write_text(job.to_json())
        self._errors = checkpoint.with_suffix(".errors").open("w+b")
        self.process = subprocess.Popen(
            [sys.executable, "-P", *PROGRAM, str(told), str(checkpoint)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C reaches only this process
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        )
        self._words: SimpleQueue[list[str]] = SimpleQueue()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        self.moment: float | None = None  # the time at which to kill it
        self.killed = False

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith(b"\n"):
                self._words.put(line.decode().split())
        self._words.put([])

    def words(self) -> Iterator[list[str]]:
        """Yield the child's output, line by line, to its end; kill the child at `moment`."""
        while True:
            left = _SILENCE if self.moment is None else self.moment - monotonic()
            try:
                words = self._words.get(timeout=max(0.0, left))
            except Empty:
                if self.moment is None:
                    raise ChildFailed(f"the training was silent for {_SILENCE:.0f} s") from None
                self._kill()
                continue
            if not words:
                return
            yield words
            if self.moment is not None and monotonic() >= self.moment:
                self._kill()

    def _kill(self) -> None:
        self.process.kill()
        self.moment, self.killed = None, True

    def ended(self) -> bool:
        """Return True if it ended by itself, False if it was killed."""
        status = self.process.wait(timeout=_SILENCE)
        if status == 0:
            return True
        if self.killed and (status < 0 or os.name == "nt"):
            return False
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").strip()
        raise ChildFailed(f"the training failed with exit status {status}\n{text}".strip())

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait(timeout=_SILENCE)
        self._reader.join(timeout=_SILENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._errors.close()


def alone(job: Job, work: Path, tell: Tell) -> Trial:
    """Run the training uninterrupted."""
    path = work / "alone.npz"
    trial = Trial()
    _live(trial, job, path, None, tell)
    return trial


def interrupted(
    job: Job, work: Path, kills: int, seconds: float, tell: Tell, again: Callable[[int], None]
) -> Trial:
    """Run the training, killed `kills` times at random moments within `seconds`.

    If it ends before the last kill, it starts again with kills closer together; `again` is called
    with the number of kills before that.
    """
    path = work / "killed.npz"
    for attempt in range(ATTEMPTS):
        path.unlink(missing_ok=True)
        within = seconds * _WITHIN / 2**attempt
        moments = sorted(random.uniform(0, within) for _ in range(kills))
        lives = [after - before for before, after in zip([0.0, *moments], moments, strict=False)]
        trial = Trial()
        if _is_through(trial, job, path, lives, tell):
            return trial
        again(len(trial.kills))
    raise ChildFailed(f"the training is too short for {kills} kills; pass more --lines")


def _is_through(trial: Trial, job: Job, path: Path, lives: Sequence[float], tell: Tell) -> bool:
    """Kill it after each of the times; return False if it ended before the last kill."""
    for seconds in lives:
        if _live(trial, job, path, seconds, tell):
            return False
    return _live(trial, job, path, None, tell)


def _live(trial: Trial, job: Job, path: Path, seconds: float | None, tell: Tell) -> bool:
    """Run one process of the training, for so many seconds; return True if it has finished."""
    batch = 0
    saving = False
    begun = monotonic()
    with Child(job, path) as child:
        for word, *values in child.words():
            match word:
                case "start":
                    batch = int(values[0])
                    begun = monotonic()
                    if seconds is not None:
                        child.moment = begun + seconds
                case "first" if trial.kills:
                    trial.resumes.append(Resumed(batch, float(values[0])))
                    tell(trial.resumes[-1])
                case "batch":
                    batch, trial.loss = int(values[0]), float(values[1])
                    tell(Learned(batch, trial.loss))
                case "save":
                    saving = True
                case "saved":
                    saving = False
        ended = child.ended()
    trial.seconds += monotonic() - begun
    trial.note(path)
    if ended or trial.batches == job.batches:
        return True
    trial.kills.append(Killed(batch, trial.batches, saving and batch > trial.batches))
    tell(trial.kills[-1])
    return False

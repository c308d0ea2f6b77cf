"""A training in a child process, left alone or killed, and what was seen of it."""

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
_SILENCE = 300.0  # seconds without a word, after which a child counts as stuck
_WITHIN = 0.7  # of a run's time: when all kills are made


class ChildFailed(Exception):
    """The training ended otherwise than by itself or by our kill."""


@dataclass(frozen=True)
class Killed:
    """Where a kill hit: the last batch trained on, the last one saved, whether amid a save."""

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
    """One training, from the first batch to the last, in as many lives as it took."""

    seconds: float = 0.0  # of training, without the starts of processes
    kills: list[Killed] = field(default_factory=list)
    resumes: list[Resumed] = field(default_factory=list)
    batches: int = 0
    loss: float = 0.0
    digest: str = ""
    parameters: str = ""
    state: str = ""  # the longest that was resumed from, or at the end
    size: int = 0  # bytes of the checkpoint file

    def note(self, path: Path) -> None:
        """Take over what the checkpoint file says."""
        at = Checkpoint.load(path)
        self.batches, self.digest = at.state.items, at.digest.hex()
        self.parameters = at.model.digest()
        self.size = path.stat().st_size
        self.state = max(self.state, at.state.to_json(), key=len)


class Child:
    """A training process, gone when the block is left: its words as they come, and its end."""

    def __init__(self, job: Job, checkpoint: Path) -> None:
        told = checkpoint.with_suffix(".json")
        told.write_text(job.to_json())
        self._errors = checkpoint.with_suffix(".errors").open("w+b")
        self.process = subprocess.Popen(
            [sys.executable, "-P", *PROGRAM, str(told), str(checkpoint)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is ours alone
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        )
        self._words: SimpleQueue[list[str]] = SimpleQueue()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        self.moment: float | None = None  # at which to kill it
        self.killed = False

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith(b"\n"):
                self._words.put(line.decode().split())
        self._words.put([])

    def words(self) -> Iterator[list[str]]:
        """What the child says, line by line, to its end; it is killed when `moment` comes."""
        while True:
            left = _SILENCE if self.moment is None else self.moment - monotonic()
            try:
                words = self._words.get(timeout=max(0.0, left))
            except Empty:
                if self.moment is None:
                    raise ChildFailed(f"the training said nothing for {_SILENCE:.0f} s") from None
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
        """True if it came to its own end, False if our kill was the end."""
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
    """The training, left alone."""
    path = work / "alone.npz"
    trial = Trial()
    _live(trial, job, path, None, tell)
    return trial


def interrupted(
    job: Job, work: Path, kills: int, seconds: float, tell: Tell, again: Callable[[int], None]
) -> Trial:
    """The training, killed so often at random moments of the seconds that it takes.

    Where it ends before the last kill, all begins again, with kills closer
    together; `again` is called with how many there were.
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
    raise ChildFailed(f"too short a training to be killed {kills} times; give it more --lines")


def _is_through(trial: Trial, job: Job, path: Path, lives: Sequence[float], tell: Tell) -> bool:
    """Kill after each of the times; False if the training came to its end before."""
    for seconds in lives:
        if _live(trial, job, path, seconds, tell):
            return False
    return _live(trial, job, path, None, tell)


def _live(trial: Trial, job: Job, path: Path, seconds: float | None, tell: Tell) -> bool:
    """One life of the training, of so many seconds; True if nothing is left to do."""
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

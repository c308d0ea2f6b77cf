"""A training run in a child process, uninterrupted or killed, and its reports."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from lazyckpt.demo.child import Child, ChildFailed
from lazyckpt.demo.training import Checkpoint, Job

PROGRAM = ["-m", "lazyckpt.demo"]
ATTEMPTS = 10
_WITHIN = 0.7  # share of a run's time in which all kills happen


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
    """One training run, from the first batch to the last, in one or more processes."""

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
    """Run one process of the training for a number of seconds; return True if it has finished."""
    batch = 0
    saving = False
    begun = monotonic()
    told = path.with_suffix(".json")
    told.write_text(job.to_json())
    with Child([*PROGRAM, str(told), str(path)], path.with_suffix(".errors")) as child:
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

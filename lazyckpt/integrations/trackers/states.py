"""`log_state` and `load_state`: which tracker it is, and the state as its text."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

from lazyckpt.core.checks import at_least, brief, checked, optional
from lazyckpt.errors import ArgumentError
from lazyckpt.integrations.trackers import aim, dvclive, mlflow, tensorboard, trackio, wandb
from lazyckpt.integrations.trackers.kinds import NoState, Texts, Tracker, unfit
from lazyckpt.run import Run
from lazyckpt.state.state import State, any_state
from lazyckpt.tracking import Tracked

_TRACKERS: Mapping[str, Tracker] = {
    "mlflow": mlflow,
    "wandb": wandb,
    "trackio": trackio,
    "aim": aim,
    "torch.utils.tensorboard": tensorboard,
    "dvclive": dvclive,
}
_FOLDERS: Mapping[str, Tracker] = {
    "*.tfevents.*": tensorboard,
    "*.wandb": wandb,
    "../*.wandb": wandb,  # of `run.dir`, which is a folder in the run's own
    "plots/metrics": dvclive,
}

_step = at_least(0, 2**63 - 1)  # what all of them can count


def log_state(
    where: Any,
    state: State | Run[Any] | Tracked[Any] | str | bytes | Mapping[str, Any],
    step: int,
) -> None:
    """Store a state in an experiment tracker, beside what else is logged at that step.

    The state is there when this returns, also if the process is killed then.

    Args:
        where: A run of MLflow, Weights & Biases, trackio, Aim or DVCLive, or the
            writer of TensorBoard; the modules `mlflow`, `wandb` and `trackio` stand
            for their current run.
        state: A state, its JSON text or its dict; or a lazyckpt run, for its state at present.
        step: An int >= 0; of states with the same step the later one counts.

    Raises:
        ArgumentError: For what is no tracker.
        PipelineError: No run was started.

    >>> import lazyckpt as lz
    >>> from tempfile import mkdtemp
    >>> from torch.utils.tensorboard import SummaryWriter
    >>> pipeline = lz.source(range(6)) | lz.shuffle(seed=0) | lz.batch(2)
    >>> run = lz.run(pipeline)
    >>> with SummaryWriter(mkdtemp()) as writer:
    ...     for step, batch in enumerate(run):
    ...         log_state(writer, run, step)
    >>> next(lz.run(pipeline, load_state(writer, 1))) == pipeline[2]
    True
    """
    number = checked("log_state", "step", step, _step)
    found = state.state if isinstance(state, (Run, Tracked)) else any_state(state)
    if isinstance(where, (str, PathLike)):
        what = "the id of a run" if mlflow.is_id(str(where)) else "a path"
        raise ArgumentError(f"log_state: {what} can only be read, got {brief(where)}")
    _tracker(where).log(where, found.to_json(), number)


def load_state(where: Any, step: int | None = None) -> State:
    """The state that `log_state` stored at a step, or that of the highest step.

    Args:
        where: What `log_state` accepts, or a run that is over; the id of a run of
            MLflow; the folder of a run of W&B (also its `run.dir`), of TensorBoard's
            events, or of DVCLive.
        step: An int >= 0, or None for the highest.

    Raises:
        NoState: There is none; a `LookupError`.
        InvalidState: It was changed.

    >>> load_state("runs/of/yesterday")
    Traceback (most recent call last):
    lazyckpt.integrations.trackers.kinds.NoState: no run of TensorBoard, W&B or DVCLive in ...
    """
    number = checked("load_state", "step", step, optional(_step))
    texts = _texts(where)
    if not texts:
        raise NoState(f"no state was logged in {brief(where)}")
    last = max(texts)
    if number is not None and number not in texts:
        raise NoState(
            f"no state was logged at step {number} of {brief(where)}; "
            f"there are {len(texts)}, the last one at {last}"
        )
    return State.from_json(texts[last if number is None else number]())


def _texts(where: Any) -> Texts:
    if not isinstance(where, (str, PathLike)):
        return _tracker(where).texts(where)
    folder = Path(where)
    if isinstance(where, str) and mlflow.is_id(where) and not folder.exists():
        return mlflow.texts(where)
    return _reader(folder).texts(folder)


def _tracker(where: Any) -> Tracker:
    """By the modules of its class and of those that this comes from, or by its own name."""
    names = [each.__module__ for each in type(where).__mro__]
    if isinstance(where, ModuleType):
        names = [where.__name__]
        if where.__name__ in _TRACKERS and getattr(where, "__file__", None) is None:
            raise ArgumentError(
                f"the package {names[0]} is not installed, a folder of that name was imported; "
                f'pip install "lazyckpt[{names[0]}]"'
            )
    for name in names:
        for root, tracker in _TRACKERS.items():
            if name == root or name.startswith(f"{root}."):
                return tracker
    unfit(where)


def _reader(folder: Path) -> Tracker:
    for pattern, tracker in _FOLDERS.items():
        if any(folder.glob(pattern)):
            return tracker
    raise NoState(
        f"no run of TensorBoard, W&B or DVCLive in {brief(str(folder))}, and no id of one of MLflow"
    )

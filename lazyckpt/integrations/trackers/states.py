"""`log_state` and `load_state`: find the tracker, and store or read the state as text."""

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
    "../*.wandb": wandb,  # `run.dir` is inside the folder of the run
    "plots/metrics": dvclive,
}

_step = at_least(0, 2**63 - 1)  # the range of steps that all trackers support


def log_state(
    where: Any,
    state: State | Run[Any] | Tracked[Any] | str | bytes | Mapping[str, Any],
    step: int,
) -> None:
    """Store a state in an experiment tracker, next to the metrics of that step.

    When this returns, the state is stored, even if the process is killed afterwards.

    Args:
        where: A run of MLflow, Weights & Biases, trackio, Aim or DVCLive, or a writer of
            TensorBoard. The modules `mlflow`, `wandb` and `trackio` stand for their current run.
        state: A state, its JSON string or its dict; or a lazyckpt run, for its current state.
        step: An int >= 0. If several states have the same step, the last one counts.

    Raises:
        ArgumentError: If `where` is not a supported tracker.
        PipelineError: If no run was started.

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
        raise ArgumentError(f"log_state: {what} is for load_state only, got {brief(where)}")
    _tracker(where).log(where, found.to_json(), number)


def load_state(where: Any, step: int | None = None) -> State:
    """Return the state that `log_state` stored at a step, or at the highest step.

    Args:
        where: Anything that `log_state` accepts, or a finished run. Also the id of an MLflow run,
            or the folder of a run of W&B (or its `run.dir`), of TensorBoard's events, or of
            DVCLive.
        step: An int >= 0, or None for the highest.

    Raises:
        NoState: If there is none; a `LookupError`.
        InvalidState: If the stored text was changed.

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
    """Find the tracker by the modules of a run's class and bases, or by a module's name."""
    names = [each.__module__ for each in type(where).__mro__]
    if isinstance(where, ModuleType):
        names = [where.__name__]
        if where.__name__ in _TRACKERS and getattr(where, "__file__", None) is None:
            raise ArgumentError(
                f"the package {names[0]} is not installed: a folder of that name was imported; "
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
        f"no run of TensorBoard, W&B or DVCLive in {brief(str(folder))}, and not the id of an "
        "MLflow run"
    )

"""The common parts of trackers: an interface, a name, the errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NoReturn, Protocol

from lazyckpt.core.checks import brief
from lazyckpt.errors import ArgumentError, PipelineError

NAME = "lazyckpt"  # name of the folder, sequence, metric or tag that contains the states

Texts = Mapping[int, Callable[[], str]]
"""A function per step that reads its state; if a step was logged twice, the later one."""

ACCEPTED = """
    mlflow       mlflow.start_run(), a run of a client, a client, or the module mlflow;
                 to load, also a run's id
    wandb        wandb.init() or the module wandb; to load, also a run's folder
    trackio      trackio.init() or the module trackio; to load, also a run of trackio.Api()
    aim          aim.Run()
    tensorboard  torch.utils.tensorboard.SummaryWriter(); to load, also its folder
    dvclive      dvclive.Live(); to load, also its folder
each with its extra, such as pip install "lazyckpt[mlflow]"\
"""


class NoState(PipelineError, LookupError):
    """A tracker has no state of that step, or none at all: the run is at its beginning."""


class Tracker(Protocol):
    """The interface of each tracker's module."""

    def log(self, where: Any, text: str, step: int) -> None:
        """Store the text of a state; on return it is on disk or on its way to a server."""

    def texts(self, where: Any) -> Texts: ...


def package(name: str, extra: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        missing = (error.name or name).partition(".")[0]
        raise ArgumentError(
            f'the package {missing} is not installed; pip install "lazyckpt[{extra}]"'
        ) from error


def unfit(where: Any) -> NoReturn:
    raise ArgumentError(
        f"expected a run of a tracker, got {brief(where)} ({type(where).__name__}); "
        f"it accepts{ACCEPTED}"
    )


def not_started(name: str, call: str) -> NoReturn:
    raise PipelineError(f"no run of {name} is active: {call} starts one")

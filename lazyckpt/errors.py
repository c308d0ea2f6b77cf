"""The exceptions of the library: one family, `PipelineError`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lazyckpt.core.secrets import masked


class PipelineError(Exception):
    """Base of every error that lazyckpt raises itself. No message has a secret in it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*[masked(each) if isinstance(each, str) else each for each in args])


class ArgumentError(PipelineError, TypeError, ValueError):
    """An argument of a stage has the wrong type or value; caught as either kind."""


class Exhausted(PipelineError):
    """Raised by `lazyckpt.step` where the stream has ended.

    `state` is that of the end, with everything consumed. Stepping from it
    raises this again, with the same state.
    """

    def __init__(self, state: Any) -> None:
        super().__init__("the stream has ended")
        self.state = state

    def __reduce__(self) -> tuple[Any, ...]:
        return Exhausted, (self.state,)


class SourceChanged(PipelineError, RuntimeError):
    """The data aren't what they were. `on_error="skip"` raises it too."""


class StorageError(PipelineError, OSError):
    """Data couldn't be read from where they are: a disk, a server. `on_error="skip"` raises it."""


class InvalidState(PipelineError, ValueError):
    """A state is malformed, damaged, of a newer format, or out of range."""


class StateMismatch(InvalidState):
    """A state belongs to another pipeline; the message names what differs."""


class TicketError(PipelineError, ValueError):
    """A ticket is refused: used already, of another run, of before a resume, or given again."""


class TooManyInFlight(PipelineError, TimeoutError):
    """No item can be given before one that is in flight is finished, and none was in time."""


class WorkerDied(PipelineError, RuntimeError):
    """A worker of an executor ended without being asked to. The run can go on, with new ones."""


class WorkerTimeout(PipelineError, TimeoutError, RuntimeError):
    """A worker of an executor gave nothing within `timeout`. The run can go on, with new ones."""


class RankMissing(PipelineError, TimeoutError, RuntimeError):
    """A rank did not come to an agreement within `timeout`. `ranks` says which."""

    def __init__(self, message: str, ranks: Iterable[int]) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)

    def __reduce__(self) -> tuple[Any, ...]:
        return RankMissing, (str(self), self.ranks)


class RankFailed(PipelineError, RuntimeError):
    """Other ranks raise an error at an item that this rank has. `ranks` says which."""

    def __init__(self, message: str, ranks: Iterable[int]) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)

    def __reduce__(self) -> tuple[Any, ...]:
        return RankFailed, (str(self), self.ranks)

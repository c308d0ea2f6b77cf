"""The exceptions of the library: one family, `PipelineError`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lazyckpt.core.secrets import masked


class PipelineError(Exception):
    """Base class of all errors that lazyckpt itself raises. Messages never contain credentials."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*[masked(each) if isinstance(each, str) else each for each in args])


class ArgumentError(PipelineError, TypeError, ValueError):
    """Invalid stage argument. A subclass of both `TypeError` and `ValueError`."""


class Exhausted(PipelineError):
    """The stream has ended; raised by `lazyckpt.step`.

    `state` is the state at the end, with everything consumed. Stepping from it raises this error
    again, with the same state.
    """

    def __init__(self, state: Any) -> None:
        super().__init__("the stream has ended")
        self.state = state

    def __reduce__(self) -> tuple[Any, ...]:
        return Exhausted, (self.state,)


class SourceChanged(PipelineError, RuntimeError):
    """The data have changed since the pipeline was built. Raised also with `on_error="skip"`."""


class StorageError(PipelineError, OSError):
    """The storage (a disk or a server) could not be read. Raised also with `on_error="skip"`."""


class InvalidState(PipelineError, ValueError):
    """A state is malformed, damaged, of a newer format, or out of range."""


class StateMismatch(InvalidState):
    """A state belongs to a different pipeline; the message names the differences."""


class TicketError(PipelineError, ValueError):
    """A ticket is used up, belongs to a different run, is older than a resume, or was reissued."""


class TooManyInFlight(PipelineError, TimeoutError):
    """Too many items are in flight, and none was finished in time."""


class WorkerDied(PipelineError, RuntimeError):
    """A worker of an executor died. The run can continue, with new workers."""


class WorkerTimeout(PipelineError, TimeoutError, RuntimeError):
    """A worker of an executor returned nothing within `timeout`. The run can continue."""


class RankMissing(PipelineError, TimeoutError, RuntimeError):
    """A rank has ended, or didn't respond within `timeout`. `ranks` lists the missing ranks."""

    def __init__(self, message: str, ranks: Iterable[int]) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)

    def __reduce__(self) -> tuple[Any, ...]:
        return RankMissing, (str(self), self.ranks)


class RankFailed(PipelineError, RuntimeError):
    """Other ranks failed on an item that succeeded here. `ranks` lists the failing ranks."""

    def __init__(self, message: str, ranks: Iterable[int]) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)

    def __reduce__(self) -> tuple[Any, ...]:
        return RankFailed, (str(self), self.ranks)

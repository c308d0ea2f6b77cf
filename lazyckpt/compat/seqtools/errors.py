"""Errors of items: `EvaluationError`, and `seterr`, which says whether it is raised."""

from __future__ import annotations

import threading
from typing import Any

from lazyckpt.errors import WorkerDied, WorkerTimeout

WORKER_ERRORS = (WorkerDied, WorkerTimeout)  # of no item


class EvaluationError(Exception):
    """An item could not be made. The message has its index and where the stage was built.

    The error of the user's function is its `__cause__`, also where a worker raised it.
    """

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.__cause__ = cause

    @classmethod
    def of(cls, error: Exception, what: str, site: str) -> EvaluationError:
        """An error as one of an item of a stage built somewhere, unless it says so already."""
        if isinstance(error, cls):
            return error  # of an item further below
        return cls(f"{what}, built at {site}, failed: {type(error).__name__}: {error}", error)

    def __reduce__(self) -> tuple[Any, ...]:
        return EvaluationError, (str(self), self.__cause__), dict(self.__dict__)


class Past(IndexError):
    """An index past the end of a sequence that has no length."""


_setting = threading.local()


def seterr(evaluation: str | None = None) -> str:
    """Have errors of user's functions be an `EvaluationError` ("wrap"), or stay ("passthrough").

    It holds in this thread. Without an argument it tells what holds.
    """
    if evaluation not in (None, "wrap", "passthrough"):
        raise ValueError(f"evaluation must be 'wrap' or 'passthrough', got {evaluation!r}")
    if evaluation is not None:
        _setting.evaluation = evaluation
    return getattr(_setting, "evaluation", "wrap")


def chosen(error: Exception) -> Exception:
    """The error to raise, as `seterr` has it."""
    cause = error.__cause__
    is_wrapped = seterr() == "wrap" or not isinstance(error, EvaluationError)
    if is_wrapped or not isinstance(cause, Exception):
        return error
    add_notes(cause, str(error), *getattr(error, "__notes__", ()))
    return cause


def add_notes(error: BaseException, *notes: str) -> None:
    """Add notes that an error doesn't have yet; the same error may be raised repeatedly."""
    for note in notes:
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)

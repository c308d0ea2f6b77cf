"""Errors of items: `EvaluationError`, and `seterr`, which says whether it is raised."""

from __future__ import annotations

import pickle
import threading
from typing import Any

from lazyckpt.errors import WorkerDied, WorkerTimeout

WORKER_ERRORS = (WorkerDied, WorkerTimeout)  # after which the same item is tried again


class EvaluationError(Exception):
    """An item could not be made. The message has its index and where the stage was built.

    The error of the user's function is its `__cause__`, also where a worker raised it.
    """

    @classmethod
    def of(cls, error: Exception, what: str, site: str) -> EvaluationError:
        """An error of the user's function, as one of an item of a stage built somewhere."""
        text = f"{what}, built at {site}, failed: {type(error).__name__}: {error}"
        return _caused((text,), error)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickles of exceptions lack the cause, which comes back from workers too.
        return _caused, (self.args, _portable(self.__cause__)), dict(self.__dict__)


def _caused(args: tuple[Any, ...], cause: BaseException | None) -> EvaluationError:
    error = EvaluationError(*args)
    error.__cause__ = cause
    return error


def _portable(cause: BaseException | None) -> BaseException | None:
    try:
        return cause if type(pickle.loads(pickle.dumps(cause))) is type(cause) else None
    except Exception:
        return None


class Past(IndexError):
    """An index past the end of a sequence that has no length."""


class _Setting(threading.local):
    passes = False


_setting = _Setting()


def seterr(evaluation: str | None = None) -> str:
    """Say what an error of a user's function becomes, in this thread; the result is what holds.

    Args:
        evaluation: "wrap" for an `EvaluationError`, the default; "passthrough" for the
            error itself; None changes nothing.

    >>> seterr()
    'wrap'
    """
    if evaluation not in (None, "wrap", "passthrough"):
        raise ValueError(f"evaluation must be 'wrap' or 'passthrough', got {evaluation!r}")
    if evaluation is not None:
        _setting.passes = evaluation == "passthrough"
    return "passthrough" if _setting.passes else "wrap"


def chosen(error: Exception) -> Exception:
    """The error to raise, as `seterr` has it."""
    cause = error.__cause__
    if not (
        _setting.passes and isinstance(error, EvaluationError) and isinstance(cause, Exception)
    ):
        return error
    for note in (str(error), *getattr(error, "__notes__", ())):
        if note not in getattr(cause, "__notes__", ()):
            cause.add_note(note)
    return cause

"""Choose how worker processes start, and refuse scripts that this would run again."""

from __future__ import annotations

import ast
import multiprocessing
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from lazyckpt.errors import PipelineError

_GUARDS = {"__name__", "parent_process", "current_process"}  # names that identify a worker


def choose_start_method(wanted: str | None) -> str:
    """Return the wanted start method, or multiprocessing's default.

    Raises:
        PipelineError: If this process can't have children, if the platform lacks the start
            method, or if workers would run a script again that has no guard.
    """
    if multiprocessing.current_process().daemon:
        raise PipelineError(
            "processes: this process is daemonic, like a worker of torch's DataLoader or of a "
            "multiprocessing.Pool, and can't start processes; use threads(...) here"
        )
    there = multiprocessing.get_all_start_methods()
    found = wanted or multiprocessing.get_start_method(allow_none=True) or there[0]
    if found not in there:
        raise PipelineError(
            f"processes: this platform has no start_method={found!r}, only "
            f"{' and '.join(map(repr, there))}"
        )
    if found != "fork":
        _check_guard(found)
    return found


def _check_guard(method: str) -> None:
    """Check that a worker, which imports the main module, doesn't reach the current line."""
    main: Any = sys.modules["__main__"]
    path, name = getattr(main, "__file__", None), getattr(main.__spec__, "name", "")
    line = _line_of(vars(main))
    if path is None or line is None or name.rpartition(".")[2] == "__main__":  # not imported again
        return
    if path == "<stdin>":
        raise PipelineError(
            f"processes: with start_method={method!r} a worker imports the main module, "
            "but this one was read from stdin"
        )
    try:
        statements = ast.parse(Path(path).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return
    if not any(_is_guard(each) for each in statements if each.lineno <= line):
        raise PipelineError(
            f"processes: start_method={method!r} runs {path} again in each worker, from its first "
            f"line; put line {line} under if __name__ == '__main__':"
        )


def _line_of(main: dict[str, Any]) -> int | None:
    """Return the line of the main module that this thread or the main thread is running."""
    frames = sys._current_frames()
    try:
        for ident in (threading.get_ident(), threading.main_thread().ident or 0):
            frame: FrameType | None = frames.get(ident)
            while frame is not None:
                if frame.f_globals is main and frame.f_code.co_name == "<module>":
                    return frame.f_lineno
                frame = frame.f_back
        return None
    finally:
        frames.clear()  # it has this function's frame: a reference cycle


def _is_guard(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.If):
        return False
    names = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(statement.test)}
    return bool(names & _GUARDS)

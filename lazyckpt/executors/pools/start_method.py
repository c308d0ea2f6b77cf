"""How worker processes start, and whether a script would be run again by that."""

from __future__ import annotations

import ast
import multiprocessing
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from lazyckpt.errors import PipelineError

_GUARDS = {"__name__", "parent_process", "current_process"}  # what tells a worker from the script


def choose_start_method(wanted: str | None) -> str:
    """The start method that is asked for, or multiprocessing's default.

    Raises:
        PipelineError: This process may have no children; or a script would run again,
            which has no guard against that.
    """
    if multiprocessing.current_process().daemon:
        raise PipelineError(
            "processes: this process is daemonic, as a worker of torch's DataLoader or of a "
            "multiprocessing.Pool is, and may have no processes of its own; use threads(...) here"
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
    """That a worker, which imports the main module, does not come to where this is now."""
    main: Any = sys.modules["__main__"]
    path, name = getattr(main, "__file__", None), getattr(main.__spec__, "name", "")
    line = _line_of(vars(main))
    if path is None or line is None or name.rpartition(".")[2] == "__main__":  # not imported again
        return
    if path == "<stdin>":
        raise PipelineError(
            f"processes: with start_method={method!r} a worker imports the main module, "
            "and this one comes from stdin"
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
    """Which line of the main module is being run, by its thread or this one."""
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
        frames.clear()  # of this function's own frame: a cycle that keeps what its callers hold


def _is_guard(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.If):
        return False
    names = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(statement.test)}
    return bool(names & _GUARDS)

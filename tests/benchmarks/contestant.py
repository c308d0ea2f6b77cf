"""One library at one workload, in a process of its own: `python contestant.py MODULE ROW N`.

It answers each line of its input with a line of JSON. What it prints otherwise,
and what its workers print, goes where errors go.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from time import perf_counter
from typing import Any

Figures = dict[str, float]
Way = Callable[[], Figures | None]


def measured(way: Way) -> Figures:
    """The seconds of a call, or the figures that it gives instead."""
    begun = perf_counter()
    figures = way()
    return {"seconds": perf_counter() - begun} if figures is None else figures


def ways(module: Any, row: str, n: int) -> dict[str, Way]:
    """The functions of a module that are for a row, `w1` and `w1_slowly`, made ready."""
    found = {name: make for name, make in vars(module).items() if name.split("_")[0] == row}
    return {name[len(row) + 1 :].replace("_", " "): make(n) for name, make in found.items()}


def cost(figures: Figures) -> float:
    """What the best way has least of: its seconds, or those of its resumes."""
    resumes = [value for key, value in figures.items() if key.endswith("%")]
    return sum(resumes) if resumes else figures.get("seconds", 0)


def main() -> None:
    module, row, n = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**what: Any) -> None:
        print(json.dumps(what), file=answers, flush=True)

    try:
        ready = ways(import_module(module), row, int(n))
        first = {name: measured(way) for name, way in ready.items()}
        if not first:
            answer(absent=True)
            return
        best = min(first, key=lambda name: cost(first[name]))
        answer(way=best)
        for _ in sys.stdin:
            answer(figures=measured(ready[best]))
    except ModuleNotFoundError as error:
        answer(missing=error.name)
    except Exception as error:
        answer(error=f"{type(error).__name__}: {error}"[:200])


if __name__ == "__main__":
    main()

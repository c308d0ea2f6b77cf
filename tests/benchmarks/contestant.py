"""One library at one workload, in its own process: `python contestant.py MODULE ROW N`.

It answers each line of its input with a line of JSON. Any other output of the process and of its
workers goes to stderr.
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
    """The seconds of a call, or the figures that it returns instead."""
    begun = perf_counter()
    figures = way()
    return {"seconds": perf_counter() - begun} if figures is None else figures


def round_of(way: Way) -> dict[str, Any]:
    begun = perf_counter()
    figures = measured(way)
    return {"figures": figures, "took": perf_counter() - begun}


def ways(module: Any, row: str) -> dict[str, Callable[[int], Way]]:
    """The functions of a module that are for a row: `w1` and `w1_slowly`."""
    found = {name: make for name, make in vars(module).items() if name.split("_")[0] == row}
    return {name[len(row) + 1 :].replace("_", " "): make for name, make in found.items()}


def best_of(makes: dict[str, Callable[[int], Way]], n: int) -> str:
    """The name of the best way, tried with a tenth of the items."""
    if len(makes) == 1:
        return next(iter(makes))
    few = max(2, n // 10)
    costs = {name: cost(measured(make(few))) for name, make in makes.items()}
    return min(costs, key=lambda name: costs[name])


def cost(figures: Figures) -> float:
    """The figure that is lowest for the best way: its seconds, or the seconds of its resumes."""
    resumes = [value for key, value in figures.items() if key.endswith("%")]
    return sum(resumes) if resumes else figures.get("seconds", 0)


def main() -> None:
    module, row, n = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**what: Any) -> None:
        print(json.dumps(what), file=answers, flush=True)

    try:
        makes = ways(import_module(module), row)
        best = best_of(makes, int(n))
        way = makes[best](int(n))
        answer(way=best, **round_of(way))  # a warm-up: objects created once now exist
        for _ in sys.stdin:
            answer(**round_of(way))
    except ModuleNotFoundError as error:
        answer(missing=error.name)
    except Exception as error:
        answer(error=f"{type(error).__name__}: {error}"[:200])


if __name__ == "__main__":
    main()

"""The cost of an item, counted and not timed: the same on every machine.

`python tests/benchmarks/costs.py` prints the counts as JSON, and with `--update` stores them for
the tests to compare with. Calls of functions, Python's and C's, and lines of Python are counted
at two sizes; the difference is the cost of items. The bytes held are counted the same way.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path
from types import FrameType
from typing import Any

from contestants.of_lazyckpt import w1, w2
from harness import Action, spent
from items import stages

import lazyckpt as lz

STORED = Path(__file__).with_name("costs.json")
N, FEW = 2_000, 10
CLOCKS = {"perf_counter", "monotonic", "time"}
TICK = 1e-4  # seconds
IMPORTS = """
import sys, numpy
before = set(sys.modules)
import lazyckpt
print(*sorted(set(sys.modules) - before))
"""
Costs = dict[str, dict[str, Any]]

# How much higher a cost may be than the stored one: a share of it, plus a number.
MARGINS = {
    "calls an item": (0.05, 0.1),
    "lines an item": (0.1, 0.5),
    f"calls of {FEW} items": (0.2, 20),
    f"lines of {FEW} items": (0.2, 40),
    "bytes at peak": (0.2, 8_192),
    "bytes per item": (0.1, 2),
    "bytes of a state": (0.05, 8),
    "modules": (0.1, 0),
}


def w3(n: int) -> Action:
    lines = [b"x" * (i % 80) for i in range(n)]
    files = [lines[i : i + 500] for i in range(0, n, 500)]
    read = lz.source(files) | lz.flat_map(lambda file: iter(file))
    batches = lz.block_shuffle(1_000, seed=0) | lz.bucket_batch(
        64, key=len, window_size=500, seed=0
    )
    return lambda: spent(read | batches)


def states(n: int) -> dict[str, Action]:
    """The ways to have an item, and a state at each one."""
    some = list(range(n))
    pipeline = lz.source(some)

    def nexts() -> None:
        run = lz.run(pipeline)
        for _ in some:
            next(run)

    def stepping() -> None:
        state = lz.init(pipeline)
        for _ in some:
            state, _ = lz.step(pipeline, state)

    def taking() -> None:
        run = lz.run(pipeline)
        for _ in run:
            _ = run.state

    def writing() -> None:
        run = lz.run(pipeline)
        for _ in run:
            run.state.to_json()

    return {
        "next(run)": nexts,
        "lz.step": stepping,
        "run.state at each item": taking,
        "with_state()": lambda: spent(lz.run(pipeline).with_state()),
        "run.state.to_json()": writing,
    }


def workloads() -> dict[str, Callable[[int], Action]]:
    found: dict[str, Callable[[int], Action]] = {"W1": w1, "W2": w2, "W3": w3}
    for name in stages(1_000):
        found[name] = lambda n, name=name: stages(n)[name][0]  # type: ignore[misc]
    for name in states(1_000):
        found[name] = lambda n, name=name: states(n)[name]  # type: ignore[misc]
    return found


def counted(action: Action) -> tuple[int, int]:
    """Calls made, of functions in Python and in C, and lines of Python run."""
    calls = lines = 0

    def profile(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(None)
    return calls, lines


def peak(action: Action) -> int:
    """The most bytes that Python and NumPy hold in addition to those they held before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        action()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def of_workload(make: Callable[[int], Action]) -> dict[str, float]:
    """The cost per item for many items, and the cost of a few items with their start."""
    few, small, large = make(FEW), make(N), make(2 * N)
    few(), small(), large()  # a warm-up: objects created once now exist
    found: dict[str, float] = {}
    all_counts = zip(counted(few), counted(small), counted(large), strict=True)
    for what, (start, a, b) in zip(("calls", "lines"), all_counts, strict=True):
        found[f"{what} an item"] = round((b - a) / N, 3)
        found[f"{what} of {FEW} items"] = start
    a, b = peak(small), peak(large)
    return found | {"bytes at peak": a, "bytes per item": round(max(0, b - a) / N, 1)}


def pipelines() -> Iterator[tuple[str, lz.Pipeline[Any]]]:
    """One pipeline per kind of position: counts, windows, buffers, joins."""
    source = lz.source(range(100_000))
    halves = [source | lz.shuffle(seed=i) for i in range(2)]
    yield "source", source
    yield (
        "source|shuffle|repeat|shard|batch",
        (
            source
            | lz.shuffle(seed=0)
            | lz.repeat()
            | lz.shard(num_shards=8, index=0)
            | lz.batch(32)
        ),
    )
    yield (
        "flat_map|shuffle(1_000)|batch",
        (
            source
            | lz.flat_map(lambda i: range(i, i + 3))
            | lz.shuffle(1_000, seed=0)
            | lz.batch(32, collate=lz.stack)
        ),
    )
    yield (
        "block_shuffle|bucket_batch",
        (
            source
            | lz.block_shuffle(1_000, seed=0)
            | lz.bucket_batch(8, key=lambda i: i % 7, window_size=100, seed=0)
        ),
    )
    yield "mix of two", lz.mix(halves, [1, 2], seed=0)
    yield "interleave of two", lz.interleave(*halves, block_length=3)


def of_states(pipeline: lz.Pipeline[Any]) -> dict[str, int]:
    run = lz.run(pipeline)
    return {"bytes of a state": max(len(run.state.to_json()) for _ in islice(run, 500))}


def of_import() -> dict[str, list[str]]:
    """Modules that a fresh interpreter imports for `import lazyckpt`, without those of NumPy."""
    command = [sys.executable, "-c", IMPORTS]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {"modules": done.stdout.split()}


def steady() -> None:
    """Make counts repeatable: the collector is off, and each look at a clock is one tick."""
    gc.disable()
    tick = count(0.0, TICK).__next__
    for name, module in tuple(sys.modules.items()):
        if name.startswith("lazyckpt"):
            for clock in CLOCKS & vars(module).keys():
                setattr(module, clock, tick)


def measure(only: str = "") -> Costs:
    """All costs, or the costs of one row."""
    steady()
    rows: dict[str, Callable[[], dict[str, Any]]] = {
        name: partial(of_workload, make) for name, make in workloads().items()
    }
    for name, pipeline in pipelines():
        rows[f"state: {name}"] = partial(of_states, pipeline)
    rows["import lazyckpt"] = of_import
    return {name: cost() for name, cost in rows.items() if only in ("", name)}


def excesses(now: Costs, stored: Costs) -> list[str]:
    """A line per cost that is higher than the stored cost and its margin."""
    found = []
    for name, costs in now.items():
        if name not in stored:
            found.append(f"{name}: not stored yet; costs.py --update does it")
            continue
        for what, value in costs.items():
            before = stored[name].get(what, 0)
            beside = ""
            if isinstance(value, list):
                beside = f", new: {', '.join(sorted({*value} - {*before}))}"
                value, before = len(value), len(before)
            share, more = MARGINS[what]
            if value > (most := before * (1 + share) + more):
                found.append(
                    f"{name}: {value:,g} {what}; {before:,g} stored, {most:,g} at most{beside}"
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser("tests/benchmarks/costs.py", description=__doc__)
    parser.add_argument("--update", action="store_true", help=f"keep them in {STORED.name}")
    found = measure()
    text = json.dumps(found, indent=1)
    if parser.parse_args().update:
        STORED.write_text(text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()

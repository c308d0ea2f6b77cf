"""The cost of an item, counted in a process of its own, is at most the stored cost.

If a cost is meant to rise, or has become lower: `python tests/benchmarks/costs.py --update`. The
diff shows the reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent / "benchmarks"

MEASURE = """
import json, sys
sys.path.insert(0, {benchmarks!r})
import costs
{change}
found = costs.measure({row!r})
print(json.dumps([found, costs.excesses(found, json.loads(costs.STORED.read_text()))]))
"""

SLOW_MAP = """
from lazyckpt.core.flow import Flow
plain = Flow.map
Flow.map = lambda flow, fn: plain(flow, lambda item: fn(item))
"""
SLOW_SOURCE = """
from importlib import import_module
indexed = import_module("lazyckpt.combinators.machines.random_access")
plain = indexed.in_blocks
def slowly(block):
    for item in block:
        yield item
indexed.in_blocks = lambda blocks, *reached: plain(map(slowly, blocks), *reached)
"""
GREEDY_FILTER = """
from importlib import import_module
module = import_module("lazyckpt.combinators.filter")
plain = module.Flow
module.Flow = lambda kept, *reached, **more: plain(iter([*kept]), *reached, **more)
"""
LONG_STATES = """
from lazyckpt.state.state import State
plain = State.to_json
State.to_json = lambda state: plain(state) + " " * 20
"""
MORE_MODULES = """
costs.IMPORTS = costs.IMPORTS.replace("import lazyckpt", "import lazyckpt, asyncio, sqlite3")
"""


def measured(change: str = "", row: str = "", hash_seed: str = "0") -> tuple[Any, list[str]]:
    """The counts of a fresh interpreter after a change, and the counts that are too high."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("COV")}
    env |= {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    code = MEASURE.format(benchmarks=str(BENCHMARKS), change=change, row=row)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    found, more = json.loads(done.stdout)
    return found, more


unchanged = cache(measured)


def test_nothing_costs_more_than_is_stored() -> None:
    found, more = unchanged()
    assert not more, "\n".join(more)
    assert found.keys() == json.loads((BENCHMARKS / "costs.json").read_text()).keys()
    assert {"W1", "W2", "W3", "source|map / for", "import lazyckpt"} <= found.keys()


def test_counts_are_the_same_each_time() -> None:
    assert measured(hash_seed="1")[0] == unchanged()[0]


@pytest.mark.parametrize(
    ("change", "row", "figure"),
    [
        (SLOW_MAP, "W1", "calls an item"),
        (SLOW_MAP, "source|map / for", "calls an item"),
        (SLOW_SOURCE, "source|filter / for", "lines an item"),
        (GREEDY_FILTER, "W1", "bytes per item"),
        (LONG_STATES, "state: mix of two", "bytes of a state"),
        (MORE_MODULES, "import lazyckpt", "modules"),
    ],
)
def test_what_costs_more_is_noticed(change: str, row: str, figure: str) -> None:
    _, more = measured(change, row)  # unchanged there is nothing, as said above
    assert [line for line in more if line.startswith(f"{row}: ") and figure in line]

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

BENCHMARKS = Path(__file__).parent / "benchmarks"

MEASURE = """
import json, sys
sys.path.insert(0, {benchmarks!r})
import costs
found = costs.measure()
print(json.dumps([found, costs.excesses(found, json.loads(costs.STORED.read_text()))]))
"""


@cache
def measured(hash_seed: str) -> tuple[Any, list[str]]:
    """The counts of a fresh interpreter, and the counts that are too high."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("COV")}
    env |= {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    code = MEASURE.format(benchmarks=str(BENCHMARKS))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    found, more = json.loads(done.stdout)
    return found, more


def test_nothing_costs_more_than_is_stored() -> None:
    found, more = measured("0")
    assert not more, "\n".join(more)
    assert found.keys() == json.loads((BENCHMARKS / "costs.json").read_text()).keys()
    assert {"W1", "W2", "W3", "source|map / for", "import lazyckpt"} <= found.keys()


def test_counts_are_the_same_each_time() -> None:
    assert measured("1")[0] == measured("0")[0]

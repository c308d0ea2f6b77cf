"""Two ranks of torch.distributed over one index, which neither has built before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.io.cases import folder, written

RANKS = 2
ROOT = Path(__file__).parents[3]


def test_two_ranks_build_one_index_and_read_each_its_part() -> None:
    rows = [range(n * 100, n * 100 + 50) for n in range(4)]
    files = written([b"".join(b"%d\n" % row for row in some) for some in rows], ".jsonl")
    place = folder()
    command = [sys.executable, str(ROOT / "tests/world/io/ranks.py"), f"{files.root}/*", str(place)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, env=env, check=True)
    found = [json.loads((place / f"rank-{rank}.json").read_text()) for rank in range(RANKS)]
    assert found[0] == found[1]
    first, second = found[0]
    assert sorted(first + second) == [row for some in rows for row in some]
    assert len(first) == len(second) == 100
    assert sorted((place / "scanned").read_text().split()) == ["000", "001", "002", "003"]

"""Two ranks of torch.distributed over one index, which neither has built before."""

from __future__ import annotations

import json

from tests.io.cases import folder, written
from tests.world.integrations.trainer_cases import runs
from tests.world.io import ranks


def test_two_ranks_build_one_index_and_read_each_its_part() -> None:
    rows = [range(n * 100, n * 100 + 50) for n in range(4)]
    files = written([b"".join(b"%d\n" % row for row in some) for some in rows], ".jsonl")
    place = folder()
    runs(ranks.__file__, f"{files.root}/*", place)
    found = [json.loads((place / f"rank-{rank}.json").read_text()) for rank in range(ranks.RANKS)]
    assert found[0] == found[1]
    first, second = found[0]
    assert sorted(first + second) == [row for some in rows for row in some]
    assert len(first) == len(second) == 100
    assert sorted((place / "scanned").read_text().split()) == ["000", "001", "002", "003"]

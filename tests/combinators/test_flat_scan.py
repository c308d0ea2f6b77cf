"""`flat_scan`: the last outputs come once."""

from __future__ import annotations

from collections import Counter

import lazyckpt as lz
from lazyckpt import testing


def test_transition_flushes_once_and_leaves_its_state_alone() -> None:
    calls = Counter[str]()

    def flush(state: list[int]) -> list[int]:
        calls["flush"] += 1
        out, state[:] = state[:], []
        return out

    def keep(state: list[int], item: int) -> tuple[list[int], list[int]]:
        state.append(item)
        return state, []

    pipeline = lz.source([1, 2, 3]) | lz.flat_scan(keep, list[int](), flush)
    run = lz.run(pipeline)
    assert list(run) == [1, 2, 3]
    assert list(lz.run(pipeline, run.state)) == []
    assert calls["flush"] == 1
    testing.check_pipeline(pipeline)
    middle = lz.state_at(pipeline, 2)
    assert list(lz.run(pipeline, middle.to_json())) == [3]

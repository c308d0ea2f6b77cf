"""`flat_scan`: states, outputs, the last outputs, and refused arguments."""

from __future__ import annotations

from collections import Counter

import pytest

import lazyckpt as lz
from lazyckpt import testing
from tests.helpers import wants


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


def test_transition_refuses_what_is_no_state_and_no_outputs() -> None:
    wants(r"flat_scan: its state.*set", lambda: [1, 2] | lz.flat_scan(lambda s, x: ({1}, []), 0))
    wants("not iterable", lambda: [1] | lz.flat_scan(lambda s, x: (s, 3), 0))
    changed = lz.source([1]) | lz.flat_scan(lambda s, x: (s, [1, 2, 3]), 0)
    state = lz.state_at(changed, 3)
    shorter = lz.source([1]) | lz.flat_scan(lambda s, x: (s, [1, 2]), 0)
    with pytest.raises(lz.SourceChanged):
        list(lz.run(shorter, state))

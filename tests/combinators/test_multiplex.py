"""`multiplex`: refused arguments."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.testing.laws import Stream


@pytest.mark.parametrize("index", [2, -1, 1.0, True, None, "0", np.array([0])])
def test_an_index_out_of_place_is_named(index: Any) -> None:
    letters, numbers = lz.source(["a", "b", "c"]), lz.source([1, 2, 3])
    control: Any = lz.source([0, np.int64(1), index, 0])
    run = lz.run(lz.multiplex(control, [letters, numbers]))
    assert [next(run), next(run)] == ["a", 1]
    for _ in range(2):
        with pytest.raises(lz.PipelineError, match=re.escape(f"0 to 1, got {index!r}")):
            next(run)
    assert run.state.items == 2


@pytest.mark.parametrize("kind", [list, Stream])
def test_a_multiplexed_pipeline_that_ended_is_named(kind: Any) -> None:
    control = lz.source(kind([0, 1, 0, 0]))
    joined = lz.multiplex(control, [lz.source(kind(["a", None])), lz.source(kind([1]))])
    run = lz.run(joined)
    assert [next(run) for _ in range(3)] == ["a", 1, None]
    for ask in (lambda: next(run), lambda: lz.step(joined, run.state)):
        with pytest.raises(lz.PipelineError, match=r"pipelines\[0\] has ended"):
            ask()


def test_what_is_no_multiplex_is_refused() -> None:
    some: Any = lz.source([0])
    for control, pipelines in ((some, []), ([0], [some]), (some, [[1]]), (some, some)):
        with pytest.raises(lz.ArgumentError, match="multiplex: "):
            lz.multiplex(control, pipelines)

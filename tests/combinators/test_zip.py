"""`zip`: strict or not."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt.testing.laws import Stream


@pytest.mark.parametrize("kinds", [(list, Stream), (Stream, list), (Stream, Stream)])
@pytest.mark.parametrize(
    ("lengths", "message"),
    [((3, 2), "argument 2 ends before argument 1"), ((2, 3), "argument 1 ends before argument 2")],
)
def test_a_strict_zip_says_which_is_shorter(kinds: Any, lengths: Any, message: str) -> None:
    parts = [lz.source(kind(range(n))) for kind, n in zip(kinds, lengths, strict=True)]
    strict = lz.zip(*parts, strict=True)
    run = lz.run(strict)
    assert [next(run), next(run)] == [(0, 0), (1, 1)]
    state = run.state
    for _ in range(2):
        with pytest.raises(lz.PipelineError, match=message):
            next(run)
        with pytest.raises(lz.PipelineError, match=message):
            lz.step(strict, state)
    assert run.state == state
    assert list(lz.run(lz.zip(*parts), state)) == []


def test_a_strict_zip_refuses_unequal_lengths_at_once() -> None:
    with pytest.raises(lz.ArgumentError, match=r"one length, got \[3, 2\]"):
        lz.zip(lz.source(range(3)), lz.source(range(2)), strict=True)
    with pytest.raises(lz.ArgumentError, match="strict must be True or False"):
        lz.zip(lz.source([]), strict=1)  # type: ignore[arg-type]
    assert list(islice(lz.zip(lz.source([1]) | lz.repeat(), strict=True), 2)) == [(1,), (1,)]

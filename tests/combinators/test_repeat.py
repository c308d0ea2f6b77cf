"""Repeats within repeats, and of nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

import lazyckpt as lz


def test_an_endless_repeat_within_a_repeat_never_uses_an_order_twice() -> None:
    inner = lz.source(range(50)) | lz.shuffle(seed=0) | lz.repeat() | lz.take(100)
    every = list(inner | lz.repeat(2))
    assert len({tuple(every[i : i + 50]) for i in range(0, 200, 50)}) == 4


@pytest.mark.parametrize("pipeline", [lz.source([]), lz.source(range(9)) | lz.filter(str)])
def test_an_endless_repeat_of_nothing_is_an_error(pipeline: Iterable[Any]) -> None:
    nothing = pipeline | lz.filter(lambda item: False) | lz.repeat()  # type: ignore[operator]
    with pytest.raises(lz.PipelineError, match="empty"):
        next(iter(nothing))
    with pytest.raises(lz.PipelineError, match="empty"):
        lz.step(nothing, lz.init(nothing))

"""`take_while` and `drop_while`, beyond the laws."""

from __future__ import annotations

from typing import Any

import lazyckpt as lz
from lazyckpt.testing.laws import Stream


def small(x: Any) -> bool:
    return x < 30


def test_take_while_reads_one_item_more_and_stays_at_its_end() -> None:
    data = Stream([0, 10, 40, 20, 50])
    run = lz.run(lz.source(data) | lz.take_while(small))
    assert list(run) == [0, 10]
    assert data.pulled == 3
    assert list(lz.run(lz.source(data) | lz.take_while(small), run.state)) == []
    assert data.pulled == 3
    assert list(lz.source(data) | lz.take_while(small) | lz.repeat(2)) == [0, 10, 0, 10]


def test_drop_while_asks_no_more_once_it_has_begun() -> None:
    asked: list[int] = []
    pipeline = lz.source(range(28, 34)) | lz.drop_while(lambda x: asked.append(x) or small(x))
    assert list(pipeline) == [30, 31, 32, 33]
    assert asked == [28, 29, 30]
    state = lz.state_at(pipeline, 2)
    asked.clear()
    assert list(lz.run(pipeline, state)) == [32, 33]
    assert asked == []

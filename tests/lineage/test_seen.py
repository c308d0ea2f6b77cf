"""What was seen: the origins of all items up to a state, by every lane."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.lineage.coded import coded
from lazyckpt.lineage.columns import Names, of_traced
from lazyckpt.lineage.walk import Flowing
from lazyckpt.provenance import traced
from lazyckpt.testing import strategies
from tests.helpers import Costly

Row = tuple[int, str, int, int]


def rows(found: lz.Seen) -> list[Row]:
    """The rows of all blocks."""
    return [
        (int(item), block.stages[stage], int(epoch), int(place))
        for block in found
        for item, stage, epoch, place in zip(
            block.item, block.stage, block.epoch, block.place, strict=True
        )
    ]


def told(pipeline: lz.Pipeline[Any], state: lz.State) -> list[Row]:
    """The rows that `trace` tells, item by item."""
    each = lz.trace(pipeline, lz.init(pipeline), state)
    return [(n, o.stage, o.epoch, o.place) for n, origins in enumerate(each) for o in origins]


def check(pipeline: lz.Pipeline[Any], limit: int = 40) -> None:
    states = [state for _, state in islice(lz.run(pipeline).with_state(), limit)]
    states = [lz.init(pipeline), *states]
    whole, amid = states[-1], states[len(states) // 2]
    found = rows(lz.seen(pipeline, whole))
    assert found == told(pipeline, whole)
    assert rows(lz.seen(pipeline, amid)) + rows(lz.seen(pipeline, whole, amid)) == found
    assert rows(lz.seen(pipeline, amid, since=amid)) == []


@given(strategies.pipelines())
def test_it_is_what_trace_tells(pipeline: lz.Pipeline[Any]) -> None:
    check(pipeline)


@pytest.mark.parametrize("name", sorted(strategies.STAGES))
@given(data=st.data())
def test_every_stage(name: str, data: st.DataObject) -> None:
    stage = data.draw(strategies.STAGES[name])
    pipeline = data.draw(strategies.sources())
    if name in strategies.INSTEAD and pipeline.machine.skip is None:
        pipeline = lz.source(list(pipeline))
    if name == "gather" and len(pipeline) < 5:
        return
    if name == "repeat for ever" and not list(pipeline):
        return
    check(pipeline | stage)


@pytest.mark.parametrize("name", sorted(strategies.JOINS))
@given(parts=st.lists(strategies.sources(), min_size=1, max_size=4))
def test_every_join(name: str, parts: list[lz.Pipeline[Any]]) -> None:
    check(strategies.JOINS[name](*parts))

"""The laws, over every combinator and over random compositions of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.testing import sources, strategies
from lazyckpt.testing.laws import Stream
from lazyckpt.testing.models import MODELS
from lazyckpt.testing.traces import Trace, same
from tests.laws import LAWS, OF_WHAT_IS_TOLD

# Each of these tries all laws on each of its pipelines, which are drawn for the laws, too.
few = settings(max_examples=max(5, settings().max_examples // 5))


@pytest.mark.parametrize("law", sorted(LAWS))
@given(pipeline=strategies.pipelines())
def test_law_over_random_compositions(law: str, pipeline: lz.Pipeline[Any]) -> None:
    LAWS[law](pipeline, 60)


@pytest.mark.parametrize("name", sorted(sources.SOURCES))
@few
@given(data=st.data())
def test_every_source(name: str, data: st.DataObject) -> None:
    keeps_all(data.draw(sources.SOURCES[name]))


def ending_with(name: str, data: st.DataObject) -> lz.Pipeline[Any] | None:
    """A source with a stage of that name after it; None if it has too few items for that."""
    stage = data.draw(strategies.STAGES[name])
    pipeline = data.draw(sources.sources())
    if name in strategies.INSTEAD and pipeline.machine.skip is None:
        pipeline = lz.source(list(pipeline))
    elif name not in strategies.INSTEAD and data.draw(st.booleans()):
        pipeline = lz.source(Stream(pipeline))
    if not strategies.has_room(name, pipeline):
        return None
    if name == "repeat for ever" and not list(pipeline):
        return None
    return pipeline | stage


@pytest.mark.parametrize("name", sorted(strategies.STAGES))
@few
@given(data=st.data())
def test_every_stage_over_every_source(name: str, data: st.DataObject) -> None:
    pipeline = ending_with(name, data)
    if pipeline is not None:
        keeps_all(pipeline)


@pytest.mark.parametrize("name", sorted(strategies.JOINS))
@few
@given(parts=st.lists(sources.sources(), min_size=1, max_size=4))
def test_every_join(name: str, parts: list[lz.Pipeline[Any]]) -> None:
    keeps_all(strategies.JOINS[name](*parts))


def keeps_all(pipeline: lz.Pipeline[Any]) -> None:
    testing.check_pipeline(pipeline)
    for law in OF_WHAT_IS_TOLD.values():
        law(pipeline, 20)


def spoiled(item: Any) -> None:
    """Change an item in place, if possible."""
    if isinstance(item, list):
        item.append("spoiled")
    elif isinstance(item, dict):
        item["spoiled"] = True
    elif isinstance(item, np.ndarray) and item.flags.writeable:
        item.fill(0)


_numbers = st.integers(0, 20).flatmap(
    lambda n: st.sampled_from([lz.source(range(n)), lz.source(Stream(range(n)))])
)


def over_numbers(name: str, data: st.DataObject) -> lz.Pipeline[Any]:
    """A stage, a join or a source of that name, over numbers, which are immutable."""
    if name in sources.SOURCES:
        return data.draw(sources.SOURCES[name])
    if name in strategies.JOINS:
        return strategies.JOINS[name](*data.draw(st.lists(_numbers, min_size=1, max_size=3)))
    return data.draw(_numbers) | data.draw(strategies.STAGES[name])


MAKE_ITEMS = sorted({"unfold", "columns", *strategies.JOINS, *strategies.STAGES} - {"lru_cache"})


@pytest.mark.parametrize("name", MAKE_ITEMS)
@few
@given(data=st.data())
def test_who_changes_items_in_place_changes_none_that_come_later(
    name: str, data: st.DataObject
) -> None:
    try:
        pipeline = over_numbers(name, data)
        whole = Trace(pipeline.machine, 0, 60)
    except lz.PipelineError:
        return  # a stage that wants random access, or more items
    for executor in (lz.inline(), lz.threads(2)):
        with lz.run(pipeline, executor=executor) as run:
            for number, expected in enumerate(whole.items):
                item = next(run)
                same(f"item {number}", item, expected)
                spoiled(item)
                same(
                    f"the state after item {number}",
                    run.state.position,
                    whole.positions[number + 1],
                )


def test_every_combinator_has_a_model_and_is_drawn() -> None:
    named = [*sources.SOURCES, *strategies.STAGES, *strategies.JOINS]
    drawn = {name.partition("(")[0].partition(" ")[0] for name in named}
    assert set(MODELS) == set(lz.registry) == drawn

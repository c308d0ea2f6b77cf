"""The laws, over every combinator and over random compositions of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt import testing
from lazyckpt.testing import sources, strategies
from lazyckpt.testing.models import MODELS
from tests.drawn import ending_with
from tests.laws import LAWS, OF_WHAT_IS_TOLD


@pytest.mark.parametrize("law", sorted(LAWS))
@given(pipeline=strategies.pipelines())
def test_law_over_random_compositions(law: str, pipeline: lz.Pipeline[Any]) -> None:
    LAWS[law](pipeline, 60)


@pytest.mark.parametrize("name", sorted(sources.SOURCES))
@given(data=st.data())
def test_every_source(name: str, data: st.DataObject) -> None:
    keeps_all(data.draw(sources.SOURCES[name]))


@pytest.mark.parametrize("name", sorted(strategies.STAGES))
@given(data=st.data())
def test_every_stage_over_every_source(name: str, data: st.DataObject) -> None:
    pipeline = ending_with(name, data)
    if pipeline is not None:
        keeps_all(pipeline)


@pytest.mark.parametrize("name", sorted(strategies.JOINS))
@given(parts=st.lists(sources.sources(), min_size=1, max_size=4))
def test_every_join(name: str, parts: list[lz.Pipeline[Any]]) -> None:
    keeps_all(strategies.JOINS[name](*parts))


def keeps_all(pipeline: lz.Pipeline[Any]) -> None:
    testing.check_pipeline(pipeline)
    for law in OF_WHAT_IS_TOLD.values():
        law(pipeline, 40)


def test_every_combinator_has_a_model_and_is_drawn() -> None:
    named = [*sources.SOURCES, *strategies.STAGES, *strategies.JOINS]
    drawn = {name.partition("(")[0].partition(" ")[0] for name in named}
    assert set(MODELS) == set(lz.registry) == drawn

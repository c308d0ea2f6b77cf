"""What several test files draw at random."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing import sources, strategies
from lazyckpt.testing.laws import Stream


def ending_with(name: str, data: st.DataObject) -> lz.Pipeline[Any] | None:
    """A source with a stage of that name behind it; None where it has too few items for that."""
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

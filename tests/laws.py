"""Laws of every stage in addition to `lazyckpt.testing.LAWS`: reports about a pipeline."""

from __future__ import annotations

from itertools import islice
from typing import Any

import lazyckpt as lz
from lazyckpt.lineage import tracing
from lazyckpt.lineage.origins import origins
from lazyckpt.state.algebra import made_between
from lazyckpt.testing import LAWS as OF_RUNS
from lazyckpt.testing import equal
from lazyckpt.testing.laws import Law
from lazyckpt.testing.traces import raises
from tests.explanation.test_explain import EXECUTORS, have_numbers_and_places
from tests.explanation.test_layout import fits_in_100_columns

Row = tuple[int, str, int, int]


def trace(pipeline: lz.Pipeline[Any], limit: int) -> None:
    """Items stay the same if they come with origins, and origins are told without reading."""
    items = list(islice(pipeline, limit))
    found = list(islice(tracing.Tracing().pipeline(pipeline, ""), limit))
    plain = [tracing.plain(item) for item in found]
    assert equal(plain, items), f"{plain}, expected {items}"
    expected = [list(dict.fromkeys(origins(each))) for each in found]
    for n in range(0, len(items), max(1, len(items) // 5)):
        assert lz.trace(pipeline, n) == expected[n]
        state = lz.state_at(pipeline, n)
        assert lz.trace(pipeline, state) == expected[n]
        until = lz.advance(pipeline, state, min(3, len(items) - n))
        assert lz.trace(pipeline, state, until) == expected[n : until.items]
    if len(items) < limit:
        raises(IndexError, lambda: lz.trace(pipeline, len(items)))
        raises(IndexError, lambda: lz.trace(pipeline, lz.state_at(pipeline, len(items))))


def rows(found: lz.types.Seen) -> list[Row]:
    """The rows of all blocks."""
    return [
        (int(item), block.stages[stage], int(epoch), int(index))
        for block in found
        for item, stage, epoch, index in zip(
            block.item, block.stage, block.epoch, block.index, strict=True
        )
    ]


def told(pipeline: lz.Pipeline[Any], state: lz.State) -> list[Row]:
    """The rows of items that are read with their origins."""
    machine = tracing.Tracing().pipeline(pipeline, "").machine
    each = enumerate(made_between(machine, lz.init(pipeline), state))
    found = ((n, origin) for n, item in each for origin in dict.fromkeys(origins(item)))
    return [(n, origin.stage, origin.epoch, origin.index) for n, origin in found]


def seen(pipeline: lz.Pipeline[Any], limit: int) -> None:
    """The rows seen are the origins of the items, in any parts."""
    states = [state for _, state in islice(lz.run(pipeline).with_state(), limit)]
    states = [lz.init(pipeline), *states]
    whole, amid = states[-1], states[len(states) // 2]
    found = rows(lz.seen(pipeline, whole))
    assert found == told(pipeline, whole)
    assert rows(lz.seen(pipeline, amid)) + rows(lz.seen(pipeline, whole, amid)) == found
    assert rows(lz.seen(pipeline, amid, since=amid)) == []


def epochs(pipeline: lz.Pipeline[Any], limit: int) -> None:
    """A state's epoch is a small number, and a difference names the stages that moved."""
    for epoch in range(4):
        run = lz.run(pipeline, lz.init(pipeline, epoch=epoch))
        for _, state in islice(run.with_state(), min(9, limit)):
            assert 0 <= state.epoch < 1_000
    names = {call.name for call in pipeline.calls}
    for move in lz.diff(lz.init(pipeline), lz.init(pipeline, epoch=1)).moves:
        is_joined = "[" in move.stage  # which may leave space only for a digest
        assert is_joined or move.name in names
        assert "|" not in move.name


def explain(pipeline: lz.Pipeline[Any], limit: int) -> None:
    """Every stage has its number and place, and the layout fits in 100 columns."""
    have_numbers_and_places(pipeline, EXECUTORS)
    fits_in_100_columns(pipeline)


OF_WHAT_IS_TOLD: dict[str, Law] = {each.__name__: each for each in (trace, seen, epochs, explain)}
LAWS = OF_RUNS | OF_WHAT_IS_TOLD

"""What `rebase` makes of changes: other numbers of stages, other first values."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

import lazyckpt as lz
from tests.core.test_control import at_least, mixed, plus


def moved(initial: Any, *before: Any, data: Any = range(100)) -> lz.Pipeline[Any]:
    pipeline = lz.source(data)
    for stage in before:
        pipeline = pipeline | stage
    return pipeline | lz.map(plus, lz.control(initial, name="more"))


def test_a_control_stays_what_it_was() -> None:
    old, new = moved(1) | lz.shuffle(4, seed=0), moved(500) | lz.shuffle(4, seed=0)
    run = lz.run(old)
    first = list(islice(run, 3))
    with pytest.raises(lz.StateMismatch, match="rebase"):
        lz.run(new, run.state)
    carried = lz.run(new, lz.rebase(run.state, new))
    assert carried.controls == {"more": 1}
    assert [*first, *islice(carried, 10)] == list(islice(old, 13))
    run.set("more", 7)
    later = lz.run(new, lz.rebase(run.state, new).to_json())
    assert later.controls == {"more": 7}
    assert list(islice(later, 20)) == list(islice(run, 20))


def test_changes_follow_their_stages() -> None:
    old = moved(0)
    run = lz.run(old)
    next(run)
    run.set("more", 50)
    new = moved(0, lz.map(abs), lz.map(abs)) | lz.batch(2)
    state = lz.rebase(run.state, new)
    assert [each.places for each in state.changes] == [(("4", 0, 1),)]
    assert next(lz.run(new, state)) == [51, 52]
    assert next(lz.run(old, lz.rebase(state, old))) == 51


def test_a_mix_changes_its_pipelines_and_keeps_its_weights() -> None:
    weights = lz.control([1, 0], name="weights")
    sources = [lz.source(range(n, n + 50), name=str(n)) for n in (0, 100, 200)]
    old = lz.mix(sources[:2], weights, seed=0)
    run = lz.run(old)
    assert list(islice(run, 3)) == [0, 1, 2]
    run.set("weights", [0, 1])
    assert next(run) == 100
    other = lz.mix(sources[1::-1], weights, seed=0)
    state = lz.rebase(run.state, other)
    assert list(islice(lz.run(other, state), 2)) == [3, 4]
    assert lz.mix_counts(other, state) == (1, 3)


def test_controls_come_and_go_only_where_nothing_is_lost() -> None:
    fixed = lz.source(range(9)) | lz.map(plus, 1)
    for old, new in [(fixed, moved(1, data=range(9))), (moved(1, data=range(9)), fixed)]:
        with pytest.raises(lz.StateMismatch):
            lz.rebase(lz.state_at(old, 2), new)
    weights = lz.control([1, 0], name="weights")
    with pytest.raises(lz.StateMismatch):
        lz.rebase(lz.state_at(mixed(weights, seed=0), 2), mixed([1, 0], seed=0))
    both = moved(0) | lz.filter(at_least, lz.control(2, name="least"))
    other = moved(0) | lz.filter(at_least, lz.control(2, name="other"))
    with pytest.raises(lz.StateMismatch, match="control"):
        lz.rebase(lz.state_at(both, 2), other)


def test_first_values_within_a_mix_are_not_followed() -> None:
    def joined(initial: int) -> lz.Pipeline[Any]:
        return lz.mix([moved(initial), lz.count()], [1, 1], seed=0)

    with pytest.raises(lz.StateMismatch, match="within another"):
        lz.rebase(lz.state_at(joined(1), 5), joined(2))


def test_a_long_first_value_is_told_apart_and_not_known() -> None:
    def choosing(weights: list[int]) -> lz.Pipeline[Any]:
        return mixed(lz.control(weights, name="weights"), seed=0)

    def many(first: int) -> lz.Pipeline[Any]:
        weights = lz.control([first, *[1] * 39], name="weights")
        return lz.mix([lz.source(range(9)) for _ in range(40)], weights, seed=0)

    state = lz.state_at(choosing([1, 2]), 5)
    assert lz.rebase(state, choosing([2, 1])).changes[0].value == [1, 2]
    with pytest.raises(lz.StateMismatch, match="but a digest"):
        lz.rebase(lz.state_at(many(1), 2), many(2))

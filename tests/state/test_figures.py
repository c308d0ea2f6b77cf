"""Pictures of states and runs: the position of each stage, its change, the progress."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.core.checks import brief
from lazyckpt.pictures.drawing import figure
from lazyckpt.state.codec import layers
from lazyckpt.testing import strategies
from tests.pictures.cases import mixture
from tests.pictures.test_figures import flat


@given(strategies.pipelines(), st.integers(0, 5))
def test_each_stage_stands_where_the_state_says(pipeline: lz.Pipeline[Any], n: int) -> None:
    run = lz.run(pipeline)
    for _, _ in zip(range(n), run, strict=False):
        pass
    state = lz.State.from_json(run.state.to_json())  # which knows no pipeline
    nodes = [*flat(figure(state).nodes)]
    expected = [*layers(state.stages, state.position)]
    for node, layer in zip(nodes, expected, strict=True):
        numbers = {brief(part) for part in layer.own or () if type(part) is int and part}
        assert bool(node.place) == bool(layer.own)
        assert all(number in node.place for number in numbers if node.name != "source")
    placed = sorted(node.place for node in flat(figure(run).nodes) if node.place)
    assert placed == sorted(node.place for node in nodes if node.place)


@given(strategies.pipelines(), st.integers(0, 3), st.integers(1, 3))
def test_a_difference_marks_what_moved(pipeline: lz.Pipeline[Any], n: int, more: int) -> None:
    run = lz.run(pipeline)
    states = [run.state, *(state for _, state in run.with_state())]
    first, second = states[min(n, len(states) - 1)], states[min(n + more, len(states) - 1)]
    found = lz.diff(first, second)
    marked = [node for node in flat(figure(found).nodes) if node.place]
    assert len(marked) == len(found.moves)
    assert all("→" in node.place for node in marked)


def share(run: lz.Run[Any]) -> float | None:
    return figure(run).share


def test_a_run_shows_how_much_of_the_epoch_is_done() -> None:
    pipeline = lz.source(range(8)) | lz.shuffle(seed=0)
    run = lz.run(pipeline)
    assert share(run) == 0
    next(run)
    assert share(run) == 1 / 8
    assert share(lz.run(pipeline, run.state)) == 1 / 8
    assert [*run.epoch()]
    assert share(run) == 1
    next(run.epoch())
    assert share(run) == 1 / 8
    assert figure(run).facts == ("9 items", "epoch 1")
    assert 'aria-valuenow="12"' in run._repr_html_()


@pytest.mark.parametrize("stage", [lz.repeat(), lz.filter(bool), lz.flat_map(lambda x: [x])])
def test_of_what_has_no_length_no_share_is_shown(stage: lz.Stage[Any, Any]) -> None:
    run = lz.run(lz.source([1, 2, 3]) | stage)
    next(run)
    assert share(run) is None
    assert "progressbar" not in run._repr_html_()


def test_a_closed_run_and_one_that_failed_are_shown() -> None:
    run = lz.run(lz.source([1, 0]) | lz.map(lambda x: 1 / x))
    assert next(run) == 1
    with pytest.raises(ZeroDivisionError):
        next(run)
    assert figure(run).facts == ("1 item", "epoch 0")
    run.close()
    assert "<bdi>1 item</bdi>" in run._repr_html_()


def test_a_run_whose_state_cannot_be_taken_says_so() -> None:
    run = lz.run(lz.source([1, 2]) | lz.scan(lambda state, x: (object(), x), 0))
    next(run)
    found = figure(run)
    assert [node.name for node in found.nodes] == ["source", "scan"]
    assert any("InvalidState" in fact for fact in found.facts)


def test_a_state_shows_weights_on_its_branches_and_the_places_within() -> None:
    (mix, *_) = figure(lz.init(mixture())).nodes
    assert [branch.label for branch in mix.branches] == ["0.7", "0.3"]
    assert mix.arguments == ("seed=2", "stop='never'")
    many = [lz.source(range(9), name=f"web{n}") | lz.shuffle(4, seed=1) for n in range(20)]
    found = figure(lz.init(lz.mix(many, [1] * 20, seed=0)))
    first = found.nodes[0].branches[0].nodes
    assert [node.place for node in first] == ["epoch 0 · item 0", "0"]
    assert "name='web0'" in first[0].arguments


def test_a_state_made_by_hand_is_shown() -> None:
    good = lz.init(lz.source(range(3)) | lz.shuffle(2, seed=0))
    bad = lz.State(good.stages, 3, ((),))
    assert "<bdi>3 items</bdi>" in bad._repr_html_()
    assert lz.tree(bad, width=40).startswith("State, 3 items")


def test_a_resume_cost_is_told_under_the_stages_that_have_one() -> None:
    pipeline = lz.source(range(99)) | lz.filter(bool) | lz.block_shuffle(10, seed=0)
    found = figure(lz.resume_cost(pipeline, lz.state_at(pipeline, 5)))
    assert [node.place for node in found.nodes] == ["", "", "re-reads 10 items"]


def places(pictured: Any) -> dict[str, str]:
    return {node.name: node.place for node in flat(figure(pictured).nodes) if node.place}


def test_a_place_says_what_it_counts() -> None:
    repeated = lz.source(range(9)) | lz.repeat() | lz.shuffle(4, seed=0)
    assert places(lz.state_at(repeated, 424)) == {"source": "epoch 46 · item 7", "shuffle": "424"}
    web, code = (lz.source(range(400), name=name) for name in ("web", "code"))
    mixed = lz.mix([web, code], [0.7, 0.3], seed=2)
    found = lz.diff(lz.init(mixed), lz.state_at(mixed, 129))
    counts = [node.place for node in flat(figure(found).nodes)]
    assert counts == ["web 0 → 89 · code 0 → 40", "item 0 → 89", "item 0 → 40"]
    unnamed = lz.mix([lz.count(), lz.count()], [1, 1], seed=0)
    assert places(lz.state_at(unnamed, 0))["mix"] == "0 0 · 1 0"


def test_an_epoch_of_what_is_repeated_twice_is_that_of_the_source() -> None:
    twice = lz.source(range(3)) | lz.repeat() | lz.take(5) | lz.repeat(2)
    state = lz.state_at(twice, 7)
    assert places(state)["source"].startswith(f"epoch {state.epoch} ·")

"""Joins where the laws can't see: what they refuse, what they count, where they end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize("index", [2, -1, 1.0, True, None, "0", np.array([0])])
def test_an_index_out_of_place_is_named(index: Any) -> None:
    letters, numbers = lz.source(["a", "b", "c"]), lz.source([1, 2, 3])
    control: Any = lz.source([0, np.int64(1), index, 0])
    run = lz.run(lz.multiplex(control, [letters, numbers]))
    assert [next(run), next(run)] == ["a", 1]
    for _ in range(2):
        with pytest.raises(lz.PipelineError, match=re.escape(f"0 to 1, got {index!r}")):
            next(run)
    assert run.state.items == 2


@pytest.mark.parametrize("kind", [list, Stream])
def test_a_multiplexed_pipeline_that_ended_is_named(kind: Any) -> None:
    control = lz.source(kind([0, 1, 0, 0]))
    joined = lz.multiplex(control, [lz.source(kind(["a", None])), lz.source(kind([1]))])
    run = lz.run(joined)
    assert [next(run) for _ in range(3)] == ["a", 1, None]
    for ask in (lambda: next(run), lambda: lz.step(joined, run.state)):
        with pytest.raises(lz.PipelineError, match=r"pipelines\[0\] has ended"):
            ask()


def test_what_is_no_multiplex_is_refused() -> None:
    some: Any = lz.source([0])
    for control, pipelines in ((some, []), ([0], [some]), (some, [[1]]), (some, some)):
        with pytest.raises(lz.ArgumentError, match="multiplex: "):
            lz.multiplex(control, pipelines)


def test_interleave_takes_blocks_of_what_remains() -> None:
    parts = [lz.source(list(text)) for text in ("abcde", "", "12")]
    assert "".join(lz.interleave(*parts)) == "a1b2cde"
    assert "".join(lz.interleave(*parts, block_length=2)) == "ab12cde"
    assert "".join(lz.interleave(*parts, block_length=10**12)) == "abcde12"
    with pytest.raises(lz.ArgumentError, match="block_length must be an int >= 1"):
        lz.interleave(*parts, block_length=0)
    with pytest.raises(lz.ArgumentError, match="at least one"):
        lz.interleave()


def test_interleave_far_out_is_reached_at_once() -> None:
    big = lz.interleave(*[lz.source(range(n)) for n in (10**9, 10, 10**6)], block_length=3)
    assert len(big) == 10**9 + 10**6 + 10
    assert big[-1] == 10**9 - 1
    assert big[10 + 2 * 10**6] == 10**6 + 1
    assert list(big[27:36]) == [9, 10, 11, 9, 9, 10, 11, 12, 13]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=7), st.integers(1, 5))
def test_interleave_passes_over_what_it_steps_through(lengths: list[int], block: int) -> None:
    machine = lz.interleave(*map(lz.source, map(range, lengths)), block_length=block).machine
    assert machine.skip is not None
    places = [machine.init(0)]
    for _ in range(sum(lengths)):
        places.append(machine.step(places[-1])[0])
    end = machine.skip(places[0], sum(lengths) + 1)
    for start, place in enumerate(places):
        for n, there in enumerate(places[start:]):
            assert machine.skip(place, n) == (there, n)
        assert machine.skip(place, 1000) == (end[0], sum(lengths) - start)


def test_many_pipelines_are_passed_over_as_they_end_one_by_one() -> None:
    """Of as many it would take an hour to look at all for every turn."""
    parts = [lz.source(range(n)) for n in range(2500, 0, -1)]
    for pipeline in (lz.interleave(*parts), lz.lanes(parts, num_shards=1, index=0)):
        assert [pipeline[-n] for n in (1, 2, 3, 4)] == [2499, 2498, 2498, 2497]


def test_few_open_inputs_of_many_are_found_without_a_search() -> None:
    """Of as many it would take an hour to look at all for every place passed over."""
    places = 50_000
    pipeline = lz.source([[0]] * (places - 1) + [[1] * 20]) | lz.interleave_map(
        iter, cycle_length=places
    )
    assert list(pipeline) == [0] * (places - 1) + [1] * 20


def repeated(text: str) -> list[str]:
    return [text] * 6


def test_interleave_map_reads_in_the_order_of_tf_data() -> None:
    """The example of tf.data.Dataset.interleave's documentation."""
    pipeline = lz.source(list("12345")) | lz.interleave_map(
        repeated, cycle_length=2, block_length=4
    )
    assert "".join(pipeline) == "111122221122" + "333344443344" + "555555"


@pytest.mark.parametrize("cycle_length", [1, 3, 10])
def test_interleave_map_loses_nothing_and_opens_no_more_than_it_may(cycle_length: int) -> None:
    now, most = [0], [0]

    def opening(n: int) -> Iterator[tuple[int, int | None]]:
        now[0] += 1
        most[0] = max(most[0], now[0])
        yield from ((n, None if i == 1 else i) for i in range(n % 4))
        now[0] -= 1

    pipeline = lz.source(range(9)) | lz.interleave_map(opening, cycle_length=cycle_length)
    found = list(pipeline)
    wanted = [(n, None if i == 1 else i) for n in range(9) for i in range(n % 4)]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
    assert most[0] <= cycle_length
    if cycle_length == 1:
        assert found == wanted


def test_interleave_map_opens_again_only_what_was_open() -> None:
    opened = []

    def noted(n: int) -> range:
        opened.append(n)
        return range(10 * n, 10 * n + 10)

    pipeline = lz.source(range(20)) | lz.interleave_map(noted, cycle_length=3)
    whole = list(pipeline)
    state = lz.state_at(pipeline, 100)
    opened.clear()
    assert next(lz.run(pipeline, state)) == whole[100]
    assert opened == [10]
    assert list(lz.run(pipeline, state)) == whole[100:]


def test_the_state_of_interleave_map_grows_with_cycle_length() -> None:
    def size(cycle_length: int) -> int:
        stage = lz.interleave_map(range, cycle_length=cycle_length)
        return len(lz.state_at(lz.source(range(100, 500)) | stage, 2000).to_json())

    assert (size(24) - size(8)) / 16 < 20
    assert size(24) < 1024


def test_interleave_map_refuses_and_names_what_is_wrong() -> None:
    for options in ({"cycle_length": 0}, {"cycle_length": 2, "block_length": 0}, {}):
        with pytest.raises(lz.ArgumentError, match="interleave_map: "):
            lz.interleave_map(str.split, **options)  # type: ignore[arg-type]
    pipeline: Any = lz.source([1]) | lz.interleave_map(abs, cycle_length=2)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not iterable") as caught:
        list(pipeline)
    assert "interleave_map(abs" in caught.value.__notes__[0]
    lengths = [3]
    shrinking = lz.source([0]) | lz.interleave_map(lambda _: range(lengths[0]), cycle_length=2)
    state = lz.state_at(shrinking, 2)
    lengths[0] = 1
    with pytest.raises(lz.SourceChanged, match="after item 2 of an expansion that now has 1"):
        list(lz.run(shrinking, state))

"""`arange`, `gather`, `cycle`, `interleave`, `repeat`, `switch` and `case`."""

from __future__ import annotations

from itertools import cycle, islice
from typing import Any

import numpy as np
import pytest
import toolz
from hypothesis import given
from hypothesis import strategies as st

from lazyckpt.compat import seqtools as ours
from tests.compat.seqtools.cases import (
    LIBRARIES,
    REFUSED,
    IterableTen,
    outcomes,
    same,
)


@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(-4, 4).filter(bool))
def test_sq13_arange_has_the_bounds_of_range(start: int, stop: int, step: int) -> None:
    mine, expected = ours.arange(start, stop, step), range(start, stop, step)
    for library in LIBRARIES:
        assert list(library.arange(start, stop, step)) == list(expected)
    assert list(ours.arange(stop)) == list(range(stop))
    with pytest.raises(IndexError):  # SeqTools keeps counting
        mine[len(expected)]
    with pytest.raises(IndexError):
        mine[-len(expected) - 1]


@given(st.lists(st.integers(-4, 3), max_size=9), st.sampled_from([list, tuple, np.array]))
def test_sq14_gather_repeats_and_counts_from_the_end(indexes: list[int], kind: Any) -> None:
    chosen = kind(indexes) if indexes or kind is not np.array else np.array([], int)
    for library in LIBRARIES:
        for gather in (library.gather, library.take):
            assert list(gather("abcd", chosen)) == ["abcd"[i] for i in indexes]
    lazily = ours.gather("abcd", ours.smap(same, indexes))
    assert list(lazily) == ["abcd"[i] for i in indexes]
    assert len(lazily) == len(indexes)


def test_sq14_an_index_that_there_is_none_of() -> None:
    for index in (4, -5):
        with pytest.raises(IndexError):
            ours.gather("abcd", [0, index])
        for library in LIBRARIES:
            with pytest.raises(IndexError):
                library.gather("abcd", [0, index])[1]
        assert outcomes(ours.gather("abcd", ours.smap(same, [0, index]))) == ["a", "IndexError"]
    forever = ours.gather("abcd", ours.cycle([3, 1]))
    assert (list(islice(forever, 3)), forever[10**6]) == (["d", "b", "d"], "d")
    assert len(ours.gather(ours.gather("abcd", [3, 2, 1]), range(2))[::-1].pipeline.calls) <= 4


@given(st.lists(st.integers(), min_size=1, max_size=5), st.integers(1, 20), st.integers(0, 10**12))
def test_sq15_cycle(items: list[int], limit: int, index: int) -> None:
    for library in LIBRARIES:
        sequence, endless = library.cycle(items, limit), library.cycle(items)
        assert (list(sequence), len(sequence)) == (list(islice(cycle(items), limit)), limit)
        assert endless[index] == items[index % len(items)]
        assert list(endless[2:9:2]) == list(islice(cycle(items), 2, 9, 2))
    mine = ours.cycle(items, limit)
    assert list(mine[::-1]) == list(reversed(mine)) == list(mine)[::-1]


def test_sq15_cycle_of_nothing_and_to_nothing() -> None:
    assert list(ours.cycle([1], 0)) == list(ours.cycle([], 0)) == []
    for limit in (None, 1):
        with pytest.raises(ValueError, match="empty"):
            ours.cycle([], limit)
    with pytest.raises(ValueError, match="limit"):
        ours.cycle([1], -1)


@given(st.lists(st.lists(st.integers(), max_size=5), max_size=4))
def test_sq16_interleave(sequences: list[list[int]]) -> None:
    expected = list(toolz.interleave(sequences))
    for library in LIBRARIES:
        sequence = library.interleave(*sequences)
        assert (list(sequence), len(sequence)) == (expected, len(expected))
    mine = ours.interleave(*sequences)
    assert [mine[i] for i in range(len(mine))] == expected


def test_sq16_interleave_of_what_has_no_length() -> None:
    mixed = ours.interleave([1, 2], ours.cycle("ab"))
    assert list(islice(mixed, 7)) == [1, "a", 2, "b", "a", "b", "a"]
    assert mixed[3] == "b"
    streams = ours.interleave(IterableTen(3), [7])
    assert list(streams) == [0, 7, 1, 2]
    with pytest.raises(TypeError, match="no indices"):
        streams[0]


@given(st.integers(0, 5), st.one_of(st.none(), st.integers(), st.lists(st.integers())))
def test_sq17_repeat(times: int, value: Any) -> None:
    assert list(ours.repeat(value, times)) == [value] * times
    assert ours.repeat(value)[10**9] == value
    assert list(ours.repeat(value)[3:7]) == [value] * 4


def test_sq17_wrong_times() -> None:
    for times in (-1, 1.5, "2"):
        with pytest.raises(TypeError):
            ours.repeat(0, times)  # type: ignore[arg-type]


@given(st.data(), st.integers(0, 8))
def test_sq18_switch_and_case(data: st.DataObject, size: int) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    numbers = data.draw(st.lists(st.integers(-3, 2), min_size=size, max_size=size))
    values = [[f"{letter}{i}" for i in range(size)] for letter in "abc"]
    switched = [values[0 if flag else 1][i] for i, flag in enumerate(flags)]
    chosen = [values[number][i] for i, number in enumerate(numbers)]
    for library in LIBRARIES:
        assert list(library.switch(flags, *values[:2])) == switched
        sequence = library.case(numbers, *values)
        assert (list(sequence), len(sequence)) == (chosen, size)
    assert list(ours.switch(np.array(flags, bool), *values[:2])) == switched


def test_sq18_a_wrong_selector_is_an_error() -> None:
    assert outcomes(ours.case([0, 7, 1], "abc", "xyz")) == ["a", "ValueError", "z"]
    assert outcomes(ours.case([0, None, 1], "abc", "xyz")) == ["a", "TypeError", "z"]
    assert list(ours.switch([2, 0, ""], "abc", "xyz")) == ["a", "y", "z"]
    for library in LIBRARIES:
        with pytest.raises(REFUSED):
            library.case([0, 1], "abc", "xyz")
        with pytest.raises(REFUSED):
            library.switch([True] * 3, "abc", "xy")

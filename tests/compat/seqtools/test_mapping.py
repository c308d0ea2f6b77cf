"""`smap` and `starmap`, and errors of items."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazyckpt.compat import seqtools as ours
from tests.compat.seqtools.cases import LIBRARIES, REFUSED, double, fails_at_five, outcomes, same


def steals(x: int) -> int:
    if x == 2:
        raise StopIteration
    return x


@settings(max_examples=20)  # theirs goes through all modules for each sequence
@given(st.lists(st.lists(st.integers(), max_size=6), min_size=1, max_size=3))
def test_sq11_smap_is_as_long_as_the_shortest(sequences: list[list[int]]) -> None:
    def added(*args: int) -> int:
        return sum(args)

    zipped = list(zip(*sequences, strict=False))
    expected = [sum(args) for args in zipped]
    for library in LIBRARIES:
        assert list(library.smap(added, *sequences)) == expected
        assert list(library.starmap(added, zipped)) == expected
    assert len(ours.smap(added, *sequences)) == len(expected)  # theirs: the first's


def test_sq11_wrong_arguments() -> None:
    for library in LIBRARIES:
        with pytest.raises(TypeError):
            library.smap(None, [1])
        with pytest.raises(REFUSED):
            library.smap(same)
    with pytest.raises(ValueError, match="one-shot"):
        ours.smap(same, (x for x in [1]))


def test_sq12_an_error_names_the_items_index_and_the_line() -> None:
    line = sys._getframe().f_lineno + 1
    sequence = ours.smap(fails_at_five, range(10))
    with pytest.raises(ours.EvaluationError, match=f"item 5 of .*{__name__}.py:{line}") as caught:
        sequence[5]
    assert isinstance(caught.value.__cause__, KeyError)
    joined = ours.smap(fails_at_five, ours.concatenate([[0, 1, 2], [3, 4, 5]]))
    for read in (lambda: joined[5], lambda: list(joined)):
        with pytest.raises(ours.EvaluationError, match="item 5 of "):
            read()
    assert sequence[6] == 6
    assert outcomes(sequence) == [0, 1, 2, 3, 4, "EvaluationError", 6, 7, 8, 9]
    assert list(sequence[6:]) == [6, 7, 8, 9]


@given(st.permutations(range(8)), st.integers(1, 3), st.booleans())
def test_sq12_the_index_is_that_in_the_failing_stage(order: list[int], k: int, walks: bool) -> None:
    """As theirs, whatever is built upon it."""

    def build(library: Any) -> Any:
        inner = library.smap(fails_at_five, library.gather(list(range(8)), order))
        backwards = library.gather(library.cycle(inner, 24), list(range(23, -1, -1)))
        return library.batch(backwards, k)

    mine = build(ours)
    number = next(i for i in range(len(mine)) if 5 in [order[(23 - j) % 8] for j in span(i, k)])
    if walks:
        with pytest.raises(ours.EvaluationError, match=f"item {order.index(5)} of smap"):
            list(mine)
    for library, where in zip(LIBRARIES, ("of smap", "in Mapping"), strict=False):
        sequence = build(library)
        with pytest.raises(library.EvaluationError, match=f"item {order.index(5)} {where}"):
            sequence[number]


def span(number: int, k: int) -> range:
    return range(number * k, min(number * k + k, 24))


@given(st.permutations(range(8)), st.integers(1, 3))
def test_sq12_going_through_goes_on_behind_each_error(order: list[int], times: int) -> None:
    """Over plain data, over data that fail themselves, and over several sequences together."""
    items = order * times
    names = ["EvaluationError" if item == 5 else item for item in items]
    once = ours.smap(fails_at_five, items)
    assert outcomes(once) == outcomes(ours.smap(same, once)) == names
    assert outcomes(ours.collate([once, items])) == [
        name if name == "EvaluationError" else (name, name) for name in names
    ]
    both = ours.smap(lambda item, number: (fails_at_five(item), number), items, range(99))
    with pytest.raises(ours.EvaluationError, match=f"item {items.index(5)} of "):
        list(both)
    assert [each for each in outcomes(both) if each != "EvaluationError"] == [
        (item, number) for number, item in enumerate(items) if item != 5
    ]


def test_sq12_passthrough_raises_the_error_itself() -> None:
    sequence = ours.smap(fails_at_five, range(6))
    assert {library.seterr() for library in LIBRARIES} == {"wrap"}
    try:
        assert ours.seterr("passthrough") == "passthrough"
        for read in (lambda: sequence[5], lambda: list(sequence)):
            with pytest.raises(KeyError) as caught:
                read()
            assert any("item 5 of smap" in note for note in caught.value.__notes__)
    finally:
        ours.seterr("wrap")
    for library in LIBRARIES:
        with pytest.raises(ValueError, match="evaluation"):
            library.seterr("other")


@dataclass(frozen=True)
class Fixed(Exception):
    """An error whose attributes can't be set."""

    number: int


class Failing(Sequence[int]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: Any) -> Any:
        raise Fixed(index)


def test_sq12_an_error_that_is_a_frozen_dataclass_keeps_its_type() -> None:
    with pytest.raises(Fixed) as caught:
        ours.add_cache(Failing())[1]
    assert "item 1" in vars(caught.value)["__notes__"][0]
    sequence = ours.smap(Failing().__getitem__, range(3))
    try:
        ours.seterr("passthrough")
        for read in (lambda: sequence[0], lambda: list(sequence)):
            with pytest.raises(Fixed) as caught:
                read()
            assert "item 0 of smap" in vars(caught.value)["__notes__"][0]
    finally:
        ours.seterr("wrap")


def test_sq12_errors_of_other_stages_keep_their_type() -> None:
    def refuse(batch: list[int]) -> int:
        raise ZeroDivisionError

    batches = ours.batch(range(6), 2, collate_fn=refuse)
    with pytest.raises(ZeroDivisionError) as caught:
        batches[1]
    assert "item 1" in caught.value.__notes__[0]
    assert "batch" in caught.value.__notes__[0]
    assert outcomes(batches) == ["ZeroDivisionError"] * 3
    found = iter(batches)
    for number in range(3):
        with pytest.raises(ZeroDivisionError) as caught:
            next(found)
        assert "batch" in caught.value.__notes__[0]
        assert f"after {number} delivered items" in caught.value.__notes__[0]
    stolen = ours.smap(steals, range(4))
    assert outcomes(stolen) == [0, 1, "EvaluationError", 3]
    with pytest.raises(ours.EvaluationError) as caught_too:
        ours.smap(double, ours.smap(fails_at_five, range(6)))[5]
    assert str(caught_too.value).startswith("item 5 of smap(fails_at_five)")

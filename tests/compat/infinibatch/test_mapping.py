"""Iterators that change items, compared with Infinibatch's."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from infinibatch import iterators as old

import lazyckpt as lz
from lazyckpt.compat.infinibatch import iterators
from tests.compat.infinibatch.cases import SEEDS, native, some, through_json, until_it_fails


def square(x: int) -> int:
    if x == 77:
        raise KeyError(x)
    return x * x


def test_ib27_parallel_map() -> None:
    it = iterators.ParallelMapIterator(native(iterators, 70), square, 2, 3)
    squares = [x * x for x in range(70)]
    assert some(it, 20) == squares[:20]
    state = through_json(it.getstate())
    assert some(it, 100) == squares[20:]
    it.setstate(state)
    assert some(it, 100) == squares[20:]
    it.close()
    with pytest.raises(RuntimeError, match="closed"):
        next(it)
    it = iterators.ParallelMapIterator(native(iterators, 99), square, 2, 3)
    assert until_it_fails(it) == [x * x for x in range(77)]
    it.close()


@pytest.mark.parametrize("n", [0, 7, 8])
def test_ib27_parallel_map_at_every_cut_of_the_original(n: int) -> None:
    theirs = old.SelectManyIterator(  # the original computes this, except for its pool
        old.MapIterator(old.FixedBatchIterator(native(old, n), 4), lambda items: items)
    )
    for cut in range(n + 2):
        ours = iterators.ParallelMapIterator(native(iterators, n), square, 2, 2)
        ours.setstate(theirs.getstate())
        assert some(ours) == [x * x for x in range(cut, n)]
        ours.close()
        some(theirs, 1)


@given(SEEDS, st.integers(0, 9000))
def test_ib31_random(seed: Any, cut: int) -> None:
    ours, theirs = iterators.RandomIterator(seed), old.RandomIterator(seed)
    assert some(ours, cut) == some(theirs, cut)
    other = iterators.RandomIterator(seed)
    other.setstate(theirs.getstate())
    assert some(other, 9) == some(ours, 9) == some(theirs, 9)
    ours.setstate(None)
    assert next(ours) == Random(seed).random()


def test_ib32_recurrent_from_a_state_that_is_no_value() -> None:
    initial = np.zeros(2)
    it = iterators.RecurrentIterator(native(iterators), lambda s, x: (s + x, s.sum()), initial)
    initial += 9
    assert some(it, 3) == [0, 0, 2]
    with pytest.raises(lz.InvalidState):
        it.getstate()
    it.setstate(None)
    assert next(it) == 0


def counting(state: Any, x: int) -> Any:
    return [state, x][-1:], (type(state) is list, x)


def test_ib32_a_state_of_the_original_behind_a_first_state_that_is_no_value() -> None:
    theirs = old.RecurrentIterator(native(old, 5), counting, frozenset("abc"))
    ours = iterators.RecurrentIterator(native(iterators, 5), counting, frozenset("abc"))
    expected = some(ours)
    for cut in range(1, 6):
        next(theirs)
        ours.setstate(theirs.getstate())
        assert some(ours) == expected[cut:]


def reseeding(random: Random, x: int) -> float:
    if x % 10 == 3:
        random.seed(x)
    if x % 10 == 7:
        random.shuffle(list(range(2000)))
    return random.gauss(0, 1)


def test_ib33_sampling() -> None:
    make = lambda it: it.SamplingRandomMapIterator(native(it, 25), reseeding, 3)  # noqa: E731
    expected = some(make(old))
    it = make(iterators)
    for cut in range(26):
        for state in (it.getstate(),):
            other = make(iterators)
            other.setstate(json.loads(json.dumps(state)))
            assert some(other) == expected[cut:]
        some(it, 1)

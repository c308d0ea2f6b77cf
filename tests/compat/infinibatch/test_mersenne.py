"""States of a `random.Random`, however many words were drawn."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from infinibatch import iterators as old

import lazyckpt as lz
from lazyckpt.compat.infinibatch import iterators
from tests.compat.infinibatch.cases import native, place, some, through_json


@pytest.mark.parametrize("size", [0, 1, 2, 3, 8, 1000, 70_000])
def test_the_place_after_what_was_drawn(size: int) -> None:
    def shuffled(random: Random, _: int) -> list[int]:
        items = list(range(size))
        random.shuffle(items)
        return items[:9]

    def make(it: Any) -> Any:
        return it.SamplingRandomMapIterator(native(it, 4), shuffled, "x")

    ours, expected = make(iterators), some(make(old))
    for cut in range(4):
        state = ours.getstate()
        resumed = make(iterators)
        resumed.setstate(through_json(state))
        assert place(resumed.getstate()) == place(state)
        assert some(resumed) == expected[cut:]
        next(ours)


@pytest.mark.parametrize("words", [0, 623, 624, 20_000, 10_000_001, 2**25 + 1])
def test_a_resume_goes_to_any_number_of_words(words: int) -> None:
    it = iterators.RandomIterator(5)
    state = lz.State.from_dict(it.getstate())
    before, origin, _, spare = state.position
    it.setstate(state.at((before, origin, words, spare)).to_dict())
    random = Random(5)
    random.getrandbits(32 * words)
    assert some(it, 400) == [random.random() for _ in range(400)]

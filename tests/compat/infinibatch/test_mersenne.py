"""The words of `random.Random`, and what is drawn with them."""

from __future__ import annotations

from random import Random

import pytest

import lazyckpt as lz
from lazyckpt.compat.infinibatch import iterators, mersenne
from lazyckpt.compat.infinibatch.mersenne import Words

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@pytest.mark.parametrize("bound", [1, 2, 3, 64, 65, 1000])
def test_words_make_what_random_makes(bound: int) -> None:
    for size in (0, 1, 2, 3, 8, 1000, 1023, 1024, 1025, 2049, 4096, 70_000):
        random, words = Random("x"), Words("x", 0, 0)
        items = list(range(size))
        for _ in range(2):
            expected = list(items)
            random.shuffle(expected)
            items = words.shuffled(items)
            assert items == expected
            assert words.permutation(size).tolist() == shuffled(random, size)
            assert words.below(bound, 77).tolist() == [random.randrange(bound) for _ in range(77)]
        start = Random("x").getstate()
        assert mersenne.located(start, 0, 0, random.getstate()) == (0, words.drawn)


def shuffled(random: Random, size: int) -> list[int]:
    found = list(range(size))
    random.shuffle(found)
    return found


@pytest.mark.parametrize("steps", [20_000, 10_000_001])
def test_jumping_is_drawing(steps: int) -> None:
    random = Random(5)
    for drawn in (0, 100):
        random.getrandbits(32 * drawn)
        jumped = mersenne.restored(mersenne.jumped(random.getstate(), steps))
        random.getrandbits(32 * steps)
        assert jumped.randbytes(3000) == random.randbytes(3000)


def test_far_states_stay_small_and_are_found_at_once() -> None:
    it = iterators.RandomIterator(3)
    state = lz.State.from_dict(it.getstate())
    it.setstate(state.at((0, 2**51, 0)).to_dict())
    assert 0 <= next(it) < 1

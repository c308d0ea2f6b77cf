"""The place of a `random.Random`."""

from __future__ import annotations

from random import Random

import pytest

import lazyckpt as lz
from lazyckpt.compat.infinibatch import iterators, mersenne
from lazyckpt.compat.infinibatch.mersenne import Draws

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@pytest.mark.parametrize("size", [0, 1, 2, 3, 8, 1000, 70_000])
def test_the_place_after_what_was_drawn(size: int) -> None:
    random, draws = Random("x"), Draws("x", 0, 0)
    for _ in range(3):
        expected = list(range(size))
        random.shuffle(expected)
        draws.random.shuffle(found := list(range(size)))
        assert found == expected
        resumed = Draws("x", *draws.mark)
        assert resumed.random.getstate() == random.getstate()
        assert resumed.mark == draws.mark
    assert draws.mark == mersenne.located(Random("x").getstate(), 0, 0, random.getstate(), 1 << 20)


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
    before, origin, _, spare = state.position
    it.setstate(state.at((before, origin, 2**51, spare)).to_dict())
    assert 0 <= next(it) < 1

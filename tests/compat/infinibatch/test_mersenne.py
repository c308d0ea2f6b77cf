"""The place of a `random.Random`."""

from __future__ import annotations

from random import Random

import pytest

from lazyckpt.compat.infinibatch import mersenne
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


@pytest.mark.parametrize("words", [0, 1, 623, 624, 20_000, (1 << 24) + 1])
def test_passing_over_is_drawing(words: int) -> None:
    random = Random(5)
    random.getrandbits(32 * words)
    assert mersenne.placed(5, 0, words).randbytes(3000) == random.randbytes(3000)

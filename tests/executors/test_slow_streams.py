"""A stream that is slow, before stages that workers do quickly."""

from __future__ import annotations

from itertools import islice
from time import sleep

import pytest

import lazyckpt as lz

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.parametrize("workers", [1, 2])
def test_it_is_not_read_far_ahead_before_an_item_comes(workers: int) -> None:
    read: list[int] = []

    def slowly(x: int) -> tuple[int, int]:
        sleep(5e-3)
        read.append(x)
        return x + 1, x

    pipeline = lz.unfold(slowly, 0) | lz.map(abs)
    with lz.run(pipeline, executor=lz.threads(workers)) as run:
        for given, item in enumerate(islice(run, 40), 1):
            assert item == given - 1
            assert len(read) < given + 200

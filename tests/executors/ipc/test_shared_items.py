"""Lists and tuples as sources of workers that start clean: pickled once, for all of them."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz

pytestmark = pytest.mark.usefixtures("nothing_left")

unpickled = 0


def item(x: Any) -> Item:
    global unpickled
    unpickled += 1
    return Item(x)


class Item:
    def __init__(self, x: Any) -> None:
        self.x = x

    def __reduce__(self) -> tuple[Any, ...]:
        return item, (self.x,)


def counted(found: Item) -> tuple[Any, int]:
    return found.x, unpickled


def twice(found: Item) -> list[Any]:
    return [found.x, found.x]


@pytest.mark.parametrize(("method", "kind"), [("forkserver", list), ("spawn", tuple)])
def test_a_worker_unpickles_what_it_reads_and_no_more(method: str, kind: Any) -> None:
    data = kind(map(Item, range(3000)))
    pipeline = lz.source(data) | lz.shuffle(seed=0) | lz.repeat() | lz.map(counted)
    with lz.run(pipeline, executor=lz.processes(2, start_method=method)) as run:
        (first, count), (second, _) = next(run), next(run)
    assert [first, second] == [x for x, _ in islice(lz.run(pipeline), 2)]
    assert count < 300


def test_whatever_the_items_are() -> None:
    data = [None, [], {"a": np.arange(3)}, Item(4), np.zeros(()), "text", lambda: 7, (1, [2])]
    executor = lz.processes(2)
    with lz.run(lz.source(data) | lz.map(repr), executor=executor) as run:
        shown = [*run]
    assert [*map(kind_of, shown)] == [kind_of(repr(each)) for each in data]
    with lz.run(lz.source(data[3:4]) | lz.flat_map(twice), executor=executor) as run:
        assert [*run] == [4, 4]
    with lz.run(lz.source([]) | lz.flat_map(twice), executor=executor) as run:
        assert [*run] == []


def kind_of(shown: str) -> str:
    return shown.partition(" at 0x")[0]


def first_of(pair: tuple[np.ndarray[Any, Any], int]) -> int:
    return pair[1] + int(pair[0][-1])


def test_items_of_one_large_object_do_not_each_bring_it() -> None:
    table = np.zeros(1 << 20, np.uint8)  # with each of the items 4 GiB
    pipeline = lz.source([(table, n) for n in range(1 << 12)]) | lz.map(first_of)
    with lz.run(pipeline, executor=lz.processes(2)) as run:
        assert [*run] == [*range(1 << 12)]

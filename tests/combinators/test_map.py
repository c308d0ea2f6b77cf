"""`map`, `starmap` and `tap`, beyond the laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt import testing
from tests.helpers import wants


def doubled(x: Any) -> Any:
    return x * 2


def test_starmap_and_tap() -> None:
    seen: list[Any] = []
    pairs = lz.source([(1, 2), (3, 4)]) | lz.tap(seen.append) | lz.starmap(lambda a, b: a * b)
    assert list(pairs) == [2, 12]
    assert seen == [(1, 2), (3, 4)]
    seen.clear()
    assert pairs[1] == 12
    assert seen == [(3, 4)]
    assert list(lz.source([None, 0, np.arange(0)]) | lz.tap(id))[:2] == [None, 0]
    wants("must be an iterable", lambda: lz.source([3]) | lz.starmap(max))


def test_a_vectorized_map_gets_whole_batches_of_columns() -> None:
    sizes = []

    def summed(rows: dict[str, Any]) -> dict[str, Any]:
        sizes.append(len(rows["x"]))
        return {"sum": rows["x"].sum(axis=1) + rows["y"], "y": rows["y"]}

    table = lz.columns(x=np.arange(20).reshape(10, 2), y=np.arange(10))
    pipeline = table | lz.map(summed, vectorized=True) | lz.shuffle(seed=0) | lz.repeat(2)
    batches = list(pipeline | lz.batch(8, collate=lz.stack))
    assert sizes == [8, 8, 4]
    assert all((b["sum"] == 5 * b["y"] + 1).all() for b in batches)
    assert pipeline[3]["sum"] == 5 * pipeline[3]["y"] + 1
    testing.check_pipeline(table | lz.map(summed, vectorized=True), model=False)


def test_a_vectorized_map_must_keep_the_number() -> None:
    first = lz.map(lambda x: x[:1], vectorized=True)
    numbers = lz.source(np.arange(4))
    assert list(numbers | first) == [0, 1, 2, 3]
    wants("got 4 items and returned 1", lambda: numbers | first | lz.batch(4, collate=lz.stack))
    wants("got 1 items and returned 2", lambda: [3] | lz.map(lambda x: [1, 2], vectorized=True))
    uneven = lz.map(lambda x: {"a": x, "b": x[:2]}, vectorized=True)
    wants("got 3 items and returned 2", lambda: numbers | uneven | lz.batch(3, collate=lz.stack))
    wants("no array can be made of None", lambda: [None] | lz.map(doubled, vectorized=True))


def test_vectorized_is_no_part_of_a_state() -> None:
    plain, fast = (lz.source([1, 2]) | lz.map(doubled, vectorized=v) for v in (False, True))
    assert lz.init(plain) == lz.init(fast)


@pytest.mark.parametrize(
    "stage",
    [
        lz.starmap(lambda *a: next(iter(()))),
        lz.tap(lambda a: next(iter(()))),
        lz.random_map(lambda rng, a: next(iter(())), seed=0),
        lz.flat_scan(lambda s, a: next(iter(())), 0),
        lz.take_while(lambda a: next(iter(()))),
        lz.drop_while(lambda a: next(iter(()))),
        lz.map(lambda a: next(iter(())), vectorized=True),
    ],
)
def test_a_stopiteration_out_of_a_function_ends_nothing(stage: lz.Stage[Any, Any]) -> None:
    with pytest.raises(lz.PipelineError, match="StopIteration"):
        list(lz.source(np.ones((3, 2))) | stage)

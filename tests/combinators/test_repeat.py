"""Repeats within repeats, and of nothing."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.testing import check_pipeline
from lazyckpt.testing.laws import Stream


def test_an_endless_repeat_within_a_repeat_never_uses_an_order_twice() -> None:
    inner = lz.source(range(50)) | lz.shuffle(seed=0) | lz.repeat() | lz.take(100)
    every = list(inner | lz.repeat(2))
    assert len({tuple(every[i : i + 50]) for i in range(0, 200, 50)}) == 4


EMPTY = [
    lz.source([]),
    lz.source(Stream([])),
    lz.source([1]) | lz.skip(1),
    lz.source(range(9)) | lz.filter(str) | lz.filter(lambda item: False),
]


@pytest.mark.parametrize("empty", EMPTY, ids=str)
@pytest.mark.parametrize("tail", [lz.map(str), lz.batch(2), lz.take(1), lz.shuffle(2, seed=0)])
def test_an_endless_repeat_of_nothing_is_an_error(empty: Any, tail: Any) -> None:
    pipeline = empty | lz.repeat() | tail
    for action in (
        lambda: list(pipeline),
        lambda: lz.step(pipeline, lz.init(pipeline)),
        lambda: lz.state_at(pipeline, 1),
    ):
        with pytest.raises(lz.PipelineError, match=r"repeat: .* empty"):
            action()


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("data", [[], np.zeros((0, 2)), range(0)], ids=repr)
def test_a_repeat_of_nothing_keeps_random_access(data: Any, count: int) -> None:
    pipeline = lz.source(data) | lz.repeat(count)
    assert len(pipeline) == 0
    for index in (0, -1, 5):
        with pytest.raises(IndexError, match="out of range"):
            pipeline[index]
    stages = (
        lz.shuffle(seed=0), lz.shard(num_shards=2, index=1, contiguous=True), lz.gather([]),
        lz.batch(2, collate=lz.stack), lz.block_shuffle(3, seed=0), lz.lru_cache(2), lz.take(0),
    )  # fmt: skip
    for stage in stages:
        assert len(pipeline | stage) == 0
        check_pipeline(pipeline | stage | lz.repeat(2), limit=9)


def test_random_access_to_an_endless_repeat_of_nothing_is_an_error() -> None:
    endless = lz.source([]) | lz.repeat()
    for read in (lambda: endless[3], lambda: lz.state_at(endless, 3), lambda: next(iter(endless))):
        with pytest.raises(lz.PipelineError, match="the stream to repeat forever is empty"):
            read()
    assert lz.state_at(endless, 0) == lz.init(endless)
    with pytest.raises(lz.PipelineError, match="is empty"):
        next(iter(endless | lz.skip(2) | lz.batch(2)))


def kept(rate: float) -> Any:
    """On average one item in so many, a different one in each epoch."""
    draws: Any = lz.random_map(lambda rng, x: x if rng.random() < rate else -1, seed=0)
    return draws | lz.filter(lambda x: x >= 0)


@pytest.mark.parametrize("data", [[7], range(3), Stream([7]), Stream(range(3))])
def test_epochs_that_are_empty_by_chance_are_passed_over(data: Any) -> None:
    endless = lz.source(data) | kept(0.1) | lz.repeat()
    found = list(islice(endless, 20))
    assert found == list(lz.source(data) | kept(0.1) | lz.repeat(900))[:20]
    check_pipeline(endless, limit=20)
    mixed = lz.mix([lz.source(data) | kept(0.1), lz.count()], [1, 1], seed=0, stop="never")
    assert [x for x in islice(mixed, 12) if x in found]
    run = lz.run(lz.source(data) | lz.random_map(failing, seed=0) | lz.repeat(), on_error="skip")
    assert {*islice(run, 9)} <= {*data}


def failing(rng: Any, x: int) -> int:
    if rng.random() < 0.9:
        raise ValueError(x)
    return x


@pytest.mark.parametrize("data", [range(3), Stream(range(3)), range(20_000)])
def test_a_stream_that_never_has_items_is_not_repeated_for_ever(data: Any) -> None:
    nothing = lz.source(data) | lz.filter(lambda x: False)
    for endless in (nothing | lz.repeat(), nothing | lz.batch(2) | lz.repeat(3) | lz.repeat()):
        for read in (lambda p: next(iter(p)), lambda p: lz.step(p, lz.init(p))):
            with pytest.raises(lz.PipelineError, match="to repeat forever is empty"):
                read(endless)


@pytest.mark.parametrize("count", [1, 3, None])
@pytest.mark.parametrize("data", [[4, 5, 6], range(2), b"ab", list(range(513))], ids=len)
def test_epochs_of_few_items_that_are_there_have_the_places_of_any_other(
    data: Any, count: int | None
) -> None:
    check_pipeline(lz.source(data) | lz.repeat(count), limit=20)
    run, n = lz.run(lz.source(data) | lz.repeat(count)), len(data)
    for number, (item, state) in enumerate(islice(run.with_state(), 3 * n)):
        assert (item, state.position) == (data[number % n], (number // n, number % n + 1))
        assert state.items == number + 1


def test_data_that_change_in_the_last_epoch_are_noticed_at_its_end() -> None:
    data = [1, 2]
    run = lz.run(lz.source(data) | lz.repeat(3))
    found = [next(run) for _ in range(5)]
    data.append(3)
    with pytest.raises(lz.SourceChanged):
        found.extend(run)
    assert found == [1, 2] * 3
    assert run.state.items == 6

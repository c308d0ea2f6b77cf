"""Stages that come and go, and what carries over to the changed pipeline."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import pytest
import toolz

import lazyckpt as lz
from tests.state.cases import DATA, STREAM, rest

INSERTED: list[tuple[lz.Stage[Any, Any], Callable[[list[Any]], Iterable[Any]]]] = [
    (lz.map(str), lambda items: map(str, items)),
    (lz.filter(lambda x: x % 3), lambda items: [x for x in items if x % 3]),
    (lz.take(5), lambda items: items[:5]),
    (lz.skip(5), lambda items: items[5:]),
    (lz.enumerate(), enumerate),
    (lz.batch(4), lambda items: toolz.partition_all(4, items)),
    (lz.sliding_window(3), lambda items: toolz.sliding_window(3, items)),
    (lz.flat_map(lambda x: [x, x]), lambda items: [x for x in items for _ in range(2)]),
    (lz.scan(lambda s, x: (s + x, s), 0), lambda items: itertools.accumulate([0, *items[:-1]])),
    (lz.repeat(1), lambda items: items),
    (lz.shard(num_shards=2, index=1), lambda items: items[1::2]),
    (lz.take_while(lambda x: x < 35), lambda items: [x for x in items if x < 35]),
]


@pytest.mark.parametrize(("stage", "means"), INSERTED, ids=[str(each)[:30] for each, _ in INSERTED])
@pytest.mark.parametrize("data", [DATA, STREAM], ids=["indices", "stream"])
@pytest.mark.parametrize("cut", [0, 3, 7, 20])
def test_an_inserted_stage_begins_here(
    data: lz.Pipeline[int], stage: lz.Stage[Any, Any], means: Any, cut: int
) -> None:
    pairs = lz.map(lambda x: (x, x))
    expected = [x if isinstance(x, int | str) else tuple(x) for x in means([*range(cut, 40)])]
    state = lz.state_at(data, cut)
    found = rest(data | stage, state)
    assert [x if isinstance(x, int | str) else tuple(x) for x in found] == expected
    state = lz.state_at(data | lz.repeat(2) | pairs, cut)
    assert rest(data | stage | lz.repeat(2) | pairs, state)[: len(found)] == [(x, x) for x in found]
    assert lz.rebase(state, data | stage | lz.repeat(2) | pairs).items == cut


def test_stages_are_inserted_into_a_mixture_of_all_that_changes() -> None:
    old = DATA | lz.shuffle(seed=0) | lz.repeat() | lz.shard(num_shards=2, index=0) | lz.batch(2)
    new = (
        DATA | lz.map(lambda x: x) | lz.shuffle(seed=0) | lz.repeat() | lz.map(str)
        | lz.shard(num_shards=1, index=0) | lz.enumerate() | lz.batch(3)
    )  # fmt: skip
    order = list(map(str, islice(DATA | lz.shuffle(seed=0) | lz.repeat(), 300)))
    found = rest(new, lz.state_at(old, 5), 9)
    assert [x for batch in found for x in batch] == list(enumerate(order[20:47]))


def test_a_shuffle_inserted_over_a_stream_goes_on_with_what_is_left() -> None:
    state = lz.state_at(DATA, 13)
    for stage in (lz.shuffle(5, seed=0), lz.block_shuffle(4, seed=0)):
        assert sorted(rest(DATA | stage, state)) == list(range(13, 40))


def test_maps_are_inserted_and_removed_before_windows() -> None:
    plain, mapped = (
        data | lz.shuffle(5, seed=0) | lz.batch(3) | lz.take(9)
        for data in (DATA, DATA | lz.map(str))
    )
    for old, new in ((plain, mapped), (mapped, plain)):
        for cut in (0, 1, 5, 9):
            assert rest(new, lz.state_at(old, cut)) == list(new)[cut:]


@pytest.mark.parametrize(
    "numbering", [lz.enumerate(), lz.random_map(lambda rng, x: (x, x), seed=0)]
)
@pytest.mark.parametrize("window", [lz.shuffle(5, seed=0), lz.block_shuffle(7, seed=0)], ids=str)
def test_stages_that_number_items_lose_none_of_a_window_after_them(
    numbering: Any, window: Any
) -> None:
    plain = DATA | window
    numbered = DATA | numbering | lz.map(lambda pair: pair[1]) | window
    for old, new in ((plain, numbered), (numbered, plain)):
        for cut in range(41):
            state = lz.state_at(old, cut)
            if 0 < cut < 40 and window == lz.shuffle(5, seed=0):
                with pytest.raises(lz.StateMismatch, match="after it reads other items ahead; put"):
                    lz.rebase(state, new)
            else:
                assert rest(new, state) == list(plain)[cut:]


def test_what_stands_before_a_whole_order_has_no_part_in_the_state() -> None:
    orders = [
        DATA | stage | lz.shuffle(seed=0) | lz.batch(size)
        for stage, size in ((lz.take(9), 2), (lz.take(9) | lz.map(lambda x: x), 3))
    ]
    items = [x for batch in orders[0] for x in batch]
    assert rest(orders[1], lz.state_at(orders[0], 2)) == [items[4:7], items[7:9]]


def test_stages_without_a_memory_are_removed_from_here_on() -> None:
    whole = DATA | lz.filter(lambda x: x % 2) | lz.enumerate() | lz.batch(3)
    state = lz.state_at(whole, 2)
    assert rest(DATA | lz.batch(3), state)[0] == [12, 13, 14]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (DATA | lz.take(9), DATA, "take(n=9) was removed; the items that it holds or counts would"),
        (DATA | lz.shuffle(4, seed=0), DATA, "would be lost; keep it, or start from"),
        (
            DATA,
            DATA | lz.shuffle(seed=0),
            "it orders whole epochs, and the current one is partly delivered",
        ),
        (DATA, DATA | lz.gather([1, 2]), "it orders whole epochs"),
        (DATA, DATA | lz.shard(num_shards=2, index=0, contiguous=True), "it orders whole"),
        (
            DATA | lz.shuffle(4, seed=0),
            DATA | lz.filter(bool) | lz.shuffle(4, seed=0),
            "stage 2: filter() was added; shuffle(buffer_size=4, seed=0) after it holds items from "
            "filter; put filter after shuffle, or change between epochs",
        ),
        (DATA | lz.map(str) | lz.take(9), DATA | lz.take(8), "take(n=9) -> take(n=8); n decides"),
        (DATA | lz.block_shuffle(2, seed=0), DATA | lz.block_shuffle(3, seed=0), "block_size=3"),
        (
            DATA | lz.batch(2) | lz.shuffle(3, seed=0),
            DATA | lz.batch(3) | lz.shuffle(3, seed=0),
            "shuffle(buffer_size=3, seed=0) after it holds items from batch",
        ),
        (DATA, lz.count() | lz.take(40), "source -> count"),
    ],
    ids=str,
)
def test_what_has_no_meaning_is_refused_with_the_reason(old: Any, new: Any, reason: str) -> None:
    with pytest.raises(lz.StateMismatch) as caught:
        lz.rebase(lz.state_at(old, 1), new)
    assert reason in str(caught.value)
    with pytest.raises(lz.StateMismatch) as caught:
        lz.run(new, lz.state_at(old, 1))
    assert "rebase" not in str(caught.value)


def test_a_whole_order_may_begin_where_an_epoch_does() -> None:
    shuffled = DATA | lz.shuffle(seed=0) | lz.repeat(2)
    assert rest(shuffled, lz.init(DATA | lz.repeat(2))) == list(shuffled)

"""`hash_range`, `split`, `kfold`: parts are disjoint, complete, and stable."""

from __future__ import annotations

import pickle
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz

KEYS = [None, str, lambda item: str(item).encode(), int]
SEEDS = st.integers(0, 2**64)


@given(st.sampled_from(KEYS), SEEDS, st.integers(0, 60), st.integers(0, 60))
def test_parts_are_disjoint_and_stay_when_data_grow(
    by: Any, seed: int, size: int, more: int
) -> None:
    stages = lz.split([0.5, 0.3, 0.2], seed=seed, key=by)
    before = [list(lz.source(range(size)) | stage) for stage in stages]
    after = [list(lz.source(range(size + more)) | stage) for stage in stages]
    assert sorted(chain.from_iterable(before)) == list(range(size))
    assert [[item for item in part if item < size] for part in after] == before


@given(SEEDS)
def test_a_part_that_grows_takes_of_the_next_alone(seed: int) -> None:
    data = lz.source(range(200))
    less, _ = lz.split([0.6, 0.4], seed=seed)
    more, _ = lz.split([0.7, 0.3], seed=seed)
    assert {*(data | less)} <= {*(data | more)}


@pytest.mark.parametrize("by", KEYS[:2])
def test_shares_are_what_was_asked_for(by: Any) -> None:
    parts = lz.split({"train": 0.8, "valid": 0.1, "test": 0.1}, seed=0, key=by)
    sizes = {name: len(list(lz.source(range(20_000)) | part)) for name, part in parts.items()}
    assert sum(sizes.values()) == 20_000
    assert abs(sizes["train"] - 16_000) < 300
    assert abs(sizes["test"] - 2_000) < 220


def test_items_with_one_key_stay_together() -> None:
    train, _ = lz.split([0.5, 0.5], seed=1, key=lambda item: item % 7)
    chosen = {*(lz.source(range(70)) | train)}
    assert 0 < len(chosen) < 70
    for key in range(7):
        assert len({*range(key, 70, 7)} & chosen) in (0, 10)


@given(st.integers(2, 6), st.sampled_from(KEYS), SEEDS)
def test_folds(k: int, by: Any, seed: int) -> None:
    data = lz.source(range(50))
    folds = [
        (list(data | train), list(data | test)) for train, test in lz.kfold(k, seed=seed, key=by)
    ]
    assert sorted(chain.from_iterable(test for _, test in folds)) == list(range(50))
    assert all(sorted(train + test) == list(range(50)) for train, test in folds)


def test_parts_have_random_access_and_read_nothing_else() -> None:
    read: list[int] = []
    train, _ = lz.split([0.5, 0.5], seed=0)
    part = lz.source(range(100)) | lz.tap(read.append) | train | lz.shuffle(seed=1)
    assert part[3] in range(100)
    assert len(read) == 1


@pytest.mark.parametrize("fractions", [[], [1.5], [0.5, 0.6], [-0.1], "ab", None, 3, {}, [True]])
def test_bad_fractions(fractions: Any) -> None:
    with pytest.raises(lz.ArgumentError, match="split: fractions must be"):
        lz.split(fractions, seed=0)


@pytest.mark.parametrize(
    ("fractions", "words"),
    [
        ({"train": 0.9, "val": "0.1"}, r"not '0.1' .str. for part 'val', got .*\{'train': 0.9"),
        ([0.9, -0.1], r"numbers from 0 to 1, not -0.1 .float. for part 1, got"),
        ({"train": 0.9, "val": 0.2}, r"a sum of at most 1, got .*\{'train': 0.9, 'val': 0.2\}"),
    ],
)
def test_a_bad_fraction_is_named_with_its_part(fractions: Any, words: str) -> None:
    with pytest.raises(lz.ArgumentError, match=words):
        lz.split(fractions, seed=0)


@pytest.mark.parametrize("key", [None, 1.5, (1,), [1]], ids=repr)
def test_a_key_that_cannot_be_hashed(key: Any) -> None:
    stage, _ = lz.split([0.5, 0.5], seed=0, key=lambda item: key)
    with pytest.raises(TypeError, match="key must return a str, bytes or an int"):
        list(lz.source([1]) | stage)


def test_numbers_need_random_access() -> None:
    stage, _ = lz.split([0.5, 0.5], seed=0)
    with pytest.raises(lz.ArgumentError, match="pass `key`"):
        _ = (lz.unfold(lambda state: None, 0) | stage).machine
    with pytest.raises(lz.ArgumentError, match="is endless"):
        _ = (lz.count() | stage).machine


def test_ends_in_their_order() -> None:
    with pytest.raises(lz.ArgumentError, match=r"start=0\.6 is above stop=0\.5"):
        lz.hash_range(0.6, 0.5, seed=0)


def test_parts_stay_what_they_are() -> None:
    stages = lz.split([0.4, 0.6], seed=9)
    named = lz.split([0.4, 0.6], seed=2, key=str)
    found = [list(lz.source(range(12)) | stage) for stage in (*stages, *named)]
    assert found == GOLDEN


GOLDEN = [
    [0, 1, 5],
    [2, 3, 4, 6, 7, 8, 9, 10, 11],
    [2, 3, 4, 5, 8],
    [0, 1, 6, 7, 9, 10, 11],
]


@given(
    st.lists(st.integers(0, 9), max_size=40),
    st.sampled_from([str, int, lambda n: str(n).encode()]),
    st.sampled_from([list, tuple, np.array, pa.array]),
    SEEDS,
)
def test_keys_of_a_column_are_those_of_a_function(
    items: list[int], key: Any, column: Any, seed: int
) -> None:
    data = lz.source(items)
    by_function = lz.split([0.5, 0.3], seed=seed, key=key)
    by_column = lz.split([0.5, 0.3], seed=seed, key=column([key(item) for item in items] or []))
    for one, other in zip(by_function, by_column, strict=True):
        expected = list(data | one)
        part = data | other
        assert [part[n] for n in range(len(part))] == list(part) == expected
        assert sorted(part | lz.shuffle(seed=seed)) == sorted(expected)
        for cut in range(len(expected) + 1):
            state = lz.state_at(part, cut).to_json()
            assert list(lz.run(part, state)) == expected[cut:]


def test_keys_are_part_of_a_pipeline() -> None:
    data, keys = lz.source(range(4)), [*"abca"]
    train = lz.hash_range(0, 0.5, seed=0, key=keys)
    assert train == lz.hash_range(0, 0.5, seed=0, key=np.array(keys))
    assert hash(data | train) == hash(data | lz.hash_range(0, 0.5, seed=0, key=tuple(keys)))
    assert pickle.loads(pickle.dumps(data | train)) == data | train
    assert repr(train) == "hash_range(0.0, 0.5, seed=0, key=['a', 'b', 'c', ...])"
    state = lz.init(data | train)
    for other in ([*"abcb"], [*"abc1"], [1, 2, 3, 4]):
        changed = data | lz.hash_range(0, 0.5, seed=0, key=other)
        assert changed != data | train
        with pytest.raises(lz.StateMismatch, match=r"hash_range\(key="):
            lz.run(changed, state)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("abcd", "key must be a function, or a sequence of keys, one per item or None"),
        ({"a": 1}, "key must be a function, or a sequence of keys"),
        (3, "key must be a function, or a sequence of keys"),
        (np.zeros((4, 1)), "key must be a function, or a sequence of keys"),
        ([*"abc"], "3 keys for 4 items"),
    ],
    ids=repr,
)
def test_keys_that_do_not_fit(key: Any, message: str) -> None:
    with pytest.raises(lz.ArgumentError, match=message):
        lz.source(range(4)) | lz.hash_range(0, 0.5, seed=0, key=key)


def test_keys_that_cannot_be_hashed() -> None:
    with pytest.raises(TypeError, match=r"key must return a str, bytes or an int, got 1\.5"):
        list(lz.source([1]) | lz.hash_range(0, 0.5, seed=0, key=[1.5]))
    with pytest.raises(lz.ArgumentError, match="pass `key` as a function"):
        lz.count() | lz.hash_range(0, 0.5, seed=0, key=[1])

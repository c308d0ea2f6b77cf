"""Items appended to data: a state follows them by `rebase`, if the change is well defined."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.testing.laws import Stream
from tests.helpers import Indexed
from tests.io.cases import written
from tests.io.conftest import cache  # noqa: F401
from tests.state.cases import drawn_run


def in_files(*sizes: int) -> lz.io.Rows[int]:
    """Files of so many numbers."""
    numbers = iter(range(sum(sizes)))
    contents = [b"".join(b"%d\n" % n for n in islice(numbers, size)) for size in sizes]
    return lz.io.read_jsonl(written(contents, ".jsonl"))


KINDS: dict[str, Any] = {
    "range": lambda size: lz.source(range(size)),
    "list": lambda size: lz.source([*range(size)]),
    "array": lambda size: lz.source(np.arange(size)),
    "data set": lambda size: lz.source(Indexed(size, lambda index: index * index)),
    "frame": lambda size: lz.source(pa.table({"x": np.arange(size)})),
    "columns": lambda size: lz.columns(x=np.arange(size), y=[[n, n] for n in range(size)]),
    "files": lambda size: lz.source(in_files(4, size - 4) if size > 4 else in_files(4)),
}


def tokens(row: Any) -> list[int]:
    return [int(token) - 1 for token in row["tokens"] if token]


IN_ORDER: list[Any] = [
    lz.map(lambda n: n),
    lz.shard(num_shards=1, index=0),
    lz.repeat(1),
    lz.skip(0),
    lz.take(99),
    lz.enumerate() | lz.map(lambda pair: pair[1]),
    lz.batch(3),
    lz.filter(lambda n: True),
    lz.flat_map(lambda n: [n]),
    lz.map(lambda n: [n + 1]) | lz.concat_then_split(2) | lz.map(tokens),
    lz.group_by(lambda n: n % 5 == 0) | lz.map(lambda pair: pair[1]),
]
REORDERED: list[Any] = [
    lz.shuffle(seed=0),
    lz.shuffle(buffer_size=3, seed=0),
    lz.block_shuffle(3, seed=0),
    lz.local_shuffle(2, seed=0, block_size=2),
    lz.bucket_batch(2, key=hash, window_size=4, seed=0) | lz.unbatch(),
    lz.batch(2) | lz.shuffle(seed=1) | lz.unbatch(),
    lz.interleave_map(lambda n: [n], cycle_length=2),
    lz.bucket_by_boundaries([2], 2, key=lambda n: n % 4) | lz.unbatch(),
    lz.map(lambda n: [n + 1]) | lz.pack_first_fit(2, num_bins=2) | lz.map(tokens) | lz.unbatch(),
]


def flat(items: Any) -> list[int]:
    return [n for item in items for n in (flat(item) if isinstance(item, list) else [item])]


@given(
    st.booleans(),
    st.integers(0, 8),
    st.integers(0, 5),
    st.lists(st.sampled_from(IN_ORDER + REORDERED)),
    st.data(),
)
def test_no_item_is_lost_and_none_comes_twice(
    is_of_files: bool, size: int, more: int, stages: list[Any], data: st.DataObject
) -> None:
    old, new = lz.source(range(size)), lz.source(range(size + more))
    if is_of_files:
        old, new = lz.source(in_files(size)), lz.source(in_files(size, more))
    for stage in stages[:3]:
        try:
            old, new = old | stage, new | stage
        except lz.ArgumentError:  # without random access, or of batches
            return
    try:
        count = len(list(old))
    except TypeError:  # of batches
        return
    had, run = drawn_run(old, count, data)
    try:
        state = lz.rebase(run.state, new)
    except lz.StateMismatch:
        assert not all(stage in IN_ORDER[:7] for stage in stages[:3])
        return
    rest = list(lz.run(new, state))
    if all(stage in IN_ORDER for stage in stages[:3]):
        assert flat(had) + flat(rest) == flat(new)
    elif rest or more == 0:
        assert Counter(flat(had) + flat(rest)) == Counter(flat(new))
    else:  # the epoch is over, in its old order
        assert Counter(flat(had)) == Counter(flat(old))


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 40), st.sampled_from(REORDERED))
def test_an_epoch_has_the_items_that_there_were_and_the_next_one_all(
    size: int, more: int, cut: int, stage: Any
) -> None:
    old, new = (lz.source(range(each)) | stage | lz.repeat() for each in (size, size + more))
    run = lz.run(old)
    found = list(islice(run, cut))
    try:
        run.change(new)
    except lz.StateMismatch:
        assert found + list(islice(run, 30)) == list(islice(old, cut + 30))
        return
    while run.state.epoch <= cut // size + 3:
        found.append(next(run))
    counts = Counter(found)
    for some in (range(size), range(size, size + more)):
        times = [counts[item] for item in some]
        assert max(times) - min(times) <= 1


def test_a_window_that_a_batch_reads_again_keeps_its_items() -> None:
    old, new = (lz.source(range(n)) | lz.block_shuffle(6, seed=1) | lz.repeat() for n in (7, 15))
    rows = lz.batch(5) | lz.unbatch()
    run = lz.run(old | rows, lz.rebase(lz.state_at(old, 2), old | rows))
    list(islice(run, 5))
    with pytest.raises(lz.StateMismatch, match=r"beyond the end .*: block_shuffle\(.* holds items"):
        run.change(new | rows)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_epoch_in_order_goes_on_to_the_new_end(kind: str) -> None:
    for stage in (lz.map(str), lz.map(str) | lz.repeat(2), lz.map(str) | lz.batch(2)):
        old, new = KINDS[kind](4) | stage, KINDS[kind](7) | stage
        for cut in range(3):
            state = lz.state_at(old, cut)
            with pytest.raises(lz.StateMismatch, match=r"lz\.rebase\(state, pipeline\) to carry"):
                lz.run(new, state)
            assert list(lz.run(new, lz.rebase(state, new))) == list(new)[cut:]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_shuffled_epoch_ends_before_the_data_grow(kind: str) -> None:
    old, new = (
        KINDS[kind](size) | lz.shuffle(seed=0) | lz.repeat() | lz.map(str) for size in (4, 7)
    )
    run = lz.run(old)
    before = list(islice(run, 8))
    state = lz.rebase(run.state, new)
    assert [*before, *islice(lz.run(new, state), 7)] == [*islice(old, 8), *islice(new, 14, 21)]
    assert (state.items, state.epoch) == (8, 1)
    next(run)
    with pytest.raises(lz.StateMismatch, match=r"length=4.*length=7.*keep the old data until"):
        lz.rebase(run.state, new)


def test_a_loop_over_epochs_has_all_items_from_the_next_one_on() -> None:
    old, new = (lz.source(range(size)) | lz.shuffle(seed=0) | lz.batch(2) for size in (4, 7))
    run = lz.run(old)
    assert sorted(flat(run.epoch())) == [*range(4)]
    run.change(new)
    assert sorted(flat(run.epoch())) == [*range(7)]


@pytest.mark.parametrize("shuffled", [False, True])
def test_ranks_go_on_alike(shuffled: bool) -> None:
    order: Any = lz.shuffle(seed=0) if shuffled else lz.map(int)
    old, new = (lz.source(range(size)) | order | lz.repeat() for size in (4, 6))
    state = lz.state_at(old | lz.shard(num_shards=2, index=0), 4)
    found = [
        list(islice(lz.run(new | shard, lz.rebase(state, new | shard)), 6))
        for shard in (lz.shard(num_shards=2, index=rank) for rank in (0, 1))
    ]
    if shuffled:
        assert sorted(found[0][:3] + found[1][:3]) == sorted(found[0][3:] + found[1][3:])
    else:  # the second epoch continues to the new end
        assert found == [[4, 0, 2, 4, 0, 2], [5, 1, 3, 5, 1, 3]]


@pytest.mark.parametrize("executor", [None, lz.threads(2), lz.processes(2)])
def test_a_mixture_goes_on_when_one_of_its_pipelines_grows(executor: Any) -> None:
    letters = lz.source([*"abc"]) | lz.repeat()

    def mixed(size: int) -> lz.Pipeline[Any]:
        numbers = lz.source(range(size), name="numbers") | lz.shuffle(seed=1) | lz.repeat()
        return lz.mix([numbers, letters], [1, 1], deterministic=True) | lz.map(str)

    with lz.run(mixed(3), executor=executor) as run:
        first = list(islice(run, 6))
        run.change(mixed(5))
        rest = list(islice(run, 10))
    assert sorted(first[::2]) == ["0", "1", "2"]
    assert sorted(rest[::2]) == ["0", "1", "2", "3", "4"]
    assert first[1::2] + rest[1::2] == [*"abcabcab"]


def test_what_a_window_holds_is_not_ordered_in_another_way() -> None:
    old, new = (
        lz.source(range(size)) | lz.shuffle(seed=0) | lz.repeat() | lz.filter(lambda n: True)
        | lz.shuffle(3, seed=1)
        for size in (4, 7)
    )  # fmt: skip
    for cut in range(1, 9):
        with pytest.raises(lz.StateMismatch, match=r"after it (holds|orders)"):
            lz.rebase(lz.state_at(old, cut), new)


def test_fewer_items_and_other_names_are_refused() -> None:
    state = lz.state_at(lz.source(range(5), name="web"), 1)
    with pytest.raises(lz.StateMismatch, match=r"length=5.*length=3.*pass 5 or more"):
        lz.rebase(state, lz.source(range(3), name="web"))
    with pytest.raises(lz.StateMismatch, match="name decides the order"):
        lz.rebase(state, lz.source(range(9), name="books"))
    with pytest.raises(lz.StateMismatch, match=r"length=5.*length=3.*pass 5 or more"):
        lz.rebase(lz.state_at(lz.columns(x=range(5)), 1), lz.columns(x=range(3)))
    streamed = lz.source(Stream(range(9)), name="web")
    for known, other in ((state, streamed), (lz.init(streamed), lz.source(range(9), name="web"))):
        with pytest.raises(lz.StateMismatch, match="can't be compared"):
            lz.rebase(known, other)
    for join in (lz.concat, lz.interleave, lz.zip):
        old, new = (join(lz.source(range(4)), lz.source(range(size))) for size in (4, 6))
        with pytest.raises(lz.StateMismatch, match=r"length=4.*length=6.*decides the order"):
            lz.rebase(lz.state_at(old, 3), new)
    hostile = lz.init(lz.source(range(5)))
    bad = hostile.stages[0].with_arguments({"length": "5"})
    with pytest.raises(lz.StateMismatch, match="can't be compared"):
        lz.rebase(lz.State((bad,), 0, hostile.position), lz.source(range(9)))


def test_a_split_by_keys_follows_data_that_grow_between_epochs() -> None:
    def training(size: int) -> lz.Pipeline[int]:
        keys = [f"author {n % 7}" for n in range(size)]
        train, _ = lz.split([0.6, 0.4], seed=0, key=keys)
        return lz.source(range(size)) | train | lz.shuffle(seed=0)

    small, large = training(40), training(60)
    first = lz.run(small)
    seen = list(first.epoch())
    state = lz.rebase(first.state, large)
    later = list(lz.run(large, state).epoch())
    assert {n for n in later if n < 40} == {*seen}
    assert any(n >= 40 for n in later)
    with pytest.raises(lz.StateMismatch, match="orders whole epochs"):
        lz.rebase(lz.state_at(small, 1), large)


def test_keys_that_are_others_are_no_growth() -> None:
    def part(keys: str) -> lz.Pipeline[str]:
        data = lz.source([*keys])
        return data | lz.hash_range(0, 0.5, seed=0, key=[*keys])

    state = lz.init(part("abc"))
    lz.rebase(state, part("abcd"))
    for keys in ("abd", "xbcd", "ab"):
        with pytest.raises(lz.StateMismatch):
            lz.rebase(state, part(keys))
    by_function = lz.source([*"abc"]) | lz.hash_range(0, 0.5, seed=0, key=str)
    with pytest.raises(lz.StateMismatch):
        lz.rebase(state, by_function)

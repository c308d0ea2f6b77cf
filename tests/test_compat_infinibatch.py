"""`lazyckpt.compat.infinibatch` beside Infinibatch 0.1.1: a test for each item of its behaviour."""

from __future__ import annotations

import copy
import faulthandler
import json
import logging
import pickle
import re
from collections.abc import Callable, Iterator
from itertools import chain, islice
from random import Random
from typing import Any
from weakref import ref

import cloudpickle
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from infinibatch import datasets as old_datasets
from infinibatch import iterators as old

import lazyckpt as lz
from lazyckpt.compat import infinibatch
from lazyckpt.compat.infinibatch import datasets, iterators, mersenne
from lazyckpt.compat.infinibatch.block_iterator import BlockIterator
from lazyckpt.compat.infinibatch.words import Words

CODES = [*range(1, 8), *range(10, 38), *range(39, 48)]

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

Make = Callable[[Any], Any]  # of a module, an iterator of it


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    faulthandler.dump_traceback_later(60, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def native(it: Any, n: int = 30) -> Any:
    return it.NativeCheckpointableIterator(list(range(n)))


def ragged(it: Any, n: int = 30) -> Any:
    """Lists of 0 to 3 equal items: a stream without random access behind it."""
    return it.MapIterator(native(it, n), lambda x: [x] * (x % 4))


def stream(it: Any, n: int = 30) -> Any:
    return it.SelectManyIterator(ragged(it, n))


def drawing(random: Random, x: int) -> Any:
    return x, random.gauss(0, 1), random.choice("abc"), random.random()


def running(state: list[int], x: int) -> tuple[list[int], int]:
    state.append(x)
    del state[:-3]
    return state, sum(state)


def control(it: Any) -> Any:
    return it.NativeCheckpointableIterator([0, 1, 1, 0, 2] * 4)


MAKES: dict[str, Make] = {
    "native": native,
    "native, of a dict": lambda it: it.NativeCheckpointableIterator(dict.fromkeys(range(9))),
    "chunked": lambda it: it.ChunkedSourceIterator(list(range(30)), 4, 1),
    "permutation": lambda it: it.InfinitePermutationSourceIterator(list(range(11)), 3),
    "permutation, rank": lambda it: it.InfinitePermutationSourceIterator(
        list(range(11)), 3, True, 3, 1
    ),
    "permutation, few": lambda it: it.InfinitePermutationSourceIterator([1, 2, 3], 3, True, 8, 5),
    "cycle": lambda it: it.InfinitePermutationSourceIterator(list(range(7)), 3, False, 3, 2),
    "multiplex": lambda it: it.MultiplexIterator(control(it), [native(it), stream(it), native(it)]),
    "select": stream,
    "buffered": lambda it: it.BufferedShuffleIterator(stream(it), 7, 5),
    "map": lambda it: it.MapIterator(stream(it), str),
    "zip": lambda it: it.ZipIterator(native(it), stream(it)),
    "windows": lambda it: it.WindowedIterator(stream(it), 4),
    "batch": lambda it: it.FixedBatchIterator(stream(it), 4),
    "random": lambda it: it.RandomIterator(9),
    "recurrent": lambda it: it.RecurrentIterator(stream(it), running, [7]),
    "sampling": lambda it: it.SamplingRandomMapIterator(stream(it), drawing, 3),
    "blockwise": lambda it: it.BlockwiseShuffleIterator(stream(it), 8, 3),
    "buckets": lambda it: it.BucketedReadaheadBatchIterator(
        stream(it), 10, lambda x: x % 5, lambda x: 1.5 + x % 3, lambda x: x % 7 < 3, seed=4
    ),
}
STAGES = {
    "Multiplex": lambda it, s: it.MultiplexIterator(s, [s]),
    "SelectMany": lambda it, s: it.SelectManyIterator(s),
    "BufferedShuffle": lambda it, s: it.BufferedShuffleIterator(s, 2),
    "Map": lambda it, s: it.MapIterator(s, str),
    "Zip": lambda it, s: it.ZipIterator(s),
    "Windowed": lambda it, s: it.WindowedIterator(s, 2),
    "FixedBatch": lambda it, s: it.FixedBatchIterator(s, 2),
    "Recurrent": lambda it, s: it.RecurrentIterator(s, running, []),
    "Prefetch": lambda it, s: it.PrefetchIterator(s, 2),
    "BucketedReadahead": lambda it, s: it.BucketedReadaheadBatchIterator(s, 2, None, 2),
}
NAMES = sorted(MAKES)
MOST = 60


def some(iterator: Any, n: int = MOST) -> list[Any]:
    return list(islice(iterator, n))


def through_json(state: Any) -> Any:
    text = json.dumps(state)
    assert len(text) <= 1024
    return json.loads(text)


def same(make: Make, n: int = MOST) -> None:
    """The same items as the original's, and from each cut, by our state and by its own."""
    expected = some(make(old), n)
    theirs, ours = make(old), make(iterators)
    for cut in range(len(expected) + 1):
        state = ours.getstate()
        resumed = make(iterators)
        resumed.setstate(through_json(state))
        assert resumed.getstate()["position"] == state["position"]
        assert some(resumed, n - cut) == expected[cut:]
        resumed.setstate(theirs.getstate())
        assert some(resumed, n - cut) == expected[cut:]
        if cut < n:
            assert some(ours, 1) == some(theirs, 1) == expected[cut : cut + 1]
    if len(expected) < n:
        resumed = make(iterators)
        resumed.setstate(theirs.getstate())
        assert some(resumed) == []


def test_every_item_has_a_test() -> None:
    found = {int(n) for name in globals() for n in re.findall(r"^test_ib(\d+)_", name)}
    assert found == set(CODES)


def test_every_public_name_is_there() -> None:
    theirs = {
        name
        for module in (old, old_datasets)
        for name, value in vars(module).items()
        if not name.startswith("_")
        and callable(value)
        and str(getattr(value, "__module__", "")).startswith("infinibatch")
    }
    assert theirs == set(infinibatch.__all__) - {"datasets", "iterators"}
    assert all(hasattr(infinibatch, name) for name in infinibatch.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_ib1_every_object_is_its_own_iterator(name: str) -> None:
    it = MAKES[name](iterators)
    assert iter(it) is it
    assert isinstance(it, iterators.CheckpointableIterator)
    it.setstate(it.getstate())
    it.close()


@pytest.mark.parametrize("name", NAMES)
def test_ib2_a_state_covers_the_pipeline(name: str) -> None:
    same(MAKES[name])
    it = MAKES[name](iterators)
    some(it, 3)
    state = it.getstate()
    assert pickle.loads(pickle.dumps(state)) == state


@pytest.mark.parametrize("name", NAMES)
def test_ib3_none_is_the_beginning(name: str) -> None:
    it = MAKES[name](iterators)
    first = some(it)
    it.setstate(None)
    assert some(it) == first == some(MAKES[name](old))


@pytest.mark.parametrize("name", NAMES)
def test_ib4_states_from_anywhere_in_any_order(name: str) -> None:
    it = MAKES[name](iterators)
    expected, states = some(it), []
    it.setstate(None)
    for _ in expected:
        states.append(it.getstate())
        next(it)
    for cut in [*range(1, len(states), 7), *range(len(states) - 1, -1, -5)]:
        it.setstate(states[cut])
        assert some(it, len(expected) - cut) == expected[cut:]
    if len(expected) < MOST:
        it.setstate(it.getstate())
        assert some(it) == [] == some(it)


@pytest.mark.parametrize("name", NAMES)
def test_ib5_going_on_changes_no_state(name: str) -> None:
    it = MAKES[name](iterators)
    some(it, 4)
    state = it.getstate()
    kept = copy.deepcopy(state)
    some(it, 5)
    assert state == kept


def test_ib6_close_goes_upstream() -> None:
    class Own(Counting):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    own = Own(5)
    it = iterators.FixedBatchIterator(iterators.MapIterator(own, str), 2)
    next(it)
    it.close()
    assert own.closed == 1
    assert next(it) == ["2", "3"]  # without prefetch it has no effect


@pytest.mark.parametrize("name", STAGES)
def test_ib7_a_source_that_is_none(name: str) -> None:
    for source in ([1, 2], iter([1]), None):
        with pytest.raises(ValueError, match="CheckpointableIterator"):
            STAGES[name](iterators, source)


@pytest.mark.parametrize("name", ["Map", "Zip"])
def test_q_map_and_zip_begin_where_their_source_is(name: str) -> None:
    for it in (iterators, old):
        source = native(it, 6)
        some(source, 2)
        stage = STAGES[name](it, source)
        assert len(some(stage)) == 4
        stage.setstate(None)
        assert len(some(stage)) == 6


def test_q_others_begin_at_the_beginning_and_the_source_stays() -> None:
    for it in (iterators, old):
        source = native(it, 4)
        some(source, 2)
        assert some(it.FixedBatchIterator(source, 3)) == [[0, 1, 2], [3]]
    source = native(iterators, 4)
    some(source, 2)
    some(iterators.MapIterator(source, str))
    assert some(source) == [2, 3]


def test_q_map_adds_no_layer() -> None:
    source = stream(iterators)
    stage = iterators.MapIterator(source, str)
    assert stage.getstate()["position"] == source.getstate()["position"]


def test_d_a_state_is_checked() -> None:
    batches = iterators.FixedBatchIterator(native(iterators), 4)
    other = iterators.FixedBatchIterator(native(iterators), 5)
    windows = iterators.WindowedIterator(native(iterators), 4)
    next(batches)
    state = batches.getstate()
    for it in (other, windows):
        with pytest.raises(lz.StateMismatch):
            it.setstate(state)
    garbage = [{}, {"x": 1}, {"source_state": {}}, {"source_state": 3}, "", "[]", {"lazyckpt": 1}]
    for found in [*garbage, {**state, "items": 7}]:
        for it in (batches, stream(iterators), MAKES["permutation"](iterators)):
            with pytest.raises(lz.InvalidState):
                it.setstate(found)  # type: ignore[arg-type]
    assert next(batches) == [4, 5, 6, 7]


@pytest.mark.parametrize("name", NAMES)
def test_d_copies_go_on_on_their_own(name: str) -> None:
    it = MAKES[name](iterators)
    some(it, 3)
    copies = [copy.copy(it), copy.deepcopy(it)]
    rest = some(it, 20)
    assert [some(each, 20) for each in copies] == [rest, rest]


AHEAD: dict[str, Make] = {
    "prefetch": lambda it: it.PrefetchIterator(stream(it), 3),
    "parallel": lambda it: it.ParallelMapIterator(stream(it), str, 2, 3),
    "dataset": lambda it: datasets.chunked_dataset_iterator(
        list("abc"), list, 4, transform=str.upper, prefetch=True
    ),
}


@pytest.mark.parametrize("name", [*NAMES, *AHEAD])
@pytest.mark.parametrize("cut", [0, 3])
def test_d_pickles_go_on(name: str, cut: int) -> None:
    it = {**MAKES, **AHEAD}[name](iterators)
    some(it, cut)
    found = cloudpickle.loads(cloudpickle.dumps(it))
    assert type(found) is type(it)
    assert found.getstate()["position"] == it.getstate()["position"]
    assert some(found, 20) == some(it, 20)
    found.close(), it.close()


@pytest.mark.parametrize("name", NAMES)
def test_an_iterator_that_is_dropped_is_gone_at_once(name: str) -> None:
    for count in (0, 3, 100):
        it = MAKES[name](iterators)
        some(it, count)
        gone = ref(it)
        del it
        assert gone() is None


def test_an_end_and_an_error_are_not_for_good() -> None:
    class Blocks(BlockIterator):
        def _block(self) -> Iterator[int] | None:
            found = next(turns)
            if isinstance(found, BaseException):
                raise found
            return None if found is None else iter(found)

    turns: Iterator[Any] = iter(
        [[1, 2], KeyboardInterrupt(), [], [3], None, None, [4] * 100, KeyError(), None]
    )
    it = Blocks()
    assert [next(it), next(it)] == [1, 2]
    with pytest.raises(KeyboardInterrupt):
        next(it)
    assert [list(it), list(it)] == [[3], []]
    given = until_it_fails(it)
    assert [given, list(it)] == [[4] * 100, []]


def until_it_fails(iterator: Any) -> list[Any]:
    found: list[Any] = []
    with pytest.raises(KeyError):
        found.extend(iterator)
    return found


def test_d_an_exception_is_tried_again() -> None:
    bad = [3]

    def failing(x: int) -> list[int]:
        if x in bad:
            raise KeyError(x)
        return [x]

    for make in (
        lambda s: iterators.MapIterator(s, failing),
        lambda s: iterators.SelectManyIterator(s, failing),
        lambda s: iterators.RecurrentIterator(s, lambda n, x: (n, failing(x)), 0),
        lambda s: iterators.SamplingRandomMapIterator(s, lambda r, x: failing(x)),
        lambda s: iterators.BufferedShuffleIterator(iterators.MapIterator(s, failing), 2),
        lambda s: iterators.BlockwiseShuffleIterator(iterators.MapIterator(s, failing), 2),
    ):
        bad[:] = []
        whole = some(make(native(iterators, 6)))
        bad[:] = [3]
        it = make(native(iterators, 6))
        given = until_it_fails(it)
        with pytest.raises(KeyError):
            next(it)
        bad[:] = []
        assert given + some(it) == whole


def test_d_a_stop_iteration_out_of_a_function_is_an_error() -> None:
    def stop(*_: Any) -> Any:
        raise StopIteration

    for it in (
        iterators.MapIterator(native(iterators), stop),
        iterators.SelectManyIterator(native(iterators), stop),
        iterators.RecurrentIterator(native(iterators), stop),
        iterators.SamplingRandomMapIterator(native(iterators), stop),
        iterators.BucketedReadaheadBatchIterator(native(iterators), 4, stop, 2),
    ):
        with pytest.raises((lz.PipelineError, RuntimeError), match="StopIteration"):
            next(it)


def test_ib10_any_iterable_that_begins_anew() -> None:
    class Own:
        def __iter__(self) -> Iterator[int]:
            return iter([1, 2])

    for iterable in (
        [1, None],
        (1, 2),
        "ab",
        {"a": 1},
        {3},
        range(3),
        np.arange(3),
        Own(),
        [],
        b"ab",
    ):
        found = some(iterators.NativeCheckpointableIterator(iterable))
        assert found == some(old.NativeCheckpointableIterator(iterable)) == list(iterable)
    for it in (iterators, old):
        with pytest.raises(ValueError, match="iter"):
            it.NativeCheckpointableIterator(iter([1]))


def test_ib11_a_source_that_became_too_short() -> None:
    for items in (
        [list(range(9)), list(range(4))],
        [dict.fromkeys("abcdefghi"), dict.fromkeys("abcd")],
    ):
        long, short = map(iterators.NativeCheckpointableIterator, items)
        some(long, 7)
        with pytest.raises(RuntimeError, match=r"7.* 4"):
            short.setstate(long.getstate())
        with pytest.raises(RuntimeError, match=r"7.* 4"):
            iterators.MapIterator(short, str).setstate(iterators.MapIterator(long, str).getstate())


def test_ib12_train_or_not() -> None:
    for it in (iterators, old):
        with pytest.raises(ValueError, match="shuffl"):
            it.create_source_iterator([1, 2], train=False)
    for args in ((True, 3), (True, 3, False), (False, None, False, 2, 1)):
        ours, theirs = (it.create_source_iterator(list(range(9)), *args) for it in (iterators, old))
        assert some(ours) == some(theirs)


@given(st.integers(0, 40), st.integers(1, 12))
def test_ib13_contiguous_parts(n: int, ranks: int) -> None:
    parts = [some(iterators.ChunkedSourceIterator(list(range(n)), ranks, r)) for r in range(ranks)]
    theirs = [some(old.ChunkedSourceIterator(list(range(n)), ranks, r)) for r in range(ranks)]
    assert parts == theirs
    assert list(chain(*parts)) == list(range(n))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_ib14_ranks_out_of_range() -> None:
    assert some(iterators.ChunkedSourceIterator([1, 2], 5, 4)) == []
    for rank in (2, 3, -1):
        with pytest.raises(ValueError, match="instance_rank"):
            iterators.ChunkedSourceIterator([1, 2], 2, rank)
        with pytest.raises(ValueError, match="instance_rank"):
            iterators.InfinitePermutationSourceIterator([1, 2], 0, True, 2, rank)


SEEDS = st.one_of(
    st.integers(), st.text(max_size=5), st.floats(allow_nan=False), st.binary(max_size=5)
)


@given(SEEDS, st.integers(1, 30), st.integers(1, 6), st.data())
def test_ib15_ranks_by_turns(seed: Any, n: int, ranks: int, data: Any) -> None:
    rank, cut = data.draw(st.integers(0, ranks - 1)), data.draw(st.integers(0, 80))
    ours, theirs, resumed = (
        it.InfinitePermutationSourceIterator(list(range(n)), seed, True, ranks, rank)
        for it in (iterators, old, iterators)
    )
    assert some(ours, cut) == some(theirs, cut)
    resumed.setstate(theirs.getstate())
    rest = some(theirs, 50)
    assert some(resumed, 50) == rest
    resumed.setstate(through_json(ours.getstate()))
    assert some(resumed, 50) == rest


@given(st.integers(1, 9), st.integers(1, 25), st.integers(0, 5), st.sampled_from([None, 4]))
def test_ib16_more_ranks_than_items(n: int, ranks: int, seed: int, common: int | None) -> None:
    all_ranks = [
        iterators.InfinitePermutationSourceIterator(list(range(n)), common, True, ranks, rank)
        for rank in range(ranks)
    ]
    joined = list(chain(*zip(*(some(each, n) for each in all_ranks), strict=True)))
    for begin in range(0, len(joined), n):
        assert sorted(joined[begin : begin + n]) == list(range(n))
    assert len({json.dumps(each.getstate()["position"]) for each in all_ranks}) == 1


def test_ib17_without_shuffle_a_cycle_and_copies() -> None:
    items = [[1], [2], [3]]
    for shuffle in (True, False):
        it = iterators.InfinitePermutationSourceIterator(items, 0, shuffle)
        first = some(it, 3)
        expected = copy.deepcopy(first)
        for item in (*first, *items):
            item.append(0)
        assert sorted(some(it, 3)) == sorted(expected) == [[1], [2], [3]]
        it.setstate(None)
        assert some(it, 3) == expected
        items = [[1], [2], [3]]


@settings(max_examples=20)
@given(st.integers(2000, 9000), st.integers(0, 3), st.integers(0, 20_000))
def test_ib18_large_permutations(n: int, seed: int, cut: int) -> None:
    ours, theirs, resumed = (
        it.InfinitePermutationSourceIterator(range(n) if it is iterators else list(range(n)), seed)
        for it in (iterators, old, iterators)
    )
    assert some(ours, cut) == some(theirs, cut)
    resumed.setstate(through_json(ours.getstate()))
    assert some(resumed, 100) == some(ours, 100) == some(theirs, 100)


def test_ib19_no_items() -> None:
    for it in (iterators, old):
        with pytest.raises(ValueError, match="empty"):
            it.InfinitePermutationSourceIterator([])


def test_d_no_seed_replays() -> None:
    for make in (
        lambda: iterators.InfinitePermutationSourceIterator(list(range(50)), None),
        lambda: iterators.RandomIterator(None),
        lambda: iterators.BufferedShuffleIterator(native(iterators), 9, None),
        lambda: iterators.BlockwiseShuffleIterator(native(iterators), 9, None),
        lambda: iterators.SamplingRandomMapIterator(native(iterators), drawing, None),
        lambda: iterators.BucketedReadaheadBatchIterator(native(iterators), 9, None, 2, seed=None),
    ):
        it, other = make(), make()
        states = [it.getstate()]
        first = some(it, 10)
        other.setstate(through_json(states[0]))
        assert some(other, 10) == first
        it.setstate(None)
        assert some(it, 10) == first


def test_ib20_multiplex_ends_with_control() -> None:
    it = MAKES["multiplex"](iterators)
    assert some(it) == some(MAKES["multiplex"](old))
    for indices in ([0, 0, 0], [-1], [2], ["0"], [None]):
        chosen = iterators.NativeCheckpointableIterator(indices)
        it = iterators.MultiplexIterator(chosen, [native(iterators, 2), native(iterators, 2)])
        with pytest.raises(lz.PipelineError, match="multiplex"):
            some(it)
    one = native(iterators)
    with pytest.raises(ValueError, match="twice"):
        iterators.MultiplexIterator(control(iterators), [one, one])


def test_ib21_collections_of_any_kind() -> None:
    collections = [[1, None], (), "ab", (3,), range(2), {"k": 1}, [[]]]
    for selector in (None, iter, lambda c: (x for x in c), list):
        ours, theirs = (
            some(it.SelectManyIterator(it.NativeCheckpointableIterator(collections), selector))
            for it in (iterators, old)
        )
        assert ours == theirs


def test_ib22_a_restore_reads_one_collection() -> None:
    seen: list[int] = []

    def select(x: int) -> list[int]:
        seen.append(x)
        return [x] * 5

    it = iterators.SelectManyIterator(native(iterators), select)
    some(it, 13)
    other = iterators.SelectManyIterator(native(iterators), select)
    del seen[:]
    other.setstate(it.getstate())
    assert some(other, 3) == [2, 2, 3]
    assert seen == [2, 3]


def test_ib23_a_collection_that_became_shorter() -> None:
    size = 5
    it = iterators.SelectManyIterator(native(iterators), lambda x: [x] * size)
    some(it, 14)
    state, size = it.getstate(), 3
    it.setstate(state)
    with pytest.raises(RuntimeError, match=r"4 .* 3"):
        next(it)


@given(st.integers(0, 700), st.integers(1, 40), SEEDS, st.data())
def test_ib24_buffered_shuffle(n: int, size: int, seed: Any, data: Any) -> None:
    expected = some(old.BufferedShuffleIterator(native(old, n), size, seed), n)
    it = iterators.BufferedShuffleIterator(native(iterators, n), size, seed)
    cut = data.draw(st.integers(0, n))
    assert some(it, cut) == expected[:cut]
    other = iterators.BufferedShuffleIterator(native(iterators, n), size, seed)
    other.setstate(through_json(it.getstate()))
    assert some(other, n) == some(it, n) == expected[cut:]


def test_ib25_buffered_shuffle_at_every_cut() -> None:
    make = lambda it: it.BufferedShuffleIterator(stream(it, 60), 20, 1)  # noqa: E731
    same(make, 100)
    items = [None, 1, None, 2, None]
    for size in (1, 2, 9):
        it = iterators.BufferedShuffleIterator(iterators.NativeCheckpointableIterator(items), size)
        assert sorted(map(str, some(it))) == sorted(map(str, items))
    for size in (0, -1, 2.5):
        with pytest.raises(ValueError, match="buffer_size"):
            iterators.BufferedShuffleIterator(native(iterators), size)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 2, 4, 65, 1025])
def test_ib25_buffered_shuffle_at_every_cut_of_the_original(size: int) -> None:
    n = size + 260
    theirs = old.BufferedShuffleIterator(native(old, n), size)
    ours = iterators.BufferedShuffleIterator(native(iterators, n), size)
    for _ in range(n + 2):
        ours.setstate(theirs.getstate())
        assert some(ours, 1) == some(theirs, 1)


def test_ib26_map() -> None:
    assert some(MAKES["map"](iterators)) == some(MAKES["map"](old))
    with pytest.raises(ValueError, match="callable"):
        iterators.MapIterator(native(iterators), 3)  # type: ignore[arg-type]


def square(x: int) -> int:
    if x == 77:
        raise KeyError(x)
    return x * x


def test_ib27_parallel_map() -> None:
    it = iterators.ParallelMapIterator(native(iterators, 70), square, 2, 3)
    squares = [x * x for x in range(70)]
    assert some(it, 20) == squares[:20]
    state = through_json(it.getstate())
    assert some(it, 100) == squares[20:]
    it.setstate(state)
    assert some(it, 100) == squares[20:]
    it.close()
    with pytest.raises(RuntimeError, match="closed"):
        next(it)
    it = iterators.ParallelMapIterator(native(iterators, 99), square, 2, 3)
    assert until_it_fails(it) == [x * x for x in range(77)]
    it.close()
    it = iterators.ParallelMapIterator(native(iterators, 70), square, 2, 3)
    it.setstate(
        {"source_state": {"source_state": {"num_items_yielded": 12}}, "flattened_items_yielded": 5}
    )
    assert some(iterators.FixedBatchIterator(native(iterators, 1), 1), 1) == [[0]]
    assert next(it) == 17 * 17
    it.close()


@pytest.mark.parametrize("n", [0, 7, 8])
def test_ib27_parallel_map_at_every_cut_of_the_original(n: int) -> None:
    theirs = old.SelectManyIterator(  # which is what the original makes, but for its pool
        old.MapIterator(old.FixedBatchIterator(native(old, n), 4), lambda items: items)
    )
    for cut in range(n + 2):
        ours = iterators.ParallelMapIterator(native(iterators, n), square, 2, 2)
        ours.setstate(theirs.getstate())
        assert some(ours) == [x * x for x in range(cut, n)]
        ours.close()
        some(theirs, 1)


def test_ib28_zip() -> None:
    for lengths in ((3, 5), (5, 3), (0, 2), (4,)):
        ours, theirs = (
            some(it.ZipIterator(*(native(it, n) for n in lengths))) for it in (iterators, old)
        )
        assert ours == theirs
    one = native(iterators)
    with pytest.raises(ValueError, match="at least one"):
        iterators.ZipIterator()
    with pytest.raises(ValueError, match="twice"):
        iterators.ZipIterator(one, one)
    it = iterators.ZipIterator(one, native(iterators))
    with pytest.raises(ValueError, match="3 sources"):
        it.setstate({"input_states": [{"num_items_yielded": 1}] * 3})


@given(st.integers(0, 30), st.integers(1, 12))
def test_ib29_windows(n: int, width: int) -> None:
    ours, theirs = (some(it.WindowedIterator(native(it, n), width)) for it in (iterators, old))
    assert ours == theirs
    with pytest.raises(ValueError, match="width"):
        iterators.WindowedIterator(native(iterators), 0)


@given(st.integers(0, 30), st.integers(1, 12))
def test_ib30_batches(n: int, size: int) -> None:
    ours, theirs = (some(it.FixedBatchIterator(native(it, n), size)) for it in (iterators, old))
    assert ours == theirs
    for it in (iterators, old):
        with pytest.raises(ValueError, match="batch_size"):
            it.FixedBatchIterator(native(it), 0)


@given(SEEDS, st.integers(0, 9000))
def test_ib31_random(seed: Any, cut: int) -> None:
    ours, theirs = iterators.RandomIterator(seed), old.RandomIterator(seed)
    assert some(ours, cut) == some(theirs, cut)
    other = iterators.RandomIterator(seed)
    other.setstate(theirs.getstate())
    assert some(other, 9) == some(ours, 9) == some(theirs, 9)
    ours.setstate(None)
    assert next(ours) == Random(seed).random()


def test_ib32_recurrent() -> None:
    same(MAKES["recurrent"])
    initial = np.zeros(2)
    it = iterators.RecurrentIterator(native(iterators), lambda s, x: (s + x, s.sum()), initial)
    initial += 9
    assert some(it, 3) == [0, 0, 2]
    with pytest.raises(lz.InvalidState):
        it.getstate()
    it.setstate(None)
    assert next(it) == 0


def counting(state: Any, x: int) -> Any:
    return [state, x][-1:], (type(state) is list, x)


def test_ib32_a_state_of_the_original_behind_a_first_state_that_is_no_value() -> None:
    theirs = old.RecurrentIterator(native(old, 5), counting, frozenset("abc"))
    ours = iterators.RecurrentIterator(native(iterators, 5), counting, frozenset("abc"))
    expected = some(ours)
    for cut in range(1, 6):
        next(theirs)
        ours.setstate(theirs.getstate())
        assert some(ours) == expected[cut:]


def reseeding(random: Random, x: int) -> float:
    if x % 10 == 3:
        random.seed(x)
    if x % 10 == 7:
        random.shuffle(list(range(2000)))
    return random.gauss(0, 1)


def test_ib33_sampling() -> None:
    make = lambda it: it.SamplingRandomMapIterator(native(it, 25), reseeding, 3)  # noqa: E731
    expected = some(make(old))
    it = make(iterators)
    for cut in range(26):
        for state in (it.getstate(),):
            other = make(iterators)
            other.setstate(json.loads(json.dumps(state)))
            assert some(other) == expected[cut:]
        some(it, 1)


@settings(max_examples=30)
@given(st.integers(0, 300), st.integers(1, 80), SEEDS, st.data())
def test_ib34_blocks(n: int, size: int, seed: Any, data: Any) -> None:
    expected = some(old.BlockwiseShuffleIterator(native(old, n), size, seed), n)
    it = iterators.BlockwiseShuffleIterator(native(iterators, n), size, seed)
    cut = data.draw(st.integers(0, n))
    assert some(it, cut) == expected[:cut]
    it.setstate(through_json(it.getstate()))
    assert some(it, n) == expected[cut:]
    with pytest.raises(ValueError, match="block_size"):
        iterators.BlockwiseShuffleIterator(native(iterators), 0)


def test_ib35_prefetch_refuses() -> None:
    for size in (0, -1, None):
        with pytest.raises(ValueError, match="buffer_size"):
            iterators.PrefetchIterator(native(iterators), size)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="CheckpointableIterator"):
        iterators.PrefetchIterator([1], 2)  # type: ignore[arg-type]


def test_ib36_prefetch_gives_what_the_source_gives() -> None:
    inner = iterators.PrefetchIterator(stream(iterators), 3)
    outer = iterators.PrefetchIterator(iterators.MapIterator(inner, torch.tensor), 4)
    it = iterators.FixedBatchIterator(outer, 5)
    found = [[int(x) for x in batch] for batch in it]
    assert found == some(old.FixedBatchIterator(stream(old), 5))
    it.close()


@pytest.mark.parametrize("size", [1000, 5000])
@pytest.mark.parametrize("wide", [1, 2000])
def test_a_large_buffer(size: int, wide: int) -> None:
    """Of small items, and of ones that fill a pipe; left, re-set and failing amid it all."""
    n, failing = 4 * size // wide + 3000, 2 * size // wide + 2000

    def make(x: int) -> Any:
        if x == failing:
            raise KeyError(x)
        return (x, "x" * wide)

    expected = [(x, "x" * wide) for x in range(n)]
    source = iterators.MapIterator(native(iterators, n), make)
    it = iterators.PrefetchIterator(source, size)
    assert some(it, failing // 2) == expected[: failing // 2]
    middle = it.getstate()
    it.setstate(None)
    assert some(it, 3) == expected[:3]
    it.setstate(middle)
    assert until_it_fails(it) == expected[failing // 2 : failing]
    with pytest.raises(KeyError):
        next(it)
    state = through_json(it.getstate())
    it.setstate(middle)
    assert some(it, 1) == expected[failing // 2 : failing // 2 + 1]
    it.close()
    failing = -1
    after = iterators.PrefetchIterator(iterators.MapIterator(native(iterators, n), make), size)
    after.setstate(state)
    assert some(after, n) == expected[2 * size // wide + 2000 :]
    after.setstate(None)
    next(after)
    after.close()


@pytest.mark.parametrize("size", [1, 3, 100])
def test_ib37_prefetch_resumes_anywhere(size: int) -> None:
    expected = some(stream(old))
    it = iterators.PrefetchIterator(stream(iterators), size)
    states = [it.getstate()]
    for item in expected:
        assert next(it) == item
        states.append(through_json(it.getstate()))
    assert some(it) == []
    for cut in (0, 1, 7, len(expected) - 1, len(expected)):
        it.setstate(states[cut])
        assert some(it) == expected[cut:]
    other = iterators.PrefetchIterator(stream(iterators), 2)
    other.setstate(states[9])
    assert some(other) == expected[9:]
    it.close(), other.close()


def test_ib39_prefetch_starts_with_the_first_item() -> None:
    it = iterators.PrefetchIterator(native(iterators), 3)
    it.getstate()
    it.setstate(None)
    assert it._run is None
    assert next(it) == 0
    it.close()


def test_ib40_prefetch_closes(caplog: pytest.LogCaptureFixture) -> None:
    for wrap in (lambda it: it, lambda it: iterators.MapIterator(it, str)):
        it = wrap(iterators.PrefetchIterator(native(iterators), 3))
        before = wrap(native(iterators))
        some(it, 4), some(before, 4)
        it.close()
        it.close()
        with pytest.raises(RuntimeError, match="closed"):
            next(it)
        with pytest.raises(RuntimeError, match="closed"):
            it.setstate(None)
        assert it.getstate()["position"] == before.getstate()["position"]
    it = iterators.PrefetchIterator(native(iterators), 3)
    next(it)
    with pytest.warns(ResourceWarning, match="unclosed PrefetchIterator"):
        it = None
    with caplog.at_level(logging.WARNING):
        it = iterators.PrefetchIterator(native(iterators), 3, log_empty_buffer_warning=True)
        assert some(it) == list(range(30))
        it.close()
    assert "prefetch buffer is empty" in caplog.text


def failing_at_five(x: int) -> int:
    if x == 5:
        raise KeyError(x)
    return x


def test_d_prefetch_passes_errors_on() -> None:
    it = iterators.PrefetchIterator(iterators.MapIterator(native(iterators), failing_at_five), 2)
    given = until_it_fails(it)
    assert given == [0, 1, 2, 3, 4]
    state = it.getstate()
    with pytest.raises(KeyError):
        next(it)
    it.close()
    behind = iterators.MapIterator(
        iterators.PrefetchIterator(native(iterators), 2), failing_at_five
    )
    assert some(behind, 5) == given
    with pytest.raises(KeyError):
        next(behind)
    assert behind.getstate()["position"] == state["position"]
    with pytest.raises(KeyError):
        next(behind)
    behind.close()


KEYS: list[Any] = [None, lambda x: x % 5]
SIZES: list[Any] = [1, 3, np.int64(3), lambda x: x % 4, lambda x: 2.5]
BOUNDARIES: list[Any] = [None, lambda x: x % 3 == 0, lambda x: x // 4]


@given(
    st.integers(0, 60),
    st.integers(1, 25),
    st.sampled_from(KEYS),
    st.sampled_from(SIZES),
    st.sampled_from(BOUNDARIES),
    st.booleans(),
    st.integers(0, 9),
    st.data(),
)
def test_ib41_buckets(
    n: int, ahead: int, key: Any, size: Any, boundary: Any, shuffle: bool, seed: int, data: Any
) -> None:
    def make(it: Any) -> Any:
        plain = int(size) if it is old and not callable(size) else size
        return it.BucketedReadaheadBatchIterator(
            native(it, n), ahead, key, plain, boundary, shuffle, seed
        )

    expected = some(make(old))
    cut = data.draw(st.integers(0, len(expected)))
    it = make(iterators)
    assert some(it, cut) == expected[:cut]
    other = make(iterators)
    other.setstate(through_json(it.getstate()))
    assert some(other) == some(it) == expected[cut:]


def test_ib42_a_batch_has_at_least_one_item() -> None:
    for size in (0, -3, lambda x: 0, lambda x: float("inf")):
        it = iterators.BucketedReadaheadBatchIterator(native(iterators, 4), 4, None, size)
        assert sorted(chain(*it)) == [0, 1, 2, 3]
    for ahead in (0, -1):
        with pytest.raises(ValueError, match="read_ahead"):
            iterators.BucketedReadaheadBatchIterator(native(iterators), ahead, None, 2)


def test_ib43_boundaries() -> None:
    for it in (iterators, old):
        batches = it.BucketedReadaheadBatchIterator(
            native(it, 6), 6, None, 9, lambda x: x > 2, False
        )
        assert some(batches) == [[0, 1, 2], [3, 4, 5]]
    it = iterators.BucketedReadaheadBatchIterator(native(iterators), 6, None, 9, lambda x: None)
    with pytest.raises(ValueError, match="boundary_key"):
        next(it)


def test_ib44_batches_are_shuffled_not_items() -> None:
    it = iterators.BucketedReadaheadBatchIterator(native(iterators, 30), 30, None, 3, seed=1)
    found = some(it)
    assert sorted(found) == [[x, x + 1, x + 2] for x in range(0, 30, 3)] != found


def test_ib45_bump_seed() -> None:
    for bump in (datasets.bump_seed, old_datasets.bump_seed):
        assert (bump(None), bump(4)) == (None, 5)
    assert datasets.bump_seed(4, 3) == 7


CHUNKS = [[f"{number}-{line}" for line in range(number % 4)] for number in range(9)]


@given(
    st.integers(0, 5), st.booleans(), st.booleans(), st.sampled_from([None, str.upper]), st.data()
)
def test_ib46_chunked_dataset(
    seed: int, shuffle: bool, windowed: bool, transform: Any, data: Any
) -> None:
    ranks = data.draw(st.integers(1, 4))
    rank, cut = data.draw(st.integers(0, ranks - 1)), data.draw(st.integers(0, 40))
    ours, other, theirs = (
        module.chunked_dataset_iterator(
            list(range(9)), CHUNKS.__getitem__, 6, True, seed, shuffle, windowed, transform,
            num_instances=ranks, instance_rank=rank,
        )
        for module in (datasets, datasets, old_datasets)
    )  # fmt: skip
    assert some(ours, cut) == some(theirs, cut)
    other.setstate(theirs.getstate())
    rest = some(theirs, 30)
    assert some(other, 30) == rest
    other.setstate(through_json(ours.getstate()))
    assert some(other, 30) == rest


def test_ib47_chunked_dataset_to_train_or_not() -> None:
    with pytest.raises(ValueError, match="shuffl"):
        datasets.chunked_dataset_iterator([1], iter, 2, train=False)
    parts = [
        some(datasets.chunked_dataset_iterator(
            CHUNKS, iter, 6, False, shuffle=False, num_instances=4, instance_rank=rank
        ))
        for rank in range(4)
    ]  # fmt: skip
    assert list(chain(*parts)) == list(chain(*CHUNKS))
    for shuffle in (True, False):
        empty = datasets.chunked_dataset_iterator([[], [], []], iter, 6, seed=0, shuffle=shuffle)
        with pytest.raises(ValueError, match="empty"):
            next(empty)
    it = datasets.chunked_dataset_iterator(CHUNKS, iter, 6, seed=0, prefetch=True)
    plain = old_datasets.chunked_dataset_iterator(CHUNKS, iter, 6, seed=0)
    assert some(it) == some(plain)
    it.close()


class Counting(iterators.CheckpointableIterator):
    """A user's own iterator."""

    def __init__(self, n: int) -> None:
        self.n, self.at = n, 0

    def __next__(self) -> int:
        if self.at == self.n:
            raise StopIteration
        self.at += 1
        return self.at - 1

    def getstate(self) -> dict[str, int]:
        return {"at": self.at}

    def setstate(self, checkpoint: dict[str, int] | None) -> None:
        self.at = checkpoint["at"] if checkpoint else 0

    def close(self) -> None:
        pass


def test_an_iterator_of_ones_own() -> None:
    it = iterators.FixedBatchIterator(
        iterators.SelectManyIterator(Counting(9), lambda x: [x, x]), 4
    )
    whole = some(it)
    it.setstate(None)
    for cut in range(len(whole) + 1):
        other = iterators.FixedBatchIterator(
            iterators.SelectManyIterator(Counting(9), lambda x: [x, x]), 4
        )
        other.setstate(through_json(it.getstate()))
        assert some(other) == whole[cut:]
        some(it, 1)


@pytest.mark.parametrize("name", ["permutation", "buffered", "blockwise", "buckets", "random"])
def test_a_long_run_resumes_everywhere_twice(name: str) -> None:
    def make(it: Any) -> Any:
        source = it.InfinitePermutationSourceIterator(list(range(130)), 1)
        if name == "buffered":
            return it.BufferedShuffleIterator(source, 20, 1)
        if name == "blockwise":
            return it.BlockwiseShuffleIterator(source, 50, 1)
        if name == "buckets":
            return it.BucketedReadaheadBatchIterator(source, 30, lambda x: x % 7, 1, seed=1)
        return it.RandomIterator(5) if name == "random" else source

    expected = some(make(old), 1002)
    it, once, twice = make(iterators), make(iterators), make(iterators)
    for cut in range(1000):
        once.setstate(it.getstate())
        assert next(once) == expected[cut]
        twice.setstate(once.getstate())
        assert next(twice) == expected[cut + 1]
        assert next(it) == expected[cut]


@pytest.mark.parametrize("bound", [1, 2, 3, 64, 65, 1000])
def test_words_make_what_random_makes(bound: int) -> None:
    for size in (0, 1, 2, 3, 8, 1000, 2049, 4096, 70_000):
        random, words = Random("x"), Words("x", 0, 0)
        for _ in range(2):
            expected = list(range(size))
            random.shuffle(expected)
            assert words.permutation(size).tolist() == expected
            assert words.below(bound, 77).tolist() == [random.randrange(bound) for _ in range(77)]
        assert mersenne.located("x", 0, random.getstate()) == (0, words.drawn)


@pytest.mark.parametrize("size", [0, 1, 2, 1023, 1024, 1025, 2049, 5000, 70_000])
def test_shuffling_is_what_random_does(size: int) -> None:
    words, random, ours = Words(5, 0, 0), Random(5), list(range(size))
    theirs = list(ours)
    for _ in range(3):
        words.shuffle(ours), random.shuffle(theirs)
        assert ours == theirs
        assert words.permutation(size).tolist() == shuffled(random, size)


def shuffled(random: Random, size: int) -> list[int]:
    found = list(range(size))
    random.shuffle(found)
    return found


@pytest.mark.parametrize("steps", [20_000, 10_000_001])
def test_jumping_is_drawing(steps: int) -> None:
    key, at = mersenne.begun(5, 0)
    bits = mersenne.generator(key, at)
    bits.random_raw(steps, output=False)
    jumped = mersenne.generator(mersenne._jumped(key, steps), 624)
    assert jumped.random_raw(700).tolist() == bits.random_raw(700).tolist()


def test_far_states_stay_small_and_are_found_at_once() -> None:
    it = iterators.RandomIterator(3)
    state = it.getstate()
    state["position"][2] = 2**52
    body = {name: value for name, value in state.items() if name != "check"}
    far = lz.State(
        json.dumps(body["pipeline"], separators=(",", ":"), sort_keys=True), 0, (0, 0, 2**52)
    )
    it.setstate(far.to_dict())
    assert 0 <= next(it) < 1


def bulk(item: Any) -> int:
    return len(str(item))


def copies(item: Any) -> list[Any]:
    return [(item, n) for n in range(bulk(item) % 4)]


def chained(state: list[Any], item: Any) -> tuple[list[Any], Any]:
    return [bulk(item), *state[:2]], list(state)


def behind(inner: st.SearchStrategy[Make]) -> st.SearchStrategy[Make]:
    """Each stage behind those made of before."""
    stages: dict[str, Callable[[Any, Any, int], Any]] = {
        "select": lambda it, s, n: it.SelectManyIterator(it.MapIterator(s, copies)),
        "batch": lambda it, s, n: it.FixedBatchIterator(s, n),
        "windows": lambda it, s, n: it.WindowedIterator(s, n),
        "buffered": lambda it, s, n: it.BufferedShuffleIterator(s, n, n),
        "blockwise": lambda it, s, n: it.BlockwiseShuffleIterator(s, n, n),
        "recurrent": lambda it, s, n: it.RecurrentIterator(s, chained, [n]),
        "sampling": lambda it, s, n: it.SamplingRandomMapIterator(s, drawing, n),
        "buckets": lambda it, s, n: it.BucketedReadaheadBatchIterator(s, n, bulk, 2, seed=n),
    }

    def staged(name: str, make: Make, n: int) -> Make:
        return lambda it: stages[name](it, make(it), n)

    return st.one_of(
        st.builds(staged, st.sampled_from(sorted(stages)), inner, st.integers(1, 9)),
        st.builds(lambda a, b: lambda it: it.ZipIterator(a(it), b(it)), inner, inner),
    )


PIPELINES = st.recursive(
    st.sampled_from(["native", "native, of a dict", "chunked", "cycle", "permutation, few"]).map(
        MAKES.__getitem__
    ),
    behind,
    max_leaves=3,
)


@settings(max_examples=50)
@given(PIPELINES)
def test_a_state_of_the_original_goes_on_here_in_any_pipeline(make: Make) -> None:
    expected = some(make(old), 43)
    theirs, ours = make(old), make(iterators)
    for cut in range(min(len(expected) + 2, 40)):
        ours.setstate(theirs.getstate())
        assert some(ours, 3) == expected[cut : cut + 3]
        some(theirs, 1)

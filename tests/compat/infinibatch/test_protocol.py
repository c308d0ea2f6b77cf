"""The protocol of `lazyckpt.compat.infinibatch`, compared with Infinibatch 0.1.1."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any
from weakref import ref

import cloudpickle
import pytest
from infinibatch import datasets as old_datasets
from infinibatch import iterators as old

import lazyckpt as lz
from lazyckpt.compat import infinibatch
from lazyckpt.compat.infinibatch import datasets, iterators
from tests.compat.infinibatch.cases import (
    MAKES,
    MOST,
    Make,
    native,
    place,
    running,
    same,
    some,
    stream,
    through_json,
    until_it_fails,
)
from tests.executors.faults import script
from tests.helpers import IS_DEEP

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
def test_ib1_ib2_every_object_is_its_own_iterator_and_a_state_covers_the_pipeline(
    name: str,
) -> None:
    same(MAKES[name])
    it = MAKES[name](iterators)
    assert iter(it) is it
    assert isinstance(it, iterators.CheckpointableIterator)
    some(it, 3)
    state = it.getstate()
    assert pickle.loads(pickle.dumps(state)) == state
    it.close()


@pytest.mark.parametrize("name", NAMES)
def test_ib3_ib4_ib5_states_from_anywhere_in_any_order(name: str) -> None:
    it = MAKES[name](iterators)
    expected, states, kept = some(it), [], []
    it.setstate(None)  # the beginning
    for item in expected:
        states.append(it.getstate())
        kept.append(copy.deepcopy(states[-1]))
        assert next(it) == item
    assert states == kept  # going on changes none
    for cut in [*range(1, len(states), 7), *range(len(states) - 1, -1, -5)]:
        it.setstate(states[cut])
        assert some(it, len(expected) - cut) == expected[cut:]
    if len(expected) < MOST:
        it.setstate(it.getstate())
        assert some(it) == [] == some(it)


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


REFUSED: list[tuple[str, Any, list[Any]]] = [
    ("callable", lambda it, s, fn: it.MapIterator(s, fn), [3]),
    ("width", lambda it, s, n: it.WindowedIterator(s, n), [0]),
    ("batch_size", lambda it, s, n: it.FixedBatchIterator(s, n), [0]),
    ("buffer_size", lambda it, s, n: it.BufferedShuffleIterator(s, n), [0, -1, 2.5]),
    ("buffer_size", lambda it, s, n: it.PrefetchIterator(s, n), [0, -1, None]),
    ("block_size", lambda it, s, n: it.BlockwiseShuffleIterator(s, n), [0]),
    ("read_ahead", lambda it, s, n: it.BucketedReadaheadBatchIterator(s, n, None, 2), [0, -1]),
]


@pytest.mark.parametrize(("message", "make", "wrong"), REFUSED)
def test_what_an_argument_may_not_be(message: str, make: Any, wrong: list[Any]) -> None:
    for value in wrong:
        with pytest.raises(ValueError, match=message):
            make(iterators, native(iterators), value)


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
    assert place(stage.getstate()) == place(source.getstate())


def test_d_a_state_is_checked() -> None:
    batches = iterators.FixedBatchIterator(native(iterators), 4)
    other = iterators.FixedBatchIterator(native(iterators), 5)
    windows = iterators.WindowedIterator(native(iterators), 4)
    next(batches)
    state = batches.getstate()
    for it in (other, windows):
        with pytest.raises(lz.StateMismatch):
            it.setstate(state)
    blocks = (iterators.BlockwiseShuffleIterator(native(iterators), 4, s) for s in (b"1", b"2"))
    buckets = (
        iterators.BucketedReadaheadBatchIterator(native(iterators), 9, None, n) for n in (2, 3)
    )
    for one, two in (blocks, buckets):
        with pytest.raises(lz.StateMismatch):
            one.setstate(two.getstate())
    garbage = [{}, {"x": 1}, {"source_state": {}}, {"source_state": 3}, "", "[]", {"lazyckpt": 1}]
    for found in [*garbage, {**state, "items": 7}]:
        for it in (batches, stream(iterators), MAKES["permutation"](iterators)):
            with pytest.raises(lz.InvalidState):
                it.setstate(found)  # type: ignore[arg-type]
    assert next(batches) == [4, 5, 6, 7]


AHEAD: dict[str, Make] = {
    "prefetch": lambda it: it.PrefetchIterator(stream(it), 3),
    "parallel": lambda it: it.ParallelMapIterator(stream(it), str, 2, 3),
    "dataset": lambda it: datasets.chunked_dataset_iterator(
        list("abc"), list, 4, transform=str.upper, prefetch=True
    ),
}


@pytest.mark.parametrize("name", [*NAMES, *AHEAD])
@pytest.mark.parametrize("cut", [0, 3])
def test_d_copies_and_pickles_go_on_on_their_own(name: str, cut: int) -> None:
    it = {**MAKES, **AHEAD}[name](iterators)
    some(it, cut)
    copies = [copy.copy(it), copy.deepcopy(it), cloudpickle.loads(cloudpickle.dumps(it))]
    state, rest = it.getstate(), some(it, 20)
    for found in copies:
        assert type(found) is type(it)
        assert place(found.getstate()) == place(state)
        assert some(found, 20) == rest
        found.close()
    it.close()


@pytest.mark.parametrize("name", NAMES)
def test_an_iterator_that_is_dropped_is_gone_at_once(name: str) -> None:
    for count in (0, 3, 100):
        it = MAKES[name](iterators)
        some(it, count)
        gone = ref(it)
        del it
        assert gone() is None


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


def test_two_stages_of_one_iterator_of_ones_own() -> None:
    own = Counting(6)
    one, other = iterators.MapIterator(own, str), iterators.MapIterator(own, str)
    assert some(one, 2) + some(other, 1) == ["0", "1", "0"]
    with pytest.raises(lz.InvalidState, match="two stages"):
        one.getstate()
    for stage, rest in ((one, "2345"), (other, "12345")):
        with pytest.raises(RuntimeError, match="two stages"):
            next(stage)
        assert some(stage) == [*rest]  # trying again, it goes where the stage is


@pytest.mark.parametrize("name", ["permutation", "buffered", "blockwise", "buckets", "random"])
def test_a_long_run_resumes_twice_wherever_it_stopped(name: str) -> None:
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
    step = 1 if IS_DEEP else 7
    for cut in range(0, 1000, step):
        once.setstate(it.getstate())
        assert next(once) == expected[cut]
        twice.setstate(once.getstate())
        assert next(twice) == expected[cut + 1]
        assert next(it) == expected[cut]
        assert place(once.getstate()) == place(it.getstate())
        some(it, step - 1)


OUTLIVING = """
import sys
from lazyckpt.compat.infinibatch import iterators

sys.held = sys.modules["__main__"]  # as torch.distributed does: modules are cleared before
it = iterators.MapIterator(iterators.NativeCheckpointableIterator([1, 2]), str)
print(list(it))
"""


def test_an_iterator_that_outlives_the_modules_says_nothing(tmp_path: Path) -> None:
    assert script(tmp_path, OUTLIVING) == "['1', '2']\n"

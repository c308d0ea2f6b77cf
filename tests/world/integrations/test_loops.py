"""Loops over a loader begin and end as those over torch's DataLoader do."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from hypothesis import given
from hypothesis import strategies as st
from tqdm import tqdm

import lazyckpt as lz

FIVE = lz.source(range(5)) | lz.shuffle(seed=0)
STREAM = FIVE | lz.flat_map(lambda x: [x])  # neither a length nor random access
ENDLESS = FIVE | lz.repeat()
EPOCHS = [list(lz.run(FIVE, lz.init(FIVE, epoch=epoch))) for epoch in range(6)]
ALL = [x for epoch in EPOCHS for x in epoch]

LOADERS: dict[str, Callable[..., lz.torch.Loader[int]]] = {
    "indexed": lambda **options: lz.torch.loader(FIVE, **options),
    "a stream": lambda **options: lz.torch.loader(STREAM, **options),
    "in threads": lambda **options: lz.torch.loader(FIVE, lz.threads(2), **options),
    "of a size": lambda **options: lz.torch.loader(FIVE, epoch_size=5, **options),
    "of a size, a stream": lambda **options: lz.torch.loader(STREAM, epoch_size=5, **options),
}
loaders = pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS)


@loaders
def test_a_loop_that_is_left_after_a_resume_does_not_continue_either(make: Any) -> None:
    for taken in range(11):
        batches = make()
        expected = next(epochs for epochs in range(3) if epochs * 5 >= taken)
        loops = [list(islice(batches, min(5, taken - 5 * epoch))) for epoch in range(expected)]
        assert [x for loop in loops for x in loop] == ALL[:taken]
        resumed = make(state=batches.state)
        resumed.leave()
        assert list(resumed) == EPOCHS[expected]


def saved_pipeline(batches: lz.torch.Loader[int]) -> lz.Pipeline[int]:
    return STREAM if batches.state.stages == STREAM.entries else FIVE


@loaders
@pytest.mark.parametrize("limit", [2, 5])
def test_a_resume_amid_limited_epochs_goes_on_as_undisturbed(make: Any, limit: int) -> None:
    """The loop, as a trainer's, knows how many items it has taken of its epoch."""
    undisturbed, states = make(), []
    expected = [item for _ in range(4) for item in islice(undisturbed, limit)]
    assert expected == [x for epoch in EPOCHS[:4] for x in epoch[:limit]]
    before = make()
    for _ in range(4):
        for _ in islice(before, limit):
            states.append(before.state.to_json())
    for items, state in enumerate(states, 1):
        after = make(state=state)
        done, taken = divmod(items, limit)
        after.batch_sampler.set_epoch(done)
        found = list(islice(after, limit - taken))
        for _ in range(3 - done):
            found += islice(after, limit)
        if done < 4:
            assert expected[items:] == found


@pytest.mark.parametrize("pipeline", [ENDLESS, STREAM | lz.repeat() | lz.filter(lambda x: x >= 0)])
def test_endless_streams_go_on(pipeline: lz.Pipeline[int]) -> None:
    batches = lz.torch.loader(pipeline)
    assert [*islice(batches, 3), *islice(batches, 4), *islice(batches, 9)] == ALL[:16]


def test_endless_streams_go_on_with_whole_epochs_of_a_size() -> None:
    for pipeline in (ENDLESS, STREAM | lz.repeat()):
        batches = lz.torch.loader(pipeline, epoch_size=4)
        loops = [list(islice(batches, 3)), list(batches), list(islice(batches, 1)), list(batches)]
        assert loops == [ALL[:3], ALL[3:7], ALL[7:8], ALL[8:12]]
        list(islice(batches, 3))
        assert next(iter(batches)) == ALL[15]
        resumed = lz.torch.loader(pipeline, state=batches.state.to_json(), epoch_size=4)
        assert [list(resumed), list(resumed)] == [ALL[16:19], ALL[19:23]]


def test_an_argument_chooses() -> None:
    keeping = lz.torch.loader(FIVE, keep_rest=True)
    assert [list(islice(keeping, 3)), list(keeping), list(keeping)] == [
        EPOCHS[0][:3],
        EPOCHS[0][3:],
        EPOCHS[1],
    ]
    beginning = lz.torch.loader(lz.source(range(5)) | lz.repeat(), keep_rest=False)
    assert [list(islice(beginning, 3)) for _ in range(2)] == [[0, 1, 2]] * 2
    sized = lz.torch.loader(ENDLESS, epoch_size=4, keep_rest=False)
    assert [list(islice(sized, 3)), list(sized)] == [ALL[:3], ALL[4:8]]
    with pytest.raises(lz.ArgumentError, match="keep_rest must be"):
        lz.torch.loader(FIVE, keep_rest=2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pipeline", "is_endless"),
    [
        (ENDLESS | lz.batch(2), True),
        (ENDLESS | lz.map(lambda x: [x] * x) | lz.concat_then_split(2) | lz.map(str), True),
        (lz.mix([ENDLESS | lz.filter(bool), lz.count()], [1, 1], seed=0), True),
        (lz.mix([ENDLESS | lz.filter(bool), FIVE], [1, 1], seed=0), False),
        (ENDLESS | lz.filter(bool) | lz.take(5), False),
        (ENDLESS | lz.filter(bool) | lz.take_while(bool), False),
        (ENDLESS | lz.take(5), False),
        (STREAM, False),
    ],
)
def test_which_streams_are_endless(pipeline: lz.Pipeline[Any], is_endless: bool) -> None:
    batches, run = lz.torch.loader(pipeline), lz.run(pipeline)
    both = [*islice(batches, 2), *islice(batches, 2)]
    assert (both == list(islice(run, 4))) == is_endless


@loaders
def test_an_iterator_from_which_nobody_took_an_item_counts_for_nothing(make: Any) -> None:
    batches = make()
    iter(batches), iter(batches)
    assert list(islice(batches, 2)) == EPOCHS[0][:2]
    iter(batches)
    assert list(batches) == EPOCHS[1]
    resumed = make(state=lz.state_at(saved_pipeline(batches), 2))
    iter(resumed)
    assert list(resumed) == EPOCHS[0][2:]


@loaders
def test_an_older_iterator_raises_once_a_newer_one_has_begun(make: Any) -> None:
    batches = make()
    older, unused = iter(batches), iter(batches)
    assert next(older) == EPOCHS[0][0]
    newer = iter(batches)
    assert next(older) == EPOCHS[0][1]  # since no item of the others was taken
    assert next(newer) == EPOCHS[1][0]
    with pytest.raises(lz.PipelineError, match="a newer loop has begun"):
        next(older)
    assert next(newer) == EPOCHS[1][1]
    assert next(unused) == EPOCHS[2][0]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_copy_would_take_batches_of_the_original(copied: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="a loader can't be pickled or copied; make one in each"):
        copied(lz.torch.loader(lz.source(range(3))))


def test_after_an_error_the_next_loop_tries_the_same_item_again() -> None:
    broken = [True]

    def fail_once(x: int) -> int:
        if x == 3 and broken:
            raise ValueError(broken.pop())
        return x

    batches, found = lz.torch.loader(lz.source(range(5)) | lz.map(fail_once)), []
    with pytest.raises(ValueError, match="True"):
        found += batches
    assert list(batches) == [3, 4]
    assert list(batches) == [0, 1, 2, 3, 4]


def test_a_state_that_is_loaded_within_a_loop_is_where_it_goes_on() -> None:
    batches = lz.torch.loader(FIVE)
    items = iter(batches)
    list(islice(items, 4))
    batches.load_state_dict(lz.state_at(FIVE, 1))
    assert next(items) == EPOCHS[0][1]
    batches.load_state_dict(lz.state_at(FIVE, 2))
    assert list(batches) == EPOCHS[0][2:]


@loaders
def test_a_length_is_how_many_items_come(make: Any) -> None:
    batches = make()
    try:
        length = len(batches)
    except TypeError:
        return
    for taken in (0, 1, 4, 5):
        list(islice(batches, taken))
        assert len(batches) == length == len(list(batches))
    resumed = make(state=lz.state_at(saved_pipeline(batches), 3))
    assert len(resumed) == resumed.start + len(list(resumed)) == 5


@loaders
def test_where_a_loop_starts_in_its_epoch(make: Any) -> None:
    batches = make()
    assert batches.start == 0
    list(islice(batches, 3))
    resumed = make(state=batches.state)
    assert resumed.start == 3
    next(iter(resumed))
    assert resumed.start == 0
    list(resumed)
    assert make(state=resumed.state).start == 0


@pytest.mark.parametrize("name", ["indexed", "of a size", "of a size, a stream"])
def test_epochs_are_counted_from_the_next_one(name: str) -> None:
    make = LOADERS[name]
    for taken in range(16):
        batches = make()
        endless = (x for _ in range(4) for x in batches)
        assert list(islice(endless, taken)) == ALL[:taken]
        resumed = make(state=batches.state)
        epochs = range(resumed.state.items // len(resumed), 3)
        assert [x for _ in epochs for x in resumed] == ALL[taken:15]


def test_an_endless_stream_starts_after_all_items_so_far() -> None:
    batches = lz.torch.loader(ENDLESS)
    list(islice(batches, 7))
    assert batches.start == lz.torch.loader(ENDLESS, state=batches.state).start == 7


@loaders
@pytest.mark.parametrize("taken", [None, 1])
def test_bars_start_where_the_loop_does(make: Any, taken: int | None) -> None:
    batches = make()
    list(islice(batches, 3))
    for resumed, first in ((make(state=batches.state), 3), (batches, 0)):
        start, bar = resumed.start, io.StringIO()
        assert start == first
        options: dict[str, Any] = {"file": bar, "mininterval": 0, "ncols": 80}
        shown = lz.progress(resumed, **options)
        found = len(list(islice(shown, taken)))
        shown.close()  # type: ignore[attr-defined]
        total = "/5" if _has_length(resumed) else ""
        assert f"{first + found}{total}" in bar.getvalue().split("\r")[-1]
        assert found == (taken or 5 - first)


def _has_length(batches: lz.torch.Loader[int]) -> bool:
    try:
        return len(batches) == 5
    except TypeError:
        return False


def test_tqdm_starts_where_it_is_told() -> None:
    resumed = lz.torch.loader(FIVE, state=lz.state_at(FIVE, 3))
    bar = tqdm(resumed, initial=resumed.start, file=io.StringIO())
    assert list(bar) == EPOCHS[0][3:]
    assert bar.n == bar.total == 5


def test_after_a_whole_epoch_of_a_stream_a_loop_starts_at_0() -> None:
    batches = lz.torch.loader(STREAM)
    list(batches)
    assert batches.start == 0
    batches.load_state_dict(lz.state_at(STREAM, 3))
    assert batches.start == 3


def test_skipped_records_are_not_skipped_twice() -> None:
    pipeline = lz.source(["0", "a", "2", "3", "b", "5", "6", "7"]) | lz.map(int)
    batches = lz.torch.loader(pipeline, on_error="skip", epoch_size=3)
    assert [*islice(batches, 1), *islice(batches, 3)] == [0, 5, 6, 7]
    assert batches.skipped == 2


OTHERS = [FIVE, STREAM, FIVE | lz.batch(2, collate=tuple), STREAM | lz.shuffle(3, seed=1)]
ACTIONS = st.sampled_from(["loop", "loop", "loop", "save", "load", "resume", "iter"])


@given(
    st.sampled_from(OTHERS),
    st.sampled_from([None, 1, 3, 5]),
    st.sampled_from([None, None, lz.threads(2)]),
    st.lists(st.tuples(ACTIONS, st.integers(1, 6)), max_size=9),
)
def test_any_loops_are_those_over_lists(
    pipeline: lz.Pipeline[Any], size: int | None, executor: Any, actions: list[tuple[str, int]]
) -> None:
    epochs = [list(lz.run(pipeline, lz.init(pipeline, epoch=epoch))) for epoch in range(20)]
    expected, length = [x for epoch in epochs for x in epoch], size or len(epochs[0])
    batches, place, is_left = lz.torch.loader(pipeline, executor, epoch_size=size), 0, False
    saved = batches.state.to_json(), 0
    for action, number in actions:
        if action == "loop":
            place += -place % length if is_left else 0
            found, end = list(islice(batches, number)), length - place % length
            assert found == expected[place : place + min(number, end)]
            place, is_left = place + len(found), number <= end
        elif action == "save":
            saved = batches.state.to_json(), place
        elif action == "iter":
            iter(batches)
        else:
            state, place = saved
            is_left = False
            if action == "load":
                batches.load_state_dict(state)
            else:
                batches.close()
                batches = lz.torch.loader(pipeline, executor, state=state, epoch_size=size)


# --- the state after the last batch that the weights include ---


def steps(batches: Any, optimizer: Any, every: int, fails_at: int, *, after: bool) -> None:
    for number, _ in enumerate(batches, 1):
        if number == fails_at and not after:
            raise RuntimeError
        if number % every == 0:
            optimizer.step()
        if number == fails_at:
            raise RuntimeError


@loaders
@pytest.mark.parametrize(
    ("every", "after", "trained"), [(1, False, 2), (1, True, 3), (2, False, 2), (2, True, 2)]
)
def test_the_state_that_the_weights_include(
    make: Any, every: int, after: bool, trained: int
) -> None:
    batches, optimizer = make(), torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    assert batches.trained == batches.state
    batches.follow(optimizer)
    with pytest.raises(RuntimeError):
        steps(batches, optimizer, every, 3, after=after)
    assert (batches.state.items, batches.trained.items) == (3, trained)
    assert list(make(state=batches.trained)) == EPOCHS[0][trained:]
    batches.rewind()
    assert batches.trained == batches.state
    assert list(batches) == EPOCHS[0][trained:]
    assert batches.trained.items == trained  # which no step has followed


def test_after_a_loop_left_early_the_weights_include_all_before_the_next_epoch() -> None:
    batches, optimizer = lz.torch.loader(FIVE), torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
    batches.follow(optimizer)
    with pytest.raises(RuntimeError):
        steps(batches, optimizer, 1, 2, after=True)
    with pytest.raises(RuntimeError):
        steps(batches, optimizer, 1, 1, after=False)
    assert list(lz.torch.loader(FIVE, state=batches.trained)) == EPOCHS[1]


def test_followed_optimizers() -> None:
    batches = lz.torch.loader(lz.source(range(12)) | lz.batch(2))
    one, other = (torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]) for _ in range(2))
    batches.follow(one)
    batches.follow(Accelerator(cpu=True).prepare(other))
    items = iter(batches)
    next(items)
    one.step()
    assert batches.trained.items == 0
    other.step()
    next(items)
    batches.change(lz.source(range(12)) | lz.batch(4))
    changed = lz.torch.loader(lz.source(range(12)) | lz.batch(4), state=batches.trained)
    assert next(iter(changed)) == [2, 3, 4, 5]
    batches.follow()
    assert batches.trained == batches.state
    with pytest.raises(lz.ArgumentError, match="must be optimizers of torch"):
        batches.follow(torch.nn.Linear(1, 1))  # type: ignore[arg-type]

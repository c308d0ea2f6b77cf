"""States of a `DataLoader`: exact from anywhere, with workers or without."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.compat import seqtools as ours
from tests.compat.seqtools.cases import IterableTen, Repeated, as_list, plain, same


class Many(list[Any]):
    """A dataset that returns many items per call."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [("many", self[i]) for i in indices]


KINDS = ("order", "sampler", "batch_sampler", "many")


@st.composite
def arguments(
    draw: st.DrawFn, kinds: tuple[str, ...] = (*KINDS, "iterable"), torch: Any = None
) -> tuple[Any, dict[str, Any]]:
    """A dataset and options, including samplers of `torch.utils.data` if that is passed."""
    size = draw(st.integers(1, 12))
    dataset: Any = draw(
        st.sampled_from(
            [list(range(size)), np.arange(size) / 2, [(i, float(i)) for i in range(size)]]
        )
    )
    indices = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=15))
    found: dict[str, Any] = {}
    kind = draw(st.sampled_from(kinds))
    if kind == "batch_sampler":
        k = draw(st.integers(1, 4))
        batches = [indices[i : i + k] for i in range(0, len(indices), k)]
        torchs = [torch.BatchSampler(torch.SequentialSampler(dataset), k, False)] if torch else []
        found["batch_sampler"] = draw(st.sampled_from([batches, Repeated(batches), *torchs]))
        return dataset, found
    if kind == "sampler":
        torchs = [torch.SequentialSampler(dataset)] if torch else []
        found["sampler"] = draw(st.sampled_from([indices, Repeated(indices), *torchs]))
    elif kind == "many":
        dataset = Many(range(size))
    elif kind == "iterable":
        dataset = IterableTen(size)
    found["batch_size"] = draw(st.one_of(st.none(), st.integers(1, 5)))
    if found["batch_size"] is not None:
        found["drop_last"] = draw(st.booleans())
    return dataset, found


def naive(
    dataset: Any,
    *,
    batch_size: int | None = 1,
    drop_last: bool = False,
    sampler: Any = None,
    batch_sampler: Any = None,
) -> list[Any]:
    """The items of a loader whose `collate_fn` changes nothing."""
    if sampler is None:
        sampler = range(len(dataset)) if hasattr(dataset, "__len__") else None
    items = list(dataset) if sampler is None else [dataset[i] for i in sampler]
    many = (lambda each: ("many", each)) if isinstance(dataset, Many) else same
    if batch_sampler is not None:
        return [[many(dataset[i]) for i in batch] for batch in batch_sampler]
    if batch_size is None:
        return items
    starts = range(0, len(items) - (batch_size - 1 if drop_last else 0), batch_size)
    return [[many(each) for each in items[at : at + batch_size]] for at in starts]


def resumes_anywhere(dataset: Any, options: dict[str, Any], expected: Any, cut: int) -> None:
    """From a cut of all batches, which are expected to be these."""
    mine = ours.DataLoader(dataset, **options)
    assert plain(list(mine)) == expected == plain(list(mine))
    if hasattr(dataset, "__len__"):
        assert len(mine) == len(expected[1])
    loader = ours.DataLoader(dataset, **options)
    batches = iter(loader)
    seen = list(islice(batches, cut))
    state = json.loads(json.dumps(loader.state_dict()))
    resumed = ours.DataLoader(dataset, **options)
    resumed.load_state_dict(state)
    assert plain(seen + list(resumed)) == expected
    assert plain(seen + list(batches)) == expected
    assert len(json.dumps(state)) < 1024


@given(arguments(), st.data())
def test_sq1_batches_are_those_of_a_naive_loader_and_resume_anywhere(
    given_: tuple[Any, dict[str, Any]], data: st.DataObject
) -> None:
    dataset, options = given_
    expected = plain(naive(dataset, **options))
    cut = data.draw(st.integers(0, len(expected[1])))
    resumes_anywhere(dataset, {**options, "collate_fn": same}, expected, cut)


def workers_make_the_same(dataset: Any, options: dict[str, Any], expected: Any, cut: int) -> None:
    """As expected, and states, whoever makes the batches."""
    inline = ours.DataLoader(dataset, **options, seed=1)
    loader = ours.DataLoader(dataset, **options, num_workers=2, seed=1)
    assert plain(list(ours.DataLoader(dataset, **options, seed=1))) == expected
    first, second = iter(inline), iter(loader)
    seen = list(islice(second, cut))
    list(islice(first, cut))
    state = loader.state_dict()
    assert state == inline.state_dict()
    fresh = ours.DataLoader(dataset, **options, num_workers=2, seed=1)
    fresh.load_state_dict(state)
    assert plain(seen + list(fresh)) == expected
    assert plain(seen + list(second)) == expected


@settings(max_examples=6)
@given(arguments(KINDS), st.data())
def test_sq1_workers_make_the_same_batches_and_states(
    given_: tuple[Any, dict[str, Any]], data: st.DataObject
) -> None:
    dataset, options = given_
    expected = plain(naive(dataset, **options))
    cut = data.draw(st.integers(0, len(expected[1])))
    workers_make_the_same(dataset, {**options, "collate_fn": same}, expected, cut)


def test_sq1_every_position_of_a_long_run_resumes_twice() -> None:
    def loader() -> Any:
        return ours.DataLoader(list(range(1000)), None, shuffle=True, seed=3, collate_fn=same)

    whole = list(loader())
    assert sorted(whole) == list(range(1000)) != whole
    once, twice = loader(), loader()
    source = loader()
    batches = iter(source)
    for position in range(1000):
        once.load_state_dict(source.state_dict())
        again = iter(once)
        assert next(again) == whole[position]
        twice.load_state_dict(once.state_dict())
        assert list(islice(twice, 2)) == whole[position + 1 : position + 3]
        assert next(batches) == whole[position]


def test_sq1_long_run_with_workers_in_flight() -> None:
    def loader(workers: int) -> Any:
        return ours.DataLoader(
            range(1000), 7, True, num_workers=workers, seed=5, collate_fn=as_list
        )

    whole = list(loader(0))
    current = loader(2)
    found: list[Any] = []
    for workers, many in ((2, 31), (0, 17), (2, 5), (1, 40), (2, 1000)):
        found += list(islice(current, many))
        following = loader(workers)
        following.load_state_dict(current.state_dict())
        current = following
    assert found == whole


def test_sq1_states_of_others_are_refused() -> None:
    loader = ours.DataLoader(range(9), 2, shuffle=True, seed=1)
    good = loader.state_dict()
    for other in (
        ours.DataLoader(range(8), 2, shuffle=True, seed=1),
        ours.DataLoader(range(9), 3, shuffle=True, seed=1),
        ours.DataLoader(range(9), 2, seed=1),
        ours.DataLoader(range(9), 2, shuffle=True, seed=2),
        ours.DataLoader(range(9), 2, sampler=Repeated([1])),
    ):
        with pytest.raises(lz.StateMismatch):
            other.load_state_dict(good)
    for bad in ({}, {"seeds": 1}, {**good, "items": 3}, "x", b"[", None, {**good, "seeds": "q"}):
        with pytest.raises(lz.InvalidState):
            loader.load_state_dict(bad)  # type: ignore[arg-type]
    loader.load_state_dict(good)


def test_sq1_a_state_that_is_refused_changes_nothing() -> None:
    def loader(size: int) -> Any:
        return ours.DataLoader(range(size), 2, shuffle=True, collate_fn=as_list)

    refusing = loader(9)
    with pytest.raises(lz.StateMismatch):
        refusing.load_state_dict(
            ours.DataLoader(range(8), 2, shuffle=True, collate_fn=as_list, seed=1).state_dict()
        )
    assert list(refusing) == list(loader(9))


def test_sq1_two_loops_at_once_and_loops_that_are_left() -> None:
    loader = ours.DataLoader(range(4), None, num_workers=1, collate_fn=same)
    assert list(zip(loader, loader, strict=True)) == [(i, i) for i in range(4)]
    for item in loader:
        if item == 1:
            break
    resumed = ours.DataLoader(range(4), None, collate_fn=same)
    resumed.load_state_dict(loader.state_dict())
    assert list(resumed) == [2, 3]
    assert list(loader) == [0, 1, 2, 3]
    kept = ours.DataLoader(
        range(4),
        None,
        shuffle=True,
        num_workers=1,
        collate_fn=same,
        persistent_workers=True,
        seed=0,
    )
    once = ours.DataLoader(range(4), None, shuffle=True, collate_fn=same, seed=0)
    assert [list(kept), list(kept)] == [list(once), list(once)]
    list(ended := iter(kept))
    under_way = iter(kept)
    next(under_way)
    assert next(ended, None) is None  # it is over, and says nothing about the other one
    assert kept.state_dict()["items"] == 1


def test_sq1_the_end_of_an_epoch_is_the_start_of_the_next() -> None:
    def loader() -> Any:
        return ours.DataLoader(range(6), None, shuffle=True, collate_fn=same, seed=0)

    mine = loader()
    epochs = [list(mine) for _ in range(3)]
    first = loader()
    batches = iter(first)
    for _ in range(6):
        next(batches)
    within = first.state_dict()  # after the last item, the loop not yet ended
    assert next(batches, None) is None
    for state, expected in ((within, [[], *epochs[1:]]), (first.state_dict(), epochs[1:])):
        resumed = loader()
        resumed.load_state_dict(state)
        assert [list(resumed) for _ in expected] == expected

"""A run: its state at every moment, going on after anything, and errors on the way."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from time import sleep
from typing import Any

import pytest

import lazyckpt as lz
from lazyckpt import cursor

PIPELINE = lz.source(range(10)) | lz.shuffle(seed=3) | lz.map(str) | lz.batch(3)
ITEMS = list(PIPELINE)


class Stream:
    """Starts again on each `iter`; counts how many times it was opened and closed."""

    def __init__(self, *items: Any) -> None:
        self.items, self.opened, self.closed = items, 0, 0

    def __iter__(self) -> Iterator[Any]:
        self.opened += 1
        try:
            yield from self.items
        finally:
            self.closed += 1


# --- the state, and going on ---


def test_a_state_dict_is_flat_and_bad_ones_are_refused() -> None:
    """It contains no container, which DCP takes apart and loses if it is empty."""
    found = lz.state_at(PIPELINE, 2)
    flat = lz.run(PIPELINE, found).state_dict()
    assert {type(value) for value in flat.values()} == {int, str}
    assert flat["items"] == found.items
    assert lz.State.from_dict(flat) == lz.State.from_dict(found.to_dict()) == found
    assert lz.State.from_dict(json.loads(json.dumps(flat))) == found
    for text in ("", "[0", "[" * 100_000, "7", "NaN", '"[]"', flat["stages"] + " 1"):
        with pytest.raises(lz.InvalidState):
            lz.State.from_dict({**flat, "stages": text})


def test_a_bad_state_changes_nothing() -> None:
    run = lz.run(PIPELINE)
    next(run)
    other = lz.init(lz.source([1])).to_dict()
    for bad in (other, {}, "nonsense", {**other, "items": 7}):
        with pytest.raises(lz.InvalidState):
            run.load_state_dict(bad)
        assert run.state.items == 1
    assert list(run) == ITEMS[1:]


def test_two_runs_of_one_pipeline_do_not_meet() -> None:
    pipeline = lz.source(Stream(*range(9))) | lz.shuffle(3, seed=0) | lz.scan(scanned, 0)
    expected = list(pipeline)
    one, two = lz.run(pipeline), lz.run(pipeline)
    found: tuple[list[Any], list[Any]] = ([], [])
    for turn in (0, 1, 1, 0, 0, 1):
        found[turn].extend(islice((one, two)[turn], 3))
    assert found == (expected, expected)


def scanned(seen: int, item: Any) -> tuple[int, Any]:
    return seen + 1, (seen, item)


def test_a_run_shows_itself() -> None:
    run = lz.run(lz.source([1, 2]) | lz.map(str))
    next(run)
    assert repr(run) == "<run of source([1, 2]) | map(str), 1 item delivered>"


# --- closing ---


TAILS: list[lz.Stage[Any, Any]] = [
    lz.map(str), lz.filter(bool), lz.batch(2), lz.shuffle(3, seed=0), lz.block_shuffle(3, seed=0),
    lz.repeat(), lz.take(5), lz.skip(1), lz.shard(num_shards=2, index=0), lz.scan(scanned, 0),
    lz.batch(2) | lz.unbatch(), lz.flat_map(lambda x: [x, x]),
]  # fmt: skip


@pytest.mark.parametrize("tail", TAILS, ids=str)
@pytest.mark.parametrize("place", ["source", "flat_map", "zip", "concat", "pipeline in flat_map"])
def test_close_closes_what_the_user_opened(place: str, tail: lz.Stage[Any, Any]) -> None:
    stream = Stream(*range(1, 30))
    inner = lz.source(stream)
    pipeline = {
        "source": inner,
        "flat_map": lz.source([0]) | lz.flat_map(lambda _: stream),
        "zip": lz.zip(inner, lz.source(range(99))),
        "concat": lz.concat(inner, inner),
        "pipeline in flat_map": lz.source([0]) | lz.flat_map(lambda _: inner),
    }[place] | tail
    run = lz.run(pipeline)
    for stop in (run.close, lambda: run.load_state_dict(lz.init(pipeline))):
        with run:
            next(run)
            assert stream.opened > stream.closed
            stop()
            assert stream.opened == stream.closed
    assert lz.run(pipeline, run.state).state == run.state


# --- the user's own state ---


def test_a_state_that_is_no_json_is_refused_when_taken() -> None:
    pipeline = lz.source(range(3)) | lz.scan(lambda s, x: ({x}, x), 0) | lz.batch(1)
    run = lz.run(pipeline)
    assert next(run) == [0]
    for _ in range(2):
        with pytest.raises(lz.InvalidState, match=r"scan: its state .* got \{0\} \(set\)"):
            run.state  # noqa: B018
    assert list(run) == [[1], [2]]
    with pytest.raises(lz.InvalidState, match="scan"):
        lz.step(pipeline, lz.init(pipeline))


@pytest.mark.parametrize("executor", [None, lz.threads()])
@pytest.mark.parametrize("at", [0, 1, 4, 7])
def test_an_item_whose_state_cannot_be_taken_comes_again(
    executor: lz.Executor | None, at: int
) -> None:
    """With states the loop has gone no further than its item; without states, it continues."""

    def step(state: Any, item: int) -> tuple[Any, int]:
        return ({1} if item == at else item), item

    with lz.run(lz.source(range(9)) | lz.scan(step, 0), executor=executor) as run:
        found = list[tuple[int, lz.State]]()
        for _ in range(2):
            with pytest.raises(lz.InvalidState):
                found.extend(run.with_state())
            assert [(item, state.items) for item, state in found] == [(i, i + 1) for i in range(at)]
        assert next(run) == at
        rest = list(run.with_state())
        assert [(item, state.items) for item, state in rest] == [
            (i, i + 1) for i in range(at + 1, 9)
        ]


# --- items and errors of any kind ---


@pytest.mark.parametrize("tail", TAILS, ids=str)
def test_none_is_an_item(tail: lz.Stage[Any, Any]) -> None:
    numbers = lz.source([0] * 30) | lz.filter(lambda x: True)
    nones = lz.source([None] * 30) | lz.filter(lambda x: True)
    if "filter(bool)" not in repr(tail):
        assert len(list(islice(nones | tail, 20))) == len(list(islice(numbers | tail, 20))) > 0


@pytest.mark.parametrize(
    "name",
    [
        "map",
        "scan",
        "multiplex",
        "zip",
        "strict",
        "turns",
        "blocks",
        "flat_map",
        "shuffle",
        "mix",
        "windows",
    ],
)
def test_a_run_counts_what_it_gave_whatever_fails(name: str) -> None:
    broken: set[int] = set()

    def fail(item: int) -> int:
        if item in broken:
            broken.remove(item)
            raise ValueError
        return item

    plain = lz.source([*range(20)])
    poor = lz.source(Stream(*range(20))) | lz.map(fail)
    pipeline: lz.Pipeline[Any] = {
        "map": plain | lz.flat_map(lambda x: [x]) | lz.map(fail) | lz.map(abs),
        "scan": plain | lz.scan(lambda total, x: (total + x, total + fail(x)), 0),
        "multiplex": lz.multiplex(plain | lz.map(lambda _: 1), [plain, poor]),
        "zip": lz.zip(plain, poor, plain),
        "strict": lz.zip(poor, plain, strict=True),
        "turns": lz.interleave(plain, poor),
        "blocks": lz.interleave(plain, poor, plain | lz.take(5), block_length=3),
        "flat_map": plain | lz.flat_map(lambda x: [fail(x)] * 4 if x % 2 else iter([x, fail(x)])),
        "shuffle": poor | lz.shuffle(buffer_size=4, seed=0),
        "mix": lz.mix([plain, poor], [1, 2], seed=0, stop="all_exhausted"),
        "windows": poor | lz.sliding_window(3),
    }[name]
    expected = list(lz.run(pipeline).with_state())
    broken.update(range(20))
    run, found, errors = lz.run(pipeline), list[Any](), 0
    loop = iter(run)
    while (item := tried(loop)) != "end":
        if item == "error":
            errors += 1
        else:
            found.append((item, run.state))
        assert run.state.items == len(found)
    assert found == expected
    assert errors == 20


def test_a_run_left_in_the_middle_is_let_go_at_once() -> None:
    stream = Stream(*range(100))
    for _ in lz.source(stream):
        break
    assert stream.opened == stream.closed == 1


def tried(items: Iterator[Any]) -> Any:
    try:
        return next(items, "end")
    except ValueError:
        return "error"


def test_a_state_after_an_error_needs_no_function_where_there_is_random_access() -> None:
    broken = False

    def read(item: int) -> int:
        if broken:
            raise OSError("gone")
        return item

    numbers = lz.source(range(900))
    for behind in (lz.batch(2), lz.shard(num_shards=2, index=0), lz.shuffle(seed=0)):
        broken = False
        run = lz.run(numbers | lz.map(read) | behind)
        list(islice(run, 300))
        broken = True
        with pytest.raises(OSError, match="gone"):
            next(run)
        assert run.state == lz.state_at(numbers | lz.map(read) | behind, 300)


def test_a_state_that_cannot_be_found_after_an_error_comes_with_the_last_one_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cursor, "perf_counter", lambda: 0.0)  # no time for a second mark
    broken = False

    def read(item: int) -> list[int]:
        if broken:
            raise OSError("gone")
        return [item]

    run = lz.run(lz.source(range(900)) | lz.flat_map(read))
    list(islice(run, 300))
    broken = True
    with pytest.raises(OSError, match="gone"):
        next(run)
    with pytest.raises(OSError, match="gone") as caught:
        _ = run.state
    known = lz.State.from_json(caught.value.__notes__[-1].rpartition(" is ")[2])
    assert known.items < 300
    broken = False
    assert next(run) == 300
    assert next(lz.run(lz.source(range(900)) | lz.flat_map(read), known)) == known.items


def test_a_state_after_an_error_is_right_if_items_expand_to_nothing() -> None:
    def expand(item: int) -> list[int]:
        if item == 90:
            raise ValueError
        if item % 3 == 0:
            sleep(0.001)  # so that the run marks its position here
            return []
        return [item]

    pipeline = lz.source(range(100)) | lz.flat_map(expand)
    for _ in range(5):
        run = lz.run(pipeline)
        found = []
        with suppress(ValueError):
            for item in run:
                found.append(item)
        assert found == [item for item in range(90) if item % 3]
        assert run.state == lz.state_at(pipeline, 60)


@pytest.mark.parametrize("executor", [None, lz.threads(2)])
@pytest.mark.parametrize("taken", [3, 9])
def test_a_run_keeps_its_position_if_fewer_items_are_left(taken: int, executor: Any) -> None:
    mixed = lz.mix([lz.source(range(8))], [1], deterministic=True)
    with lz.run(mixed, executor=executor) as run:
        found = list(islice(run, taken))
        before = run.state
        with pytest.raises(IndexError, match="n=9, but only"):
            run.advance(9)
        assert run.state == before
        assert [*found, *run] == [*range(8)]


def test_a_run_that_was_closed_at_its_end_begins_again_from_a_state() -> None:
    run = lz.run(PIPELINE)
    first = run.state
    assert list(run) == ITEMS
    run.close()
    with run:
        assert next(run, "end") == "end"
        run.load_state_dict(first)
        assert next(run) == ITEMS[0]


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_run_is_no_value(copied: Any) -> None:
    run = lz.run(lz.source(range(3)))
    next(run)
    with pytest.raises(TypeError, match="use its state"):
        copied(run)
    assert next(run) == 1

"""`StreamWrapper`, promise by promise; tests/world compares it with emloop itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyckpt.compat.emloop import StreamWrapper
from tests.compat.emloop.cases import END, Source, asked, epoch_sizes, sizes, workers

steps = st.sampled_from(["next", "next", "next", "with", "leave", "allow"])


@given(sizes, epoch_sizes, st.integers(1, 3), st.lists(steps, max_size=20), st.integers(1, 3))
def test_el5_el6_with_a_buffer_inside_and_outside_of_with_it_is_what_it_is_without(
    sizes: list[int], epoch_size: int, buffer_size: int, script: list[str], more: int
) -> None:
    source = Source(*sizes)
    stream = StreamWrapper(source, buffer_size, epoch_size)
    model = StreamWrapper(Source(*sizes), 0, epoch_size)
    inside, was_entered = 0, False
    stack: list[Any] = []
    for what in [*script, *["next"] * more]:
        if what == "next":
            if not was_entered:
                with pytest.raises(ValueError, match="inside"):
                    next(stream)
                stack.append(stream.__enter__())
                inside += 1
                was_entered = True
            assert asked(stream) == asked(model)
            assert inside or not workers()
        elif what == "with":
            stream.__enter__()
            inside += 1
            was_entered = True
        elif what == "leave" and inside:
            stream.__exit__(None, None, None)
            inside -= 1
        elif what == "allow":
            with stream.allow_buffering:
                if was_entered:
                    assert asked(stream) == asked(model)
    for _ in range(inside):
        stream.__exit__(None, None, None)
    once: Any = StreamWrapper(whole := Source(*sizes), 0, epoch_size)
    while len(whole.log) < len(source.log):
        next(once, None)
    assert source.log == whole.log, "all is asked for once"


@pytest.mark.parametrize("buffer_size", [0, 2])
def test_el1_the_function_is_called_when_a_batch_is_asked_for_and_again_at_the_end(
    buffer_size: int,
) -> None:
    source = Source(2, 3)
    stream = StreamWrapper(source, buffer_size)
    assert stream.state_dict()["items"] == 0
    with stream:
        assert stream.empty()
        assert source.log == []
        assert asked(stream, 2) == [(0, 0), (0, 1)]
        assert next(source.passes) == 1
        source.passes = count(1)
        assert asked(stream, 2) == [END, (1, 0)]
        assert [each for each in source.log if isinstance(each, int)] == [0, 1]


@pytest.mark.parametrize("buffer_size", [0, -1, -7, np.int64(0)])
def test_el2_below_one_there_is_no_buffer(buffer_size: int) -> None:
    source = Source(3)
    stream = StreamWrapper(source, buffer_size)
    assert next(stream) == (0, 0)
    with stream as entered, stream.allow_buffering:
        assert entered is stream
        assert not workers()
        assert stream.empty()
        assert next(stream) == (0, 1)
    assert source.made() == [(0, 0), (0, 1)]
    assert list(stream) == [(0, 2)]


def test_el5_with_a_buffer_the_first_batch_is_had_within_with_alone() -> None:
    stream = StreamWrapper(Source(5), buffer_size=3, name="train")
    with pytest.raises(ValueError, match=r"'train' .*buffer of 3"):
        next(stream)
    with stream.allow_buffering:
        pass
    assert not workers()
    for number in range(2):
        with stream:
            assert next(stream) == (0, number)
            assert len(workers()) == 1
        assert not workers()
    with stream, stream:
        pass
    assert asked(stream.__enter__(), 4) == [(0, 2), (0, 3), (0, 4), END]
    stream.__exit__(None, None, None)


def test_el5_what_is_ready_comes_first_and_no_thread_is_left_behind() -> None:
    source = Source(6)
    stream = StreamWrapper(source, buffer_size=3)
    with stream, stream.allow_buffering:
        assert next(stream) == (0, 0)
        source.wait(4)
    made = len(source.made())
    assert made >= 4
    for number in range(1, made):
        assert next(stream) == (0, number)
        assert not workers()
    assert len(source.made()) == made
    assert list(stream) == [(0, number) for number in range(made, 6)]
    assert source.log == [0, *((0, n) for n in range(6))]


def test_el6_what_is_ready_and_the_place_outlive_leaving() -> None:
    source = Source(9)
    stream = StreamWrapper(source, buffer_size=3)
    with stream:
        assert next(stream) == (0, 0)
        with stream.allow_buffering:
            source.wait(4)
    ready = len(source.made())
    assert ready >= 4
    with stream:
        assert not stream.empty()
        assert asked(stream, ready - 1) == [(0, n) for n in range(1, ready)]
        assert len(source.made()) == ready
        assert stream.empty()
        assert list(stream) == [(0, n) for n in range(ready, 9)]
    assert source.log == [0, *((0, n) for n in range(9))]


def test_el6_what_was_not_begun_is_made_once() -> None:
    source = Source(9)
    source.lets = threading.Semaphore(1)
    stream = StreamWrapper(source, buffer_size=2)
    with stream:
        next(stream)
        source.wait(1)
        with stream.allow_buffering:
            source.wait(1)  # while two more are handed in
        source.lets.release(99)
    assert source.made() == [(0, 0), (0, 1)]
    with stream:
        assert next(stream) == (0, 1)
        with stream.allow_buffering:
            source.wait(1)
        assert asked(stream, 3) == [(0, 2), (0, 3), (0, 4)]
    made = source.made()
    assert source.log == [0, *((0, n) for n in range(len(made)))]


def test_el6_leaving_by_an_error_is_leaving() -> None:
    stream = StreamWrapper(Source(3), buffer_size=3)
    for number in range(3):
        with pytest.raises(KeyError), stream:
            raise KeyError(next(stream) == (0, number))
    with stream:
        assert asked(stream, 2) == [END, (0, 0)]


def test_el7_on_entry_nothing_is_made_and_then_what_is_asked_for() -> None:
    source = Source(9)
    stream = StreamWrapper(source, buffer_size=3)
    with stream:
        pass
    assert source.log == []
    with stream:
        next(stream)
    assert source.log == [0, (0, 0)]


def test_el7_allowing_nests_fills_the_buffer_and_ends_with_one_more() -> None:
    source = Source(9)
    stream = StreamWrapper(source, buffer_size=2)
    source.lets = threading.Semaphore(1)
    with stream:
        next(stream)
        source.wait(1)
        allowed = stream.allow_buffering
        with allowed:
            with allowed, stream.allow_buffering:
                source.wait(1)
            source.lets.release()
            source.wait(1)  # open as long as one is
        source.lets.release(9)
        # The gate is closed, and the third is being made: the last one.
    assert source.made() == [(0, 0), (0, 1), (0, 2)]
    with stream:
        assert asked(stream, 3) == [(0, 1), (0, 2), (0, 3)]
        with stream.allow_buffering:
            source.wait(4)
    assert len(source.made()) == 7, "no more than the buffer, and one in hand"


def test_el7_a_batch_that_is_ready_opens_no_gate() -> None:
    source = Source(99)
    source.lets = threading.Semaphore(3)
    stream = StreamWrapper(source, buffer_size=6)
    with stream:
        next(stream)
        with stream.allow_buffering:
            source.wait(4)
        source.lets.release(99)
        for number in (1, 2):
            assert not source.begun.acquire(timeout=0.3)
            assert asked(stream) == [(0, number)]
        assert not source.begun.acquire(timeout=0.3)
    assert len(source.made()) == 4


def test_el7_an_open_gate_makes_nothing_of_the_next_epoch() -> None:
    for epoch_size in (-1, 3):
        source = Source(3)
        stream = StreamWrapper(source, buffer_size=8, epoch_size=epoch_size)
        with stream, stream.allow_buffering:
            assert asked(stream, 3) == [(0, 0), (0, 1), (0, 2)]
        assert source.log == [0, (0, 0), (0, 1), (0, 2)]


def test_el7_the_gate_may_be_opened_before_entering() -> None:
    source = Source(9)
    stream = StreamWrapper(source, buffer_size=2)
    with stream.allow_buffering, stream:
        source.wait(3)
    with stream:
        pass
    assert source.made() == [(0, 0), (0, 1), (0, 2)]


def test_el8_no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it sleeps"))
    with StreamWrapper(lambda: range(500), buffer_size=4) as stream, stream.allow_buffering:
        assert list(stream) == list(range(500))


@pytest.mark.parametrize("buffer_size", [0, 2])
def test_el9_the_profile_has_the_seconds_of_each_delivered_batch(buffer_size: int) -> None:
    profile: dict[str, list[float]] = {}

    def fails() -> Iterator[int]:
        yield 0
        yield 1
        raise KeyError

    with StreamWrapper(lambda: [1, 2], buffer_size, name="train", profile=profile) as stream:
        assert len(asked(stream, 7)) == 7
    assert list(profile) == ["read_batch_train"]
    assert len(profile["read_batch_train"]) == 5
    assert all(seconds >= 0 for seconds in profile["read_batch_train"])
    profile.clear()
    with StreamWrapper(fails, buffer_size, profile=profile) as stream:
        assert asked(stream, 2) == [0, 1]
        with pytest.raises((KeyError, ChildProcessError)):
            next(stream)
    assert {name: len(times) for name, times in profile.items()} == {"read_batch_None": 2}

"""`lazyckpt.compat.emloop` against emloop itself, item by item of what it promises."""

from __future__ import annotations

import faulthandler
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import distribution
from itertools import count, islice
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from case_helpers import Costly
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.compat.emloop import StreamWrapper

END = "end of epoch"
CODES = {f"EL{number}" for number in (*range(1, 15), 16, 18)}


def reference() -> Any:
    """emloop's own class, without its packages, which need others that are gone (pkg_resources)."""
    root = distribution("emloop").locate_file("emloop")
    for name in ("emloop", "emloop.datasets", "emloop.utils"):
        package = ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    module = import_module("emloop.datasets.stream_wrapper")
    module.EL_BUFFER_SLEEP = 0  # its 0.02 s a batch are not what is compared
    return module.StreamWrapper


Original = reference()


@pytest.fixture(autouse=True)
def _watchdog() -> Iterator[None]:
    faulthandler.dump_traceback_later(60, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    assert not workers()


def workers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("lazyckpt-")]


class Source:
    """A stream function that logs what is asked of it: the pass's number, and its batches."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes
        self.log: list[Any] = []
        self.begun = threading.Semaphore(0)
        self.lets = threading.Semaphore(10**9)
        self.passes = count()

    def __call__(self) -> Iterator[Any]:
        number = next(self.passes)
        self.log.append(number)
        size = self.sizes[number % len(self.sizes)]
        return self.batches(number % len(self.sizes), size)

    def batches(self, number: int, size: int) -> Iterator[Any]:
        for index in range(size):
            self.begun.release()
            self.lets.acquire()
            self.log.append((number, index))
            yield number, index

    def made(self) -> list[Any]:
        return [each for each in self.log if isinstance(each, tuple)]

    def wait(self, batches: int) -> None:
        """Until so many more batches have been begun."""
        for _ in range(batches):
            assert self.begun.acquire(timeout=30)


def asked(stream: Any, times: int = 1) -> list[Any]:
    """What so many `next` give, ends of epochs included."""
    return [next(stream, END) for _ in range(times)]


def test_every_code_has_a_test() -> None:
    names = [re.match(r"test_(el\d+)_", name) for name in globals()]
    assert {name[1].upper() for name in names if name} == CODES


# The whole protocol against the original, which without a buffer is what both should be.

sizes = st.lists(st.integers(1, 5), min_size=1, max_size=3)
epoch_sizes = st.sampled_from([-1, 0, 1, 2, 3, 4, 7])
steps = st.sampled_from(["next", "next", "next", "with", "leave", "allow"])


@given(sizes, epoch_sizes, st.lists(steps, max_size=30))
def test_el3_and_all_else_without_a_buffer_to_the_last_pull(
    sizes: list[int], epoch_size: int, script: list[str]
) -> None:
    times: list[dict[str, list[float]]] = [{}, {}]
    sources = Source(*sizes), Source(*sizes)
    kinds = StreamWrapper, Original
    pair = [
        kind(source, 0, epoch_size, "s", profile)
        for kind, source, profile in zip(kinds, sources, times, strict=True)
    ]
    for what in script:
        if what == "next":
            ours, theirs = (asked(stream) for stream in pair)
            assert ours == theirs
        elif what == "with":
            assert [stream.__enter__() is stream for stream in pair] == [True, True]
        elif what == "leave":
            for stream in pair:
                stream.__exit__(None, None, None)
        else:
            for stream in pair:
                with stream.allow_buffering:
                    pass
        assert sources[0].log == sources[1].log
        assert [stream.empty() for stream in pair] == [True, True]
        mine, other = ([len(each) for each in profile.values()] for profile in times)
        assert mine == other
    assert list(times[0]) == list(times[1])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(0, 2), st.integers(1, 15))
def test_el4_one_stop_ends_an_epoch_of_one_pass_an_empty_one_too(
    sizes: list[int], buffer_size: int, times: int
) -> None:
    with StreamWrapper(Source(*sizes), buffer_size) as stream:
        assert asked(stream, times) == asked(Original(Source(*sizes)), times)
        assert iter(stream) is stream


@given(sizes, epoch_sizes, st.integers(1, 3), st.lists(steps, max_size=20), st.integers(1, 3))
def test_el6_with_a_buffer_it_is_what_it_is_without(
    sizes: list[int], epoch_size: int, buffer_size: int, script: list[str], more: int
) -> None:
    source = Source(*sizes)
    stream = StreamWrapper(source, buffer_size, epoch_size)
    model = Original(Source(*sizes), 0, epoch_size)
    inside = 0
    stack: list[Any] = []
    for what in [*script, *["next"] * more]:
        if what == "next":
            if not inside:
                with pytest.raises(ValueError, match="within"):
                    next(stream)
                stack.append(stream.__enter__())
                inside += 1
            assert asked(stream) == asked(model)
        elif what == "with":
            stream.__enter__()
            inside += 1
        elif what == "leave" and inside:
            stream.__exit__(None, None, None)
            inside -= 1
        elif what == "allow":
            with stream.allow_buffering:
                if inside:
                    assert asked(stream) == asked(model)
    for _ in range(inside):
        stream.__exit__(None, None, None)
    once: Any = StreamWrapper(whole := Source(*sizes), 0, epoch_size)
    while len(whole.log) < len(source.log):
        next(once, None)
    assert source.log == whole.log, "all is asked for once"


@given(sizes, epoch_sizes, st.integers(1, 3), st.integers(1, 12))
def test_el6_the_original_with_a_buffer_gives_the_same(
    sizes: list[int], epoch_size: int, buffer_size: int, times: int
) -> None:
    found = []
    for kind in (StreamWrapper, Original):
        stream = kind(Source(*sizes), buffer_size, epoch_size)
        given: list[Any] = []
        while len(given) < times:
            with stream:  # left where an epoch ends, as emloop's main loop does
                for batch in stream:
                    with stream.allow_buffering:
                        given.append(batch)
            given.append(END)
        found.append(given)
    assert found[0] == found[1]


# One by one.


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


def test_el5_with_a_buffer_batches_are_had_within_with_alone() -> None:
    stream = StreamWrapper(Source(5), buffer_size=3, name="train")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"'train' .*buffer of 3"):
            next(stream)
        with stream.allow_buffering:
            pass
        assert not workers()
        with stream:
            next(stream)
            assert len(workers()) == 1
        assert not workers()
    with stream, stream:
        pass
    assert asked(stream.__enter__(), 4) == [(0, 2), (0, 3), (0, 4), END]
    stream.__exit__(None, None, None)


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


def failing(source: Source, at: tuple[int, int], error: Exception) -> Callable[[], Iterator[Any]]:
    """The source's stream, which fails once at a batch."""
    left = [error]

    def stream() -> Iterator[Any]:
        for batch in source():
            if batch == at and left:
                raise left.pop()
            yield batch

    return stream


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)  # the original's
def test_el10_a_producer_that_fails_is_a_child_process_error_with_its_cause() -> None:
    error = KeyError("broken")
    for kind in (StreamWrapper, Original):
        stream = kind(failing(Source(2), (0, 0), error), 2, name="train")
        with stream, pytest.raises(ChildProcessError):
            next(stream)
        with pytest.raises(KeyError, match="broken"):
            next(kind(failing(Source(2), (0, 0), error)))
    stream = StreamWrapper(failing(Source(2), (0, 0), error), 2, name="train")
    with stream, pytest.raises(ChildProcessError, match=r"'train'.*broken") as caught:
        next(stream)
    assert caught.value.__cause__ is error


def test_el10_the_function_itself_may_fail() -> None:
    def fails() -> Any:
        raise OSError("no such file")

    with StreamWrapper(fails, 2) as stream, pytest.raises(ChildProcessError) as caught:
        next(stream)
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(OSError, match="no such file"):
        next(StreamWrapper(fails))
    with pytest.raises(TypeError, match="not iterable"):
        next(StreamWrapper(lambda: None))  # type: ignore[arg-type,return-value]


def test_el11_one_that_fails_ahead_loses_no_batch_and_ends_no_epoch() -> None:
    source = Source(6)
    stream = StreamWrapper(failing(source, (0, 4), KeyError("ahead")), buffer_size=8)
    with stream:
        assert next(stream) == (0, 0)
        with stream.allow_buffering:
            source.wait(5)
        assert asked(stream, 3) == [(0, 1), (0, 2), (0, 3)]
        with pytest.raises(ChildProcessError, match="ahead"):
            next(stream)
        assert asked(stream, 3) == [(0, 4), (0, 5), END]


@pytest.mark.parametrize("buffer_size", [0, 2])
def test_el12_none_is_a_batch_and_so_is_all_else(buffer_size: int) -> None:
    batches = [None, np.arange(3), END, StopIteration(), (), None]
    for stream_fn in (lambda: batches, lambda: iter(batches)):
        with StreamWrapper(stream_fn, buffer_size) as stream, stream.allow_buffering:
            for _ in range(2):
                found = list(stream)
                assert all(a is b for a, b in zip(found, batches, strict=True))


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("left_at", range(1, 9))
def test_el13_leaving_wherever_leaves_each_epoch_its_size(size: int, left_at: int) -> None:
    model = asked(Original(Source(3), 0, size), 12)
    source = Source(3)
    stream = StreamWrapper(source, 3, size)
    source.lets = threading.Semaphore(0)
    with stream, stream.allow_buffering:
        source.lets.release(sum(each != END for each in model[:left_at]))
        found = asked(stream, left_at)
        source.lets.release(99)
    with stream:
        assert found + asked(stream, 12 - left_at) == model


@pytest.mark.parametrize("buffer_size", [0, 2])
@pytest.mark.parametrize("epoch_size", [-1, 2])
def test_el14_an_empty_stream_is_an_empty_epoch(buffer_size: int, epoch_size: int) -> None:
    with StreamWrapper(Source(0), buffer_size, epoch_size) as stream:
        assert [list(stream) for _ in range(3)] == [[], [], []]
    with StreamWrapper(Source(3, 0, 1), buffer_size, 5) as stream:
        assert [list(stream) for _ in range(3)] == [
            [(0, 0), (0, 1), (0, 2)],
            [(2, 0), (0, 0), (0, 1), (0, 2)],
            [(2, 0), (0, 0), (0, 1), (0, 2)],
        ]


@pytest.mark.parametrize("buffer_size", [0, 2])
@pytest.mark.parametrize("epoch_size", [-1, 2])
@pytest.mark.parametrize("at", range(4))
def test_el16_after_an_error_the_same_batch_comes(
    buffer_size: int, epoch_size: int, at: int
) -> None:
    model = asked(Original(Source(4), 0, epoch_size), 12)
    stream = StreamWrapper(failing(Source(4), (0, at), KeyError(at)), buffer_size, epoch_size)
    found: list[Any] = []
    with stream:
        while len(found) < 12:
            before = stream.state_dict()
            try:
                found.append(next(stream, END))
            except (KeyError, ChildProcessError):
                assert stream.state_dict() == before
    assert found == model


@pytest.mark.parametrize("buffer_size", [0, 2])
def test_el16_a_stop_iteration_of_a_function_ends_nothing(buffer_size: int) -> None:
    def stops() -> Any:
        raise StopIteration

    def amid() -> Iterator[int]:
        yield 1
        stops()

    for stream_fn, expected in ((stops, []), (amid, [1])):
        with StreamWrapper(stream_fn, buffer_size) as stream:
            assert asked(stream, len(expected)) == expected
            for _ in range(2):
                with pytest.raises((lz.PipelineError, ChildProcessError), match="StopIteration"):
                    next(stream)


# The state.

KINDS: dict[str, Callable[[list[Any]], Callable[[], Any]]] = {
    "generator": lambda batches: lambda: (batch for batch in batches),
    "list": lambda batches: lambda: batches,
    "pipeline": lambda batches: lambda: lz.source(batches) | lz.map(lambda x: x),
    "stream": lambda batches: lambda: lz.source(batches) | lz.shuffle(8, seed=0) | lz.filter(bool),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epoch_size", [-1, 64])
def test_el18_resumed_at_each_of_a_thousand_places_twice(kind: str, epoch_size: int) -> None:
    stream_fn = KINDS[kind]([("batch", n) for n in range(97)])
    stream: StreamWrapper[Any] = StreamWrapper(stream_fn, 0, epoch_size, "train")
    expected, states = [], []
    for _ in range(1000):
        states.append(json.dumps(stream.state_dict()))
        expected += asked(stream)
    assert expected.count(END) in (10, 15)
    assert len(set(states)) == 1000
    assert max(map(len, states)) <= 1024
    expected += asked(stream, 40)
    for at, state in enumerate(states):
        again: StreamWrapper[Any] = StreamWrapper(stream_fn, 0, epoch_size, "train")
        again.load_state_dict(json.loads(state))
        assert asked(again, 17) == expected[at : at + 17]
        twice: StreamWrapper[Any] = StreamWrapper(stream_fn, 0, epoch_size, "train")
        twice.load_state_dict(again.state_dict())
        assert again.state_dict() == json.loads(states[at + 17]) if at + 17 < 1000 else True
        assert asked(twice, 23) == expected[at + 17 : at + 40]


@given(
    st.sampled_from(sorted(KINDS)),
    epoch_sizes,
    st.lists(st.tuples(st.integers(0, 12), st.booleans(), st.integers(0, 3)), max_size=6),
)
def test_el18_a_state_goes_from_buffer_to_buffer_and_back(
    kind: str, epoch_size: int, legs: list[tuple[int, bool, int]]
) -> None:
    stream_fn = KINDS[kind]([("batch", n) for n in range(5)])
    model = asked(StreamWrapper(stream_fn, 0, epoch_size), 80)
    if kind in ("generator", "list"):
        assert model == asked(Original(stream_fn, 0, epoch_size), 80)
    at, states = 0, {}
    state = StreamWrapper(stream_fn, 0, epoch_size).state_dict()
    for times, back, buffer_size in legs:
        with StreamWrapper(stream_fn, buffer_size, epoch_size) as stream, stream.allow_buffering:
            asked(stream, 3)
            stream.load_state_dict(state)
            assert stream.state_dict() == state
            assert asked(stream, times) == model[at : at + times]
            at += times
            assert states.setdefault(at, stream.state_dict()) == stream.state_dict()
            if back:
                stream.load_state_dict(states[at])
                assert asked(stream) == model[at : at + 1]
        state = states[at]


def test_el18_a_resume_reads_the_pass_to_its_place_or_nothing_again() -> None:
    source = Source(10)
    stream = StreamWrapper(source, epoch_size=4)
    asked(stream, 9)
    again_source = Source(10)
    again = StreamWrapper(again_source, epoch_size=4)
    again.load_state_dict(stream.state_dict())
    assert again_source.log == []
    assert again.state_dict() == stream.state_dict()
    assert asked(again, 2) == [END, (0, 8)]
    assert len(again_source.made()) == 9

    for wrapped in (lambda data: data, lz.source, lambda data: lz.source(data) | lz.map(abs)):
        data = Costly(1000)
        costly: StreamWrapper[int] = StreamWrapper(lambda: wrapped(data))  # noqa: B023
        state = lz.State.from_dict(costly.state_dict())
        asked(costly, 900)
        costly.load_state_dict(state)
        asked(costly, 900)
        state = lz.State.from_dict(costly.state_dict())
        data = Costly(1000)
        costly = StreamWrapper(lambda: wrapped(data))  # noqa: B023
        costly.load_state_dict(state)
        assert next(costly) == 9000
        assert data.read == [900]


def test_el18_going_on_asks_for_no_batch_twice() -> None:
    source = Source(7)
    stream = StreamWrapper(source, 0, 3)
    for _ in range(20):
        stream.load_state_dict(stream.state_dict())
        next(stream, None)
    assert len(source.made()) == 15
    assert next(source.passes) == 3


def test_el18_a_pipeline_is_shuffled_anew_in_each_pass() -> None:
    pipeline = lz.source(range(8)) | lz.shuffle(seed=0)
    expected = [list(islice(lz.run(pipeline, lz.init(pipeline, epoch=n)), 8)) for n in range(3)]
    with StreamWrapper(lambda: pipeline, 2) as stream:
        assert [list(stream) for _ in range(3)] == expected


def test_el18_iterables_are_iterated_as_they_were() -> None:
    class Table:
        """Its indices are columns, its length is rows, as a data frame's."""

        def __len__(self) -> int:
            return 5

        def __getitem__(self, name: str) -> Any:
            raise KeyError(name)

        def __iter__(self) -> Iterator[str]:
            return iter(["x", "y"])

    for data in (Table(), {"x": 1, "y": 2}, "xy", np.array(["x", "y"]), ("x", "y")):
        assert list(StreamWrapper(lambda: data)) == list(Original(lambda: data)) == ["x", "y"]  # noqa: B023


@pytest.mark.parametrize("buffer_size", [0, 2])
def test_el18_a_state_of_something_else_is_refused(buffer_size: int) -> None:
    stream_fn = KINDS["list"](list(range(9)))
    stream: StreamWrapper[Any] = StreamWrapper(stream_fn, epoch_size=4, name="train")
    asked(stream, 3)
    state = stream.state_dict()

    def loading(state: Any, *args: Any) -> Any:
        with StreamWrapper(*args) as other:
            other.load_state_dict(state)
            return next(other)

    assert loading(state, stream_fn, buffer_size, 4, "train") == 3
    with pytest.raises(lz.StateMismatch, match=r"epoch_size=4.*epoch_size=5"):
        loading(state, stream_fn, buffer_size, 5, "train")
    with pytest.raises(lz.StateMismatch, match=r"train.*valid"):
        loading(state, stream_fn, buffer_size, 4, "valid")
    with pytest.raises(lz.StateMismatch, match="another length"):
        loading(state, KINDS["list"](list(range(8))), buffer_size, 4, "train")
    with pytest.raises(lz.StateMismatch, match="source"):
        loading(state, KINDS["pipeline"](list(range(9))), buffer_size, 4, "train")
    short = KINDS["generator"]
    stream = StreamWrapper(short(list(range(9))))
    asked(stream, 5)
    with pytest.raises(lz.SourceChanged):
        loading(stream.state_dict(), short([1, 2]), buffer_size)
    for garbage in ({}, {"lazyckpt": 1}, "", "null", b"\x00", 3, None, {**state, "items": 7}):
        with pytest.raises(lz.InvalidState):
            loading(garbage, stream_fn, buffer_size, 4, "train")
    found = lz.State.from_dict(state)
    for position in ((), (0,), (0, 5), (0, 1, 2), (0, 1, 2, 3, 4), 7, ((0,), 1)):
        bad = lz.State(found.pipeline, found.items, position)
        with pytest.raises(lz.InvalidState):
            loading(bad, stream_fn, buffer_size, 4, "train")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3,), "stream_fn must be callable"),
        ((list, 1.5), "buffer_size must be an int"),
        ((list, 0, None), "epoch_size must be an int"),
        ((list, True), "buffer_size must be an int"),
    ],
)
def test_el18_arguments_are_checked(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(lz.ArgumentError, match=message):
        StreamWrapper(*arguments)


def test_el18_the_name_is_readable_and_no_argument_is_lost() -> None:
    stream: StreamWrapper[int] = StreamWrapper(
        stream_fn=lambda: [1], buffer_size=1, epoch_size=1, name="x" * 500, profile=None
    )
    assert stream.name == "x" * 500
    assert len(json.dumps(stream.state_dict())) <= 1024

"""States of a `StreamWrapper`: exact from anywhere, refused elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.compat.emloop import StreamWrapper
from tests.compat.emloop.cases import END, Source, asked, epoch_sizes
from tests.helpers import IS_DEEP, Costly

KINDS: dict[str, Callable[[list[Any]], Callable[[], Any]]] = {
    "generator": lambda batches: lambda: (batch for batch in batches),
    "list": lambda batches: lambda: batches,
    "pipeline": lambda batches: lambda: lz.source(batches) | lz.map(lambda x: x),
    "stream": lambda batches: lambda: lz.source(batches) | lz.shuffle(8, seed=0) | lz.filter(bool),
}


@pytest.mark.parametrize(
    ("kind", "epoch_size"), [("generator", -1), ("list", 64), ("pipeline", 64), ("stream", -1)]
)
def test_el18_resumed_amid_a_thousand_batches_twice(kind: str, epoch_size: int) -> None:
    stream_fn = KINDS[kind]([("batch", n) for n in range(97)])
    stream: StreamWrapper[Any] = StreamWrapper(stream_fn, 0, epoch_size, "train")
    expected, states = [], []
    for _ in range(1000):
        states.append(json.dumps(stream.state_dict()))
        expected += asked(stream)
    assert expected.count(END) == 1000 // ((97 if epoch_size < 0 else epoch_size) + 1)
    assert len(set(states)) == 1000
    assert max(map(len, states)) <= 1024
    expected += asked(stream, 8)
    for at in range(0, 1000, 1 if IS_DEEP else 7):
        again: StreamWrapper[Any] = StreamWrapper(stream_fn, 0, epoch_size, "train")
        again.load_state_dict(json.loads(states[at]))
        assert asked(again, 3) == expected[at : at + 3]
        twice: StreamWrapper[Any] = StreamWrapper(stream_fn, 0, epoch_size, "train")
        twice.load_state_dict(again.state_dict())
        if at + 3 < 1000:
            assert again.state_dict() == json.loads(states[at + 3])
        assert asked(twice, 5) == expected[at + 3 : at + 8]


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
        assert list(StreamWrapper(lambda: data)) == ["x", "y"]  # noqa: B023


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
    with pytest.raises(lz.StateMismatch, match="a different length"):
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
    partial = found.position[:3]  # without the place within the pass
    for position in ((), (0,), (0, 5), (0, 1, 2), partial, (0, 1, 2, 3, 4), 7, ((0,), 1)):
        bad = lz.State(found.stages, found.items, position)
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
